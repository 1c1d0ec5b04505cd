"""Processes that are forked from one that has imported their modules, which is the longest part of a start.

That one, `python -m segmentation.system.fork_server DESCRIPTOR MODULE`, has a single thread and no GPU's context, so
that all it holds survives a fork. Python's own fork server would run the user's program again in each process.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import wait
from typing import IO, ClassVar, NoReturn

from segmentation.system.child_process import ChildProcess
from segmentation.system.imports import imported

_MOST_BYTES = 1 << 16  # of a request
_MOST_DESCRIPTORS = 16  # with one
_NUMBER = struct.Struct("q")  # a process's id, and the code with which it has ended


class ForkServer(ChildProcess):
    """The process from which others are forked. It is closed after these have ended."""

    _early: ClassVar[ForkServer | None] = None

    def __init__(self, module: str) -> None:
        """Starts it. It imports a module first; one that can't be imported fails where it is used. Raises `OSError`."""
        self._link, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with others:
            super().__init__(__name__, others.fileno(), arguments=[module], quiet=True)

    @classmethod
    def start_early(cls, module: str) -> None:
        """Starts one for the program to take later, unless there is one."""
        if cls._early is None:
            with suppress(OSError):
                cls._early = cls(module)
                atexit.register(cls._early.kill)  # if nobody takes it

    @classmethod
    def taken(cls, module: str) -> ForkServer:
        """Returns the one that was started early, once, else a new one. Raises `OSError`."""
        early, cls._early = cls._early, None
        return early or cls(module)

    def fork(
        self,
        libraries: Sequence[str],
        module: str,
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        written: IO[bytes],
    ) -> ForkedProcess:
        """Asks for a process, without waiting for it: `main` of the module gets the descriptors.

        The server imports `libraries` before. Raises `OSError`.
        """
        reader, writer = os.pipe()
        process = ForkedProcess(os.fdopen(reader, "rb", buffering=0))
        try:
            request = pickle.dumps((libraries, module, environment))
            socket.send_fds(self._link, [request], [writer, written.fileno(), *descriptors])
        finally:
            os.close(writer)
        return process

    def close(self, patience: float = 0) -> None:
        self._link.close()
        super().close(patience)


class ForkedProcess:
    """See `StartedProcess`. The server may not have come to it yet."""

    def __init__(self, status: IO[bytes]) -> None:
        """`status` is a pipe from the server, which writes the process's id and, at the end, its code."""
        self.returncode: int | None = None
        self._status = status
        self._pid: int | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Raises `ProcessLookupError` while there is none."""
        self.poll()
        if self._pid is None:
            raise ProcessLookupError
        return self._pid

    def poll(self) -> int | None:
        """Returns the code with which the process has ended, `None` while it lives."""
        with self._lock:
            while self.returncode is None and wait([self._status.fileno()], 0):
                data = self._status.read(_NUMBER.size)
                if not data:  # the server has died, and nobody else would notice this process's end
                    self._kill()
                    self.returncode = -signal.SIGKILL
                elif self._pid is None:
                    (self._pid,) = _NUMBER.unpack(data)
                else:
                    (self.returncode,) = _NUMBER.unpack(data)
            return self.returncode

    def wait(self, timeout: float) -> int:
        """Waits until the process is gone. Raises `subprocess.TimeoutExpired`."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("forked", timeout)
            wait([self._status.fileno()], left)
        return code

    def kill(self) -> None:
        """Ends the process at once. One that the server has not come to is forgotten."""
        if self.poll() is None:
            with self._lock:
                self._kill()

    def _kill(self) -> None:
        if self._pid is None:
            self.returncode = -signal.SIGKILL
        else:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


def main(descriptor: int, module: str) -> None:
    """Forks a process for each request, until the other end of the link is closed."""
    _import(module)
    link = socket.socket(fileno=descriptor)
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    forked: dict[int, int] = {}  # `status` by process
    while True:
        if ended in wait([link, ended]):
            os.read(ended, _MOST_BYTES)
            _reap(forked)
            continue
        request, descriptors, _, _ = socket.recv_fds(link, _MOST_BYTES, _MOST_DESCRIPTORS)
        if not request:
            return
        status, *others = descriptors
        libraries, module, environment = pickle.loads(request)
        _import(*libraries)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (descriptor, ended, end, status, *forked.values()):
                os.close(one)
            _become(module, environment, others)
        for one in others:
            os.close(one)
        forked[pid] = status
        _tell(status, pid)


def _import(*modules: str) -> None:
    for module in modules:
        with suppress(Exception):
            imported(module)
    gc.freeze()  # pages of objects that no collection visits stay shared


def _reap(forked: dict[int, int]) -> None:
    """Passes on the codes of the processes that have ended."""
    for process, status in list(forked.items()):
        pid, code = os.waitpid(process, os.WNOHANG)
        if pid:
            _tell(status, os.waitstatus_to_exitcode(code))
            os.close(forked.pop(process))


def _tell(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for the process, whose own link is closed too
        os.write(status, _NUMBER.pack(number))


def _become(module: str, environment: Mapping[str, str], descriptors: Sequence[int]) -> NoReturn:
    """Makes this process the one that was asked for."""
    code = 1
    try:
        written, *given = descriptors
        for output in (1, 2):
            os.dup2(written, output)
        os.close(written)
        os.environ.update(environment)
        import_module(module).main(*given)
        code = 0
    except BaseException:  # it must not become a second server
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
