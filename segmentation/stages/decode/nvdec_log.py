"""Finds out whether NVDEC's library reports damaged pictures.

PyNvVideoCodec names each damaged picture on C's standard output, and reports it in no other way. So that leads into a
pipe here, in which its lines are counted. All else that C code prints goes where it went before.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import select
import threading
from contextlib import suppress
from functools import cache

_SAID = b"Decode Error occurred"
_BY_LINE = 1  # _IOLBF of stdio.h


class DamageLog:
    """Counts the library's lines. Takes over C's standard output for the rest of the process, where that is glibc's."""

    def __init__(self) -> None:
        self._count = 0
        self._rest = b""  # the beginning of a line
        self._lock = threading.Lock()
        self._pipe, end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(end, False)  # a full pipe loses lines, but stops nobody
        if platform.libc_ver()[0] != "glibc":
            return
        libc = ctypes.CDLL(None)
        libc.fdopen.restype = ctypes.c_void_p
        ours = ctypes.c_void_p(libc.fdopen(end, b"w"))
        libc.setvbuf(ours, None, _BY_LINE, ctypes.c_size_t(0))
        stdout = ctypes.c_void_p.in_dll(libc, "stdout")
        before = stdout.value
        libc.fflush(ctypes.c_void_p(before))
        stdout.value = ours.value
        threading.Thread(target=self._pass_on, daemon=True).start()

        def restore() -> None:
            stdout.value = before
            libc.fflush(ours)
            self.count()
            _print(self._rest)

        atexit.register(restore)

    def count(self) -> int:
        """Returns how many damaged pictures the library has named so far."""
        with self._lock:
            try:
                *lines, self._rest = (self._rest + os.read(self._pipe, 1 << 20)).split(b"\n")
            except BlockingIOError:
                return self._count
            others = [line for line in lines if not line.startswith(_SAID)]
            self._count += len(lines) - len(others)
            count = self._count
        _print(b"".join(line + b"\n" for line in others))
        return count

    def _pass_on(self) -> None:
        while True:
            select.select([self._pipe], [], [])
            self.count()


def _print(text: bytes) -> None:
    """Writes to standard output, unless that is closed."""
    with suppress(OSError):
        os.write(1, text)


damage_log = cache(DamageLog)  # the process's only one
