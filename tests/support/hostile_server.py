"""Servers on this machine that let nobody get anywhere: mute, without end, a byte at a time, or gone."""

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType

KINDS = ("mute", "endless", "drip", "reset")
_ENDLESS = {  # the beginning of an answer, and what follows it without end
    "rtsp": (b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n", b"X: y\r\n" * 1000),
    # The handshake's zeros, and acknowledgements (RTMP 1.0 of Adobe, 5.4.3).
    "rtmp": (b"\x03" + bytes(3072), bytes.fromhex("020000000000040300000000" + "00000000") * 100),
    "http": (b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
    "hls": (b"HTTP/1.1 200 OK\r\n\r\n#EXTM3U\n#EXT-X-TARGETDURATION:1\n", b"#EXTINF:1.0,\n0.ts\n" * 1000),
    "trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-Y: z\r\n" * 1000),
}


class HostileServer:
    """Takes connections while the context lasts. `clients` are those that there were."""

    def __init__(self, scheme: str, kind: str, pause: float = 0.05) -> None:
        """`scheme` is one of `_ENDLESS`, and `kind` one of `KINDS`.

        A server that drips pauses for so many seconds before each byte.
        """
        self._beginning, self._more = _ENDLESS[scheme]
        self._scheme, self._kind, self._pause = scheme, kind, pause
        self._ended = threading.Event()
        self.met = threading.Event()  # somebody has sent something
        self.clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        protocol, name = (scheme, "cam") if scheme in ("rtsp", "rtmp") else ("http", "cam.m3u8")
        self.url = f"{protocol}://127.0.0.1:{self._listener.getsockname()[1]}/live/{name}"

    def __enter__(self) -> "HostileServer":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        for one in (self._listener, *self.clients):
            with suppress(OSError):  # the other side was faster
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                self.clients.append(self._listener.accept()[0])
                threading.Thread(target=self._talk, args=(self.clients[-1],), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with suppress(OSError):  # it has gone
            client.recv(4096)
            self.met.set()
            if self._kind == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            elif self._kind == "endless":
                client.sendall(self._beginning)
                while not self._ended.is_set():
                    client.sendall(self._more)
            elif self._kind == "drip":
                for byte in self._beginning + self._more * 1000:
                    if self._ended.wait(self._pause):
                        return
                    client.sendall(bytes([byte]))
            else:
                self._ended.wait()
