"""An HTTP server of few threads that slow clients can't take for themselves."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)

MOST = 64  # requests at a time
PATIENCE = 10.0  # seconds that a client may take to send a request, and to take the answer
_GOING = 1.0  # seconds in which a thread ends whose connection was closed
_PAUSE = 0.1  # seconds until a connection is accepted that no descriptor was left for


class BoundedServer(ThreadingHTTPServer):
    """Answers each request on a thread of its own, `MOST` at a time.

    Where there are more, the client that has kept its thread waiting for longest is hung up on. Where no thread waits
    for its client, the new one is.
    """

    daemon_threads = True
    request_queue_size = MOST

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MOST)
        # Connections whose threads wait for the client, and since when, the oldest first.
        self._waiting: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    @contextmanager
    def at_work(self, connection: socket.socket) -> Iterator[None]:
        """The time within which this server, and not the client, keeps a thread busy."""
        with self._lock:
            self._waiting.pop(connection, None)
        try:
            yield
        finally:
            with self._lock:
                self._waiting[connection] = time.monotonic()

    def get_request(self) -> tuple[socket.socket, object]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(_PAUSE)  # else the loop would turn at full speed
            raise

    def process_request(self, request: Any, client_address: object) -> None:
        if not self._free.acquire(blocking=False) and not (
            self._hang_up(longer_than=0.0) and self._free.acquire(timeout=_GOING)
        ):
            self.shutdown_request(request)
            return
        with self._lock:
            self._waiting[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._release(request)
            raise

    def process_request_thread(self, request: Any, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._release(request)

    def service_actions(self) -> None:
        while self._hang_up(longer_than=PATIENCE):
            pass

    def handle_error(self, request: Any, client_address: object) -> None:
        log.debug("status: a request has failed", exc_info=True)  # most often its client has gone

    def _hang_up(self, longer_than: float) -> bool:
        """Hangs up on the client that is waited for longest, if that is longer than so many seconds."""
        with self._lock:
            connection = next(iter(self._waiting), None)
            if connection is None or time.monotonic() - self._waiting[connection] < longer_than:
                return False
            del self._waiting[connection]
            with suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)
            return True

    def _release(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting.pop(connection, None)
        self._free.release()
