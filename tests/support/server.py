"""A web server on this machine, for tests of inputs that are addresses."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread


class Server(ThreadingHTTPServer):
    """Serves the files of a folder, in parts. Further paths:

    `/to/ADDRESS` redirects there, `/status/N` answers with that status, `/stall/N/FILE` sends the first N bytes and
    then nothing more, `/short/N/FILE` closes the connection after N bytes, `/whole/FILE` sends no parts.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.ended = Event()
        self.asked: list[tuple[str, dict[str, str]]] = []  # paths and headers
        self.claimed = ""  # as the size of each file, instead of its own

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of clients that go away."""


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server that runs while the context lasts."""
    with Server(folder) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *values: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        path = re.sub(r"^http://[^/]+", "", self.path)  # a proxy is asked for the whole address
        _, kind, *rest = path.split("/", 2 if path.startswith(("/to/", "/whole/")) else 3)
        if kind == "to":
            self.send_response(302)
            self.send_header("Location", rest[0])
            self.end_headers()
        elif kind == "status":
            self.send_error(int(rest[0]))
        elif kind in ("stall", "short"):
            self._send(rest[1], int(rest[0]), stall=kind == "stall", parts=False)
        else:
            self._send(rest[0] if kind == "whole" else path[1:], None, stall=False, parts=kind != "whole")

    def _send(self, name: str, count: int | None, *, stall: bool, parts: bool) -> None:
        file = self.server.folder / name
        if not file.is_file():
            self.send_error(404)
            return
        data = file.read_bytes()
        first = int(re.sub(r"\D", "", self.headers.get("Range", "0"))) if parts else 0
        self.send_response(206 if parts else 200)
        if parts:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", self.server.claimed or str(len(data) - first))
        self.end_headers()
        self.wfile.write(data[first:] if count is None else data[first:count])
        while stall and not self.server.ended.is_set():
            time.sleep(0.05)
