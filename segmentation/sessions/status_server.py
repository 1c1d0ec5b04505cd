"""Serves the figures of live streams and of workers over HTTP: a page for people, metrics for Prometheus."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from email.message import Message
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from segmentation.errors import ConfigError, SegmentationError, one_line
from segmentation.frames.latency import BOUNDS
from segmentation.frames.source import Source
from segmentation.pipeline.stream_status import StreamBoard, StreamMonitor, StreamStatus
from segmentation.sessions import workers_status
from segmentation.sessions.bounded_server import MOST, BoundedServer
from segmentation.sessions.prometheus import CONTENT_TYPE, head, labels
from segmentation.sessions.workers_status import WorkersStatus

log = logging.getLogger(__name__)

TOKEN = "SEGMENTATION_STATUS_TOKEN"  # environment variable: whoever knows its value may add and remove streams
_PATIENCE = 1.0  # seconds that a request waits for the next picture
_LONGEST_BODY = 1 << 16  # bytes
_PICTURES = MOST // 2  # requests for pictures at a time, each of which may wait for one
_PAGE = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Control:
    """Actions of a request with the token. Both raise `SegmentationError`."""

    add: Callable[[str, str], None]  # name and address
    remove: Callable[[str], None]  # name


class StatusServer:
    """A server on `HOST:PORT` or `:PORT`, which is on this machine alone. Use it as a context manager.

    `metrics@HOST:PORT` answers `/metrics`, `/healthz` and `/readyz` alone, `metrics@:PORT` on all addresses.

    | request | answer |
    |---|---|
    | `GET /` | a page with all streams, which reads `/streams.css` and `/streams.js` |
    | `GET /streams` | `StreamStatus` of each, as JSON |
    | `GET /streams/NAME.jpg` | a small picture of the output |
    | `GET /metrics` | the figures in Prometheus' text format |
    | `GET /healthz` | 200 while the process lives |
    | `GET /readyz` | 200 if all streams are up that have not ended, else 503 with the names of the others |
    | `POST /streams` | adds the stream `{"name": ..., "address": ...}`; needs the token |
    | `DELETE /streams/NAME` | ends a stream with complete files, or forgets one that has failed; needs the token |

    With `workers`:

    | request | answer |
    |---|---|
    | `GET /`, `GET /workers` | `WorkersStatus`, as JSON |
    | `GET /metrics`, `GET /healthz` | as above |
    | `GET /readyz` | 200 if a worker is ready, else 503 with the names of all |
    """

    def __init__(
        self,
        address: str,
        board: StreamBoard,
        control: Control | None = None,
        workers: Callable[[], WorkersStatus] | None = None,
    ) -> None:
        """Binds the address. `workers` reports workers, in the place of streams. Raises `ConfigError`."""
        self._metrics_alone, host, port = _split(address)
        self._board, self._control, self._workers = board, control, workers
        self._token = os.environ.get(TOKEN, "")
        self._pictures = threading.BoundedSemaphore(_PICTURES)
        try:
            self._server = BoundedServer((host, port), partial(_Handler, self))
        except (OSError, OverflowError) as exc:
            raise ConfigError(f"status {address}: can't be listened on ({one_line(exc)}); name another port") from exc
        self._host = host
        bound = str(self._server.server_address[0])  # of 127.1, 2130706433 and localhost. it is 127.0.0.1
        self.local = is_local(bound)
        self.url = f"http://{f'[{bound}]' if ':' in bound else bound}:{self._server.server_address[1]}/"
        serve = partial(self._server.serve_forever, poll_interval=0.1)  # seconds that `shutdown` takes at most
        self._thread = threading.Thread(target=serve, name="segmentation-status", daemon=True)

    def __enter__(self) -> StatusServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, path: str) -> _Answer:
        """Returns the answer to a GET."""
        if path == "/healthz":
            return _json({"alive": True})
        if self._metrics_alone and path not in ("/metrics", "/readyz"):
            return _error(HTTPStatus.NOT_FOUND, "health and metrics alone are here: /metrics, /healthz, /readyz")
        return self._get_streams(path) if self._workers is None else self._get_workers(path, self._workers())

    def _get_workers(self, path: str, status: WorkersStatus) -> _Answer:
        match path:
            case "/" | "/workers":
                return _json(asdict(status))
            case "/metrics":
                return _metrics(workers_status.metrics(status))
            case "/readyz":
                return _ready(status.away, ready=status.alive > 0)
        return _missing("/workers")

    def _get_streams(self, path: str) -> _Answer:
        monitors = self._board.monitors
        match path:
            case "/" | "/streams.css" | "/streams.js":
                return _Answer(*page(path))
            case "/streams":
                return _json([asdict(monitor.status()) for monitor in monitors])
            case "/metrics":
                return _metrics(metrics(monitors))
            case "/readyz":
                missing = [monitor.name for monitor in monitors if monitor.status().state not in ("up", "ended")]
                return _ready(missing, ready=not missing)
        name = _name(path, ".jpg")
        monitor = self._board.get(name) if name is not None else None
        return _missing() if monitor is None else self._picture(monitor)

    def _picture(self, monitor: StreamMonitor) -> _Answer:
        if not self._pictures.acquire(blocking=False):
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, f"more than {_PICTURES} pictures at a time; ask again")
        try:
            picture = monitor.jpeg(_PATIENCE)
        finally:
            self._pictures.release()
        return _missing() if picture is None else _Answer(picture, "image/jpeg")

    def post(self, path: str, body: bytes) -> _Answer:
        """Adds a stream."""
        if path != "/streams" or self._control is None:
            return _missing()
        try:
            given = json.loads(body)
            name, address = given["name"], given["address"]
        except (ValueError, TypeError, KeyError, RecursionError):
            name = address = None
        if not isinstance(name, str) or not isinstance(address, str):
            return _error(HTTPStatus.BAD_REQUEST, 'send {"name": "...", "address": "rtsp://..."}')
        if Source.parse(address).scheme == "file":  # who may add a stream may not read this machine's files
            return _error(HTTPStatus.BAD_REQUEST, "a file of this machine is no stream")
        return _changed(partial(self._control.add, name, address))

    def delete(self, path: str) -> _Answer:
        """Ends a stream."""
        name = _name(path, "")
        if name is None or self._control is None:
            return _missing()
        if self._board.forget_failed(name):
            return _json({"done": True})
        return _changed(partial(self._control.remove, name))

    def refusal(self, headers: Message[str, str], *, writes: bool) -> _Answer | None:
        """Returns the answer to a request that is not allowed."""
        if self.local and not self._names_this(headers.get("Host", "")):
            # Another page's script could read the figures, once its host's name leads to this machine.
            return _error(HTTPStatus.FORBIDDEN, "this address is for this machine alone; name it localhost")
        if not writes:
            return None
        if self._metrics_alone:
            return _error(HTTPStatus.FORBIDDEN, "health and metrics alone are here")
        if not self._token:
            return _error(HTTPStatus.FORBIDDEN, f"streams can be changed where {TOKEN} is set")
        given = headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return _error(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
        return None

    def _names_this(self, host: str) -> bool:
        """Returns whether a `Host` header stands for this machine, or is the host that the user gave."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:  # such as half of an IPv6 address
            return False
        return is_local(name) or name == self._host.lower()


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK


