"""Bytes of an input: of memory, of file objects, and of pipes, which can be read only once."""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

from segmentation.errors import one_line

_CHUNK = 1 << 16  # bytes: what a pipe holds by default on Linux
_POLL = 0.1  # seconds: a pipe in which nothing arrives is given up this late


class ByteSource(ABC):
    """An input that several demuxers read at the same time, each from its beginning."""

    def __init__(self, name: str) -> None:
        self.name = name  # in messages
        self.fault = ""  # the system's reason, where reading has failed: the bytes end there

    @property
    def seekable(self) -> bool:
        """Whether it can be read again at any time, from any place."""
        return True

    @abstractmethod
    def open(self) -> io.RawIOBase:
        """Returns a new reader at the beginning."""

    def expect(self, readers: int) -> None:  # noqa: B027  # files have nothing to keep
        """Says that so many more readers will be opened, or fewer. Without one to come, bytes that all have read go."""

    def end(self) -> None:  # noqa: B027
        """Lets readers that wait for bytes return, as at the end of the file."""


class FileSource(ByteSource):
    """A file object that can be sought. Its own position is of no importance, and changes."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        super().__init__(name)
        self._file = file
        self._lock = threading.Lock()

    def open(self) -> io.RawIOBase:
        return _FileReader(self)

    def read(self, at: int, size: int) -> bytes:
        """Returns up to `size` bytes from position `at`."""
        with self._lock:
            try:
                self._file.seek(at)
                return self._file.read(size)
            except OSError as exc:
                self.fault = one_line(exc)
                return b""

    def length(self) -> int:
        """Returns the number of bytes."""
        with self._lock:
            return self._file.seek(0, io.SEEK_END)


class PipeSource(ByteSource):
    """A file object that is read once. Keeps what a reader still needs: all until the last one has been opened."""

    def __init__(self, name: str, file: BinaryIO, stop: threading.Event) -> None:
        """Setting `stop` is like `end`."""
        super().__init__(name)
        self._stop, self._ended = stop, threading.Event()
        # A raw read returns what is there. Others wait until they have all that they were asked for.
        self._read = getattr(file, "read1", file.read)
        raw = getattr(file, "raw", file)
        # Of other files bytes may wait in a buffer, and Windows polls sockets alone.
        self._poll = select.poll() if isinstance(raw, io.FileIO) and hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(raw, select.POLLIN)
        self._kept = bytearray()
        self._begin = 0  # position of the first byte that is kept
        self._over = self._reading = False
        self._changed = threading.Condition()
        self._readers: WeakSet[_PipeReader] = WeakSet()
        self._expected: int | None = None

    @property
    def seekable(self) -> bool:
        return False

    def open(self) -> io.RawIOBase:
        with self._changed:
            assert self._begin == 0, "the beginning is kept until the last reader is opened"
            reader = _PipeReader(self)
            self._readers.add(reader)
            if self._expected is not None:
                self._expected -= 1
            return reader

    def expect(self, readers: int) -> None:
        with self._changed:
            self._expected = (self._expected or 0) + readers

    def end(self) -> None:
        self._ended.set()

    def read(self, at: int, size: int) -> bytes:
        """Returns up to `size` bytes from position `at`, none at the end. Waits until there is one."""
        with self._changed:
            while at == self._begin + len(self._kept) and not self._over:
                if self._reading:  # another thread waits for the same bytes
                    self._changed.wait()
                else:
                    self._fetch()
            first = at - self._begin
            return bytes(self._kept[first : first + size])

    def drop(self) -> None:
        """Drops the bytes that no reader needs any more."""
        with self._changed:
            if self._expected == 0 and self._readers:
                needless = min(reader.at for reader in self._readers) - self._begin
                del self._kept[:needless]
                self._begin += needless

    def _fetch(self) -> None:
        """Reads what has arrived. Other threads may read what is kept meanwhile."""
        self._reading = True
        self._changed.release()
        data = b""
        try:
            data = self._wait() or b""
        except OSError as exc:
            self.fault = one_line(exc)
        finally:
            self._changed.acquire()
            self._reading = False
            self._over = not data
            self._kept += data
            self._changed.notify_all()

    def _wait(self) -> bytes | None:
        while self._poll is not None and not self._poll.poll(_POLL * 1000):
            if self._ended.is_set() or self._stop.is_set():
                return None
        if self._ended.is_set() or self._stop.is_set():
            return None
        data: bytes | None = self._read(_CHUNK)
        return data


class _Reader(io.RawIOBase):
    """The part of a file object that PyAV asks for: `read`, `seek` and `tell`."""

    at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at


class _FileReader(_Reader):
    def __init__(self, source: FileSource) -> None:
        self._source = source

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(self.at, size)
        self.at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.at}
        self.at = offset + (base[whence] if whence in base else self._source.length())
        return self.at


class _PipeReader(_Reader):
    def __init__(self, source: PipeSource) -> None:
        self._source = source

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(self.at, _CHUNK if size < 0 else size)
        self.at += len(data)
        self._source.drop()
        return data


def is_fifo(path: str | Path) -> bool:
    """Returns whether `path` is a named pipe."""
    try:
        return stat.S_ISFIFO(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def pipe_opener(path: str, flags: int) -> int:
    """Opens a named pipe for `open()`, and nothing else that has taken its name: a file would be emptied.

    Waits for the reader or the writer. Raises `OSError`.
    """
    descriptor = os.open(path, flags & ~(os.O_CREAT | os.O_TRUNC))
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no named pipe any more", path)


def waitless_pipe(path: str, flags: int) -> int:
    """Opens a named pipe for reading, for `open()`, without a wait for its writer. Raises `OSError`.

    `PipeSource` waits for the bytes, and can be stopped.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def name_of(file: object) -> str:
    """Returns the name of a file object for messages, such as `<stdin>`."""
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else "<stream>"
