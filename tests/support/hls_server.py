"""A live HLS stream on this machine: segments appear over time, and old ones leave the playlist."""

import io
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

import av
import barcode

_WINDOW = 4  # segments in the playlist


class HlsServer:
    """Sends MPEG-TS in segments of a second, whose pictures carry their number and the time as a bar code."""

    def __init__(self, *, size: tuple[int, int] = (160, 120), fps: int = 10) -> None:
        self.size, self.fps = size, fps
        self.silent = threading.Event()  # no segment is made meanwhile
        self.broken = threading.Event()  # requests are answered with an error meanwhile
        self.ended = threading.Event()  # the playlist says that nothing follows
        self.segments: list[bytes] = [self._segment(number) for number in range(3)]
        self._left = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._server.serve_forever, self._make)
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/live.m3u8"

    def __enter__(self) -> "HlsServer":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._left.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

    def _make(self) -> None:
        due = time.monotonic()
        while not self._left.wait(max(0.0, (due := due + 1.0) - time.monotonic())):
            if not (self.silent.is_set() or self.ended.is_set()):
                self.segments.append(self._segment(len(self.segments)))

    def _segment(self, number: int) -> bytes:
        file = io.BytesIO()
        with av.open(file, "w", format="mpegts") as container:
            options = {"preset": "ultrafast", "tune": "zerolatency"}
            stream = container.add_stream("libx264", rate=self.fps, options=options)
            stream.width, stream.height = self.size
            for place in range(number * self.fps, (number + 1) * self.fps):
                frame = barcode.drawn(place, self.size)
                frame.pts, frame.time_base = place, Fraction(1, self.fps)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return file.getvalue()

    def playlist(self) -> str:
        count = len(self.segments)
        first = max(0, count - _WINDOW)
        head = ["#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-TARGETDURATION:1", f"#EXT-X-MEDIA-SEQUENCE:{first}"]
        body = [line for number in range(first, count) for line in ("#EXTINF:1.0,", f"{number}.ts")]
        return "\n".join([*head, *body, *["#EXT-X-ENDLIST"] * self.ended.is_set(), ""])

    def _answer(self, path: str) -> tuple[int, bytes]:
        if self.broken.is_set():
            return 503, b""
        if path == "/live.m3u8":
            return 200, self.playlist().encode()
        number = int(path[1:].removesuffix(".ts"))
        known = range(max(0, len(self.segments) - 2 * _WINDOW), len(self.segments))
        return (200, self.segments[number]) if number in known else (404, b"")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answer(self.path)
                with suppress(OSError):  # the client has gone
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None: ...

        return Handler


def numbers(segments: Sequence[bytes]) -> list[int]:
    """The numbers of all frames."""
    found = []
    for segment in segments:
        with av.open(io.BytesIO(segment)) as file:
            found += [barcode.read(frame.to_ndarray(format="gray"))[0] for frame in file.decode(video=0)]
    return found
