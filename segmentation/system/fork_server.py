"""Processes that are forked from one that has imported their module.

That one, `python -m segmentation.system.fork_server DESCRIPTOR MODULE`, has a single thread and no GPU's context, so
that all it holds survives a fork. It leaves PyTorch to those forked: each imports it beside the start of its GPU, which
takes as long. Python's own fork server would run the user's program again in each process.
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
from typing import ClassVar, NoReturn
from weakref import finalize

from segmentation.system.child_process import ChildProcess
from segmentation.system.imports import imported

_MOST_BYTES = 1 << 16  # of a request
_MOST_DESCRIPTORS = 16  # with one
_NUMBER = struct.Struct("q")  # a process's id, and the code with which it has ended


class ForkServer:
    """Forks processes that run `main` of one module, which gets the descriptors. It is closed after they have ended.

    The process behind it is started again when it has died.
    """

    _early: ClassVar[tuple[str, _Server] | None] = None

    def __init__(self, module: str) -> None:
        """Starts the process, which imports the module. One that can't be imported fails where it is used.

        Raises `OSError`.
        """
        self._module = module
        early, ForkServer._early = ForkServer._early, None
        self._server = early[1] if early is not None and early[0] == module else _Server(module)

    @staticmethod
    def start_early(module: str) -> None:
        """Starts the process of the next server for a module."""
        if ForkServer._early is None:
            with suppress(OSError):
                server = _Server(module)
                atexit.register(server.kill)  # if nobody takes it
                ForkServer._early = module, server

    @property
    def pid(self) -> int:
        return self._server.pid

    def __call__(
        self, descriptors: Sequence[int], environment: Mapping[str, str], outputs: tuple[int, int]
    ) -> ForkedProcess:
        """Asks for a process, without waiting for it, in the folder that is the current one now.

        `outputs` are its standard output and error. Raises `OSError`.
        """
        reader, writer = os.pipe()
        process = ForkedProcess(reader)
        folder = None
        try:
            folder = os.open(".", os.O_PATH)
            self._send(pickle.dumps(environment), [writer, *outputs, folder, *descriptors])
        finally:
            os.close(writer)
            if folder is not None:
                os.close(folder)
        return process

    def _send(self, request: bytes, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._server.link, [request], descriptors)
        except ConnectionError:  # it has died
            self._server.close()
            self._server = _Server(self._module)
            socket.send_fds(self._server.link, [request], descriptors)

    def kill(self) -> None:
        """Ends the process at once, as where it is still importing."""
        self._server.kill()

    def close(self) -> None:
        self._server.close()


class _Server(ChildProcess):
    """The process from which others are forked."""

    def __init__(self, module: str) -> None:
        self.link, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with others:
            super().__init__(__name__, others.fileno(), arguments=[module], quiet=True)

    def close(self, patience: float = 0) -> None:
        self.link.close()
        super().close(patience)


class ForkedProcess:
    """See `StartedProcess`. The server may not have come to it yet."""

    def __init__(self, status: int) -> None:
        """`status` is of a pipe from the server, which writes the process's id and, at the end, its code."""
        self.returncode: int | None = None
        self._status = status
        finalize(self, os.close, status)
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
            while self.returncode is None and wait([self._status], 0):
                data = os.read(self._status, _NUMBER.size)
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
            wait([self._status], left)
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
    with suppress(Exception):
        imported(module)
    gc.freeze()  # pages of objects that no collection visits stay shared
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
        environment = pickle.loads(request)
        try:
            pid = os.fork()
        except OSError as exc:  # others go on; `status`, which is closed, says that this one is not there
            with suppress(OSError):
                os.write(others[1], f"no process can be forked ({exc.strerror})\n".encode())
            for one in descriptors:
                os.close(one)
            continue
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
        output, error, folder, *given = descriptors
        for place, one in ((1, output), (2, error)):
            os.dup2(one, place)
            os.close(one)
        os.fchdir(folder)
        os.close(folder)
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
    os._exit(0)  # Python would take down libraries that have nothing to finish
