"""Posts the end of jobs to the addresses that their requests have named."""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import getproxies

from segmentation.errors import ConfigError, SegmentationError, hide_secrets, one_line
from segmentation.flow.backoff import Backoff
from segmentation.media.opening.download import checked_opener, is_http, is_public, request_for
from segmentation.sessions.status_server import is_local
from segmentation.web.job_json import job_json
from segmentation.web.store import QueuedJob, Store

log = logging.getLogger(__name__)

_ATTEMPTS = 6
_PAUSES = (1.0, 30.0)  # seconds between them, the first and the longest
_TIMEOUT = 10.0  # seconds to connect, and for the whole answer
_AT_A_TIME = 4


class _FinalError(OSError):
    """Another attempt would not change it: the receiver refuses the request, or is at a private address."""


class Webhooks:
    """Posts on threads of its own. Use it as a context manager: the next server posts what is left at the end.

    Redirects are not followed. An answer of 500 and more, or none, is followed by further attempts.
    """

    def __init__(self, store: Store, *, private: bool) -> None:
        """`private`: whether addresses may be private, of this machine, or link-local."""
        self._store, self._private = store, private
        self._under_way: set[str] = set()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="segmentation-webhook")

    def __enter__(self) -> Webhooks:
        self.wake()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def checked(self, address: str) -> str | None:
        """Returns the address of a request, `None` for an empty one. Raises `ConfigError`."""
        if not address:
            return None
        try:
            host = urlsplit(address).hostname or ""
            if re.search(r"\s", address) or not is_http(address) or not request_for(address, {}).host:
                raise ValueError
        except ValueError:
            raise ConfigError(f"webhook {address}: is no http(s) address") from None
        if not self._private and (is_local(host) or _is_private(host)):
            raise ConfigError(f"webhook {address}: is private, which the server refuses; it may --allow private")
        return address

    def wake(self) -> None:
        """Posts the ends of the jobs that are over by now."""
        with self._lock:
            for job in self._store.unposted():
                if job.id not in self._under_way and not self._stop.is_set():
                    self._under_way.add(job.id)
                    self._pool.submit(self._send, job)

    def _send(self, job: QueuedJob) -> None:
        try:
            if self._delivered(job):
                self._store.posted(job.id)
        except SegmentationError as exc:
            log.error("job %s: %s", job.id, exc)
        finally:
            with self._lock:
                self._under_way.discard(job.id)

    def _delivered(self, job: QueuedJob) -> bool:
        """Posts until the receiver has it, or none of the attempts is left. Returns false if the server ends before."""
        backoff, attempts = Backoff(_PAUSES, self._stop), _ATTEMPTS
        while True:
            attempts -= 1
            try:
                self._post(job)
                return True
            except (OSError, HTTPException, ValueError) as exc:
                if not attempts or isinstance(exc, _FinalError):
                    log.warning(
                        "job %s: %s did not take its end: %s", job.id, hide_secrets(str(job.webhook)), _line(exc)
                    )
                    return True
            if not backoff.wait():
                return False

    def _post(self, job: QueuedJob) -> None:
        body = json.dumps(job_json(job)).encode()
        request = request_for(str(job.webhook), {"Content-Type": "application/json"}, body)
        try:
            with checked_opener(self._check).open(request, timeout=_TIMEOUT) as answer:
                status = int(answer.status)
        except URLError as exc:
            raise exc.reason if isinstance(exc.reason, OSError) else exc from exc
        if not 200 <= status < 300:
            raise (_FinalError if status < 500 else OSError)(f"it answers {status}")

    def _check(self, connection: HTTPConnection) -> None:
        """Refuses a private peer, before a request is sent. Behind a proxy that one decides."""
        peer = connection.sock.getpeername()[0]
        proxies = {urlsplit(proxy).hostname for proxy in getproxies().values()}
        if not self._private and not is_public(peer) and connection.host not in proxies:
            raise _FinalError(f"leads to the private address {peer}, which is refused")


def _is_private(host: str) -> bool:
    """Returns whether a host is a private IP address; a name is looked up when its connection is made."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return not is_public(host)


def _line(exc: Exception) -> str:
    return f"no answer in {_TIMEOUT:g} s" if isinstance(exc, TimeoutError) else one_line(exc)