class _Handler(BaseHTTPRequestHandler):
    """Reads one request, see `StatusServer`."""

    server: BoundedServer
    server_version = "segmentation"
    sys_version = ""

    def __init__(self, status: StatusServer, *arguments: Any) -> None:
        self._status = status
        super().__init__(*arguments)  # handles the request

    def do_GET(self) -> None:
        self._answer(self._status.get, writes=False)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST_BODY:
            self._send(
                _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {_LONGEST_BODY} bytes, and say how many")
            )
            return
        body = self.rfile.read(int(length))
        self._answer(lambda path: self._status.post(path, body), writes=True)

    def do_DELETE(self) -> None:
        self._answer(self._status.delete, writes=True)

    def _answer(self, answer: Callable[[str], _Answer], *, writes: bool) -> None:
        with self.server.at_work(self.connection):
            answered = self._status.refusal(self.headers, writes=writes) or answer(urlsplit(self.path).path)
        self._send(answered)

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        headers = _HEADERS | {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *values: object) -> None:
        log.debug("status: %s", one_line(format % values))


def metrics(monitors: list[StreamMonitor]) -> Iterator[str]:
    """Yields the figures of all streams as the lines of Prometheus' text format."""
    streams = [(monitor, monitor.status()) for monitor in monitors]
    singles: list[tuple[str, str, str, Callable[[StreamStatus], int]]] = [
        ("up", "gauge", "Whether the source is connected and sends.", lambda one: int(one.state == "up")),
        ("frames_received_total", "counter", "Frames that arrived.", lambda one: one.received),
        ("frames_shown_total", "counter", "Frames that have gone through all stages.", lambda one: one.shown),
        ("frames_waiting", "gauge", "Frames before and within the stages.", lambda one: one.waiting),
        ("reconnects_total", "counter", "How often the source came back.", lambda one: one.reconnects),
        ("frames_unsent_total", "counter", "Frames for lost connections of outputs.", lambda one: one.unsent),
        ("frames_repeated_total", "counter", "Frames shown while the source was lost.", lambda one: one.repeated),
    ]
    for name, kind, about, value in singles:
        yield from head(name, kind, about)
        for one in (one for _, one in streams if name != "up" or one.state != "ended"):  # an end is no alarm
            yield f"segmentation_{name}{labels(stream=one.name)} {value(one)}"
    yield from head("frames_dropped_total", "counter", "Frames that were dropped, by cause.")
    for _, one in streams:
        for cause, count in one.dropped.items():
            yield f"segmentation_frames_dropped_total{labels(stream=one.name, cause=cause)} {count}"
    yield from head("latency_seconds", "histogram", "From when a frame was read until it has gone through all stages.")
    for monitor, one in streams:
        late = monitor.late
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), (*late.up_to, late.number), strict=True):
            yield f"segmentation_latency_seconds_bucket{labels(stream=one.name, le=bound)} {count}"
        yield f"segmentation_latency_seconds_sum{labels(stream=one.name)} {late.total:.6f}"
        yield f"segmentation_latency_seconds_count{labels(stream=one.name)} {late.number}"


