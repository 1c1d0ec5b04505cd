"""Lines that are posted to an http(s) address as they come, on a thread of their own and over one connection."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, unquote, urlsplit

from segmentation.errors import ConfigError, hide_secrets, one_line
from segmentation.flow.backoff import Backoff
from segmentation.frames.live_frames import LiveFrames
from segmentation.media.timed_response import TimedResponse

log = logging.getLogger(__name__)

TYPE = "application/x-ndjson"
_MOMENT = 0.2  # seconds whose lines go together
_MOST = 1 << 20  # bytes of one POST, unless one line is longer
_ROOM = 4 << 20  # bytes of lines that wait
_TIMEOUT = 10.0  # seconds to connect, to send lines, and for the whole answer
_PATIENCE = 60.0  # seconds that a file's run waits for a receiver that fails
_LAST = 5.0  # seconds that a live run waits in the end
_POLL = 0.05  # seconds between checks, so that an interrupt is seen
_ANSWER = 1 << 16  # bytes of an answer that are read, so that its connection serves again


class PostedLines:
    """Takes lines, and posts those of the last moment together, as `application/x-ndjson`.

    A POST that fails is made again, after `pauses`, until the receiver has taken it. If its answer alone was lost, the
    receiver gets the lines twice. Meanwhile the caller waits for room, and for `_PATIENCE` seconds at most. With `live`
    it waits for nothing: the oldest lines are dropped and counted there as `unsent`.

    All methods raise `OSError`: where nothing listens, where the first POST is refused (3xx, 4xx), where the receiver
    stays away, and with `pauses` of `None` at the first failure.
    """

    def __init__(self, address: str, pauses: tuple[float, float] | None, live: LiveFrames | None) -> None:
        """`pauses` are the first and the longest between two attempts, in seconds."""
        self._name = hide_secrets(address)
        self._pauses, self._live = pauses, live
        self._receiver = _Receiver(address)
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # of the lines that wait
        self._under_way = 0  # lines that are being posted
        self._error: Exception | None = None
        self._taken = False  # whether the receiver has taken a POST
        self._lost: float | None = None  # since when the receiver fails
        self._closing = threading.Event()  # no more lines come
        self._abandoned = threading.Event()  # nothing more is to be posted
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="segmentation-results", daemon=True)

    def open(self) -> None:
        """Connects, so that an address where nothing listens is known before any work."""
        self._receiver.connect()
        self._thread.start()

    def writelines(self, lines: Sequence[str]) -> None:
        """Takes lines, each with its line feed."""
        with self._changed:
            for line in lines:
                data = line.encode()
                self._make_room()
                self._waiting.append(data)
                self._bytes += len(data)
            self._changed.notify_all()

    def close(self) -> None:
        """Waits until all lines are posted; with `live` for a few seconds, and counts the others as unsent."""
        self._closing.set()
        deadline = time.monotonic() + _LAST
        with self._changed:
            self._changed.notify_all()
            while self._waiting or self._under_way:
                self._raise()
                if self._abandoned.is_set() or (self._live is not None and time.monotonic() > deadline):
                    break
                self._changed.wait(_POLL)
            self._raise()
            if self._live is not None:
                self._live.unsent += len(self._waiting) + self._under_way
        self.abandon()

    def abandon(self) -> None:
        """Ends the thread, without waiting for an answer that it waits for. Lines that are left are not posted."""
        self._closing.set()
        self._abandoned.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(4 * _POLL)

    def _raise(self) -> None:
        """Raises the thread's error, once: raised again while it is handled, it would be its own context."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _make_room(self) -> None:
        """Waits until there is room for a line, or with `live` drops the oldest lines. The lock is held."""
        self._raise()
        while self._bytes > _ROOM and not self._abandoned.is_set():
            if self._live is not None:
                self._bytes -= len(self._waiting.popleft())
                self._live.unsent += 1
            else:
                self._changed.notify_all()
                self._changed.wait(_POLL)
                self._raise()

    def _work(self) -> None:
        try:
            while lines := self._next():
                self._post(b"".join(lines))
                with self._changed:
                    self._under_way = 0
                    self._changed.notify_all()
        except Exception as exc:  # raised where lines are taken
            self._abandoned.set()
            with self._changed:
                self._error = exc
                self._changed.notify_all()
        finally:
            self._receiver.close()

    def _next(self) -> list[bytes]:
        """Returns the lines of the next POST, and waits for them; none in the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
            self._changed.wait_for(lambda: self._bytes >= _MOST or self._closing.is_set(), _MOMENT)
            lines: list[bytes] = []
            size = 0
            while self._waiting and not self._abandoned.is_set():
                if lines and size + len(self._waiting[0]) > _MOST:
                    break
                lines.append(self._waiting.popleft())
                size += len(lines[-1])
            self._bytes -= size
            self._under_way = len(lines)
            self._changed.notify_all()
            return lines

    def _post(self, data: bytes) -> None:
        """Posts lines until the receiver has taken them, or none is to be posted any more. Raises `OSError`."""
        backoff = Backoff(self._pauses or (0.0, 0.0), self._abandoned)
        while not self._abandoned.is_set():
            try:
                self._receiver.post(data)
            except (OSError, HTTPException) as exc:
                self._judge(exc)
                backoff.wait()
                continue
            if self._lost is not None:
                log.info("%s: takes results again", self._name)
            self._taken, self._lost = True, None
            return

    def _judge(self, error: OSError | HTTPException) -> None:
        """Says in a line that the receiver fails. Raises `OSError` where no further attempt is wanted."""
        now = time.monotonic()
        refused = isinstance(error, _RefusedError) and not self._taken
        late = self._live is None and self._lost is not None and now - self._lost > _PATIENCE
        if self._pauses is None or refused or late:
            raise OSError(one_line(error)) from error  # a BrokenPipeError would be the end before a program like `head`
        if self._lost is None:
            self._lost = now
            log.warning("%s: takes no results (%s); trying again", self._name, one_line(error))


class _RefusedError(OSError):
    """The receiver refuses a request, which another attempt would not change."""


class _Receiver:
    """An address, and the connection to it, which is made again when it was closed."""

    def __init__(self, address: str) -> None:
        """Raises `ConfigError` for an address that is none."""
        try:
            parts = urlsplit(address)
            kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
            if not parts.hostname:
                raise ValueError
            self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT)
            self._connection.response_class = TimedResponse
        except (ValueError, HTTPException):  # whose text may have the beginning of a password
            fault = "has no host, or a port that is no number; in a password write / ? # as %2F %3F %23"
            raise ConfigError(f"{address}: {fault}") from None
        query = f"?{parts.query}" if parts.query else ""
        self._path = quote((parts.path or "/") + query, safe="%/?:@!$&'()*+,;=~")
        self._headers = {"Content-Type": TYPE}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def connect(self) -> None:
        """Connects. Raises `OSError`."""
        try:
            self._connection.connect()
        except ValueError as exc:  # a host that can't be a name
            raise OSError(one_line(exc)) from exc

    def post(self, data: bytes) -> None:
        """Posts, and waits for the answer. Raises `OSError` or `HTTPException`."""
        used = self._connection.sock is not None
        try:
            self._exchange(data)
        except ConnectionError:
            if not used:
                raise
            self._exchange(data)  # servers close connections that were idle for a while

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, data: bytes) -> None:
        try:
            self._connection.request("POST", self._path, data, self._headers)
            answer = self._connection.getresponse()
            answer.read(_ANSWER)
        except BaseException:
            self._connection.close()
            raise
        if not answer.isclosed():  # a longer answer would be in the way of the next one
            self._connection.close()
        if not 200 <= answer.status < 300:
            kind = _RefusedError if answer.status < 500 else OSError
            raise kind(f"it answers {answer.status} {answer.reason}".strip())
