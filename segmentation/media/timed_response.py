"""Answers over HTTP that are read until a deadline, which single bytes don't put off."""

from __future__ import annotations

import io
import socket
import time
from http.client import HTTPResponse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class TimedResponse(HTTPResponse):
    """Raises `TimeoutError` where the answer takes longer than the connection's timeout, however many bytes come."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self._reader = _TimedReader(sock)
        self.fp: io.BufferedReader = io.BufferedReader(self._reader)

    def restart(self) -> None:
        """Gives what is read from now on as much time."""
        self._reader.restart()


class _TimedReader(io.RawIOBase):
    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._seconds = connection, connection.gettimeout() or 0.0
        self._file = connection.makefile("rb", buffering=0)  # keeps the connection open until it is read
        self.restart()

    def restart(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:  # also where bytes are there: a server may send without end
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        try:
            return self._file.readinto(buffer)
        finally:
            self._connection.settimeout(self._seconds)

    def close(self) -> None:
        self._file.close()
        super().close()