def _metrics(lines: Iterator[str]) -> _Answer:
    return _Answer("".join(f"{line}\n" for line in lines).encode(), CONTENT_TYPE)


def _ready(missing: list[str], *, ready: bool) -> _Answer:
    return _json({"missing": missing}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)


def page(path: str = "/") -> tuple[bytes, str]:
    """Returns the page that shows all streams, or its `/streams.css` or `/streams.js`, and the type of either."""
    name = "streams.html" if path == "/" else path.removeprefix("/")
    return files(__package__).joinpath("streams_page", name).read_bytes(), f"{_PAGE[Path(name).suffix]}; charset=utf-8"


def _changed(change: Callable[[], None]) -> _Answer:
    try:
        change()
    except SegmentationError as exc:
        return _error(HTTPStatus.CONFLICT, str(exc))
    return _json({"done": True})


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> _Answer:
    return _Answer(json.dumps(value).encode(), "application/json", status)


def _error(status: HTTPStatus, message: str) -> _Answer:
    return _json({"error": message}, status)


def _missing(there: str = "/streams") -> _Answer:
    return _error(HTTPStatus.NOT_FOUND, f"there is nothing here; see /, {there}, /metrics, /healthz, /readyz")


def _name(path: str, suffix: str) -> str | None:
    """Returns NAME of `/streams/NAME` with a suffix."""
    name = path.removeprefix("/streams/")
    return unquote(name.removesuffix(suffix)) if name != path and name.endswith(suffix) else None


def _split(address: str) -> tuple[bool, str, int]:
    """Returns whether metrics alone are served, host and port. Raises `ConfigError`."""
    mode, alone, place = address.rpartition("@")
    host, separator, port = place.rpartition(":")
    if not separator or not port.isdecimal() or mode != ("metrics" if alone else ""):
        raise ConfigError(
            f"status {address!r}: write HOST:PORT, or :PORT for this machine alone, such as :9100, or metrics@:PORT "
            "for health and metrics alone on all addresses"
        )
    return bool(alone), host.strip("[]").removesuffix(".") or ("0.0.0.0" if alone else "127.0.0.1"), int(port)


def is_local(host: str) -> bool:
    """Returns whether a host's name or number stands for this machine alone."""
    if host.removesuffix(".") == "localhost":
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(number, "ipv4_mapped", None) or number).is_loopback  # ::ffff:127.0.0.1
