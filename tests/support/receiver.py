"""A receiver of results: an HTTP server that keeps what is posted, and fails as it is told to."""

import socket
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any


class Receiver:
    """Serves while the context lasts. `down` and `up` close the port and open it again."""

    def __init__(self, certificate: Path | None = None) -> None:
        """With a `certificate`, a file that has the key too, it speaks TLS."""
        self._certificate = certificate
        self.posts: list[bytes] = []  # that were taken
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.answers: list[int] = []  # status of the next answers; 200 once they are used up
        self.delay = 0.0  # seconds before each answer
        self.hang_up = False  # after each answer, without a word
        self._open: list[Any] = []
        self._port = 0

    @property
    def url(self) -> str:
        return f"http{'s' if self._certificate else ''}://127.0.0.1:{self._port}"

    @property
    def lines(self) -> list[str]:
        return b"".join(self.posts).decode().splitlines()

    def up(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver.connections += 1
                receiver._open.append(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(receiver.delay)
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    receiver.posts.append(body)
                    receiver.headers.append(dict(self.headers))
                    receiver.paths.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")
                self.close_connection = receiver.hang_up

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None: ...  # connections that `down` has closed

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self._open:
            with suppress(OSError):  # its other end has closed it
                connection.shutdown(socket.SHUT_RDWR)  # its files keep it open
        self._open.clear()

    def __enter__(self) -> "Receiver":
        self.up()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()
