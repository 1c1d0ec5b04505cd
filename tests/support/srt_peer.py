"""The other end of SRT: srt-live-transmit as others run it, which listens."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pipes import has_port
from typing import IO, Any

from mpegts import send

_PROGRAM = "srt-live-transmit"
_PADDING = (b"\x47\x1f\xff\x10" + b"\xff" * 184) * 7  # packets of MPEG-TS
MISSING = shutil.which(_PROGRAM) is None


class SrtPeer:
    """Listens on a port of its own while it is up."""

    def __init__(self, options: str = "") -> None:
        """`options` such as "&passphrase=..."."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.address = f"srt://127.0.0.1:{self.port}"
        self._own = f"{self.address}?mode=listener{options}"

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Sends pictures with bar codes and AAC, 30 a second, to who calls."""
        with self._fed(_pictures):
            yield

    @contextmanager
    def padding(self) -> Iterator[None]:
        """Sends MPEG-TS without any content to who calls."""
        with self._fed(_padding):
            yield

    @contextmanager
    def receiving(self, path: Path) -> Iterator[None]:
        """Writes what a caller sends into a file."""
        with path.open("wb") as file, self._up(self._own, "file://con", stdout=file):
            yield

    @contextmanager
    def _fed(self, write: Callable[[IO[bytes], threading.Event], None]) -> Iterator[None]:
        ended = threading.Event()
        with self._up("-chunk:1316", "file://con", self._own, stdin=subprocess.PIPE) as process:
            thread = threading.Thread(target=write, args=(process.stdin, ended))
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()

    @contextmanager
    def _up(self, *arguments: str, **pipes: Any) -> Iterator["subprocess.Popen[bytes]"]:
        with subprocess.Popen([_PROGRAM, *arguments], stderr=subprocess.DEVNULL, **pipes) as process:
            try:
                while not has_port(self.port):
                    assert process.poll() is None
                    time.sleep(0.01)
                yield process
            finally:
                process.terminate()  # so it tells who called


class _Once:
    """What PyAV can write to, and not seek."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write


def _pictures(file: IO[bytes], ended: threading.Event) -> None:
    send(_Once(file), ended)


def _padding(file: IO[bytes], ended: threading.Event) -> None:
    while not ended.wait(0.01):
        file.write(_PADDING)
        file.flush()
