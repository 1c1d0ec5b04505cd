"""Processes of the program's own that work beside it, with a GIL of their own: started, watched and ended."""

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Generic, Protocol, TypeAlias, TypeVar

from segmentation.errors import InternalError, SegmentationError, one_line

_PATIENCE = 1.0  # seconds that a process gets to end by itself
_KILLED = 5.0  # seconds that one that is killed is waited for
LOOK = 1.0  # seconds after which `attempt` of `ChildProcess.watched` has to return
STILL = 60  # times that a process may be waited for so long, and use no CPU time
_OF_PROCESS = 2  # CPUCLOCK_SCHED of Linux: the time of all threads


T = TypeVar("T")


class StartedProcess(Protocol):
    """See `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...

    def kill(self) -> None: ...


Fork: TypeAlias = Callable[[Sequence[int], Mapping[str, str], tuple[int, int]], StartedProcess]  # see `ForkServer`


class ChildProcess:
    """A process that runs a module of this package. It ends by itself when the other end of its link is closed."""

    def __init__(
        self,
        module: str,
        *descriptors: int,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        quiet: bool = False,
        fork: Fork | None = None,
    ) -> None:
        """Starts `python -m module DESCRIPTOR... ARGUMENT...`, which inherits the descriptors.

        `environment` has variables besides those of this process. With `quiet`, nothing that it writes is shown, and
        the last line is a part of `describe_death`. Without arguments it may be forked, as the module's `main`.
        Raises `OSError`.
        """
        if os.name == "nt":
            raise OSError(errno.ENOTSUP, "processes beside this one need Linux or macOS")
        self._written = _unnamed_file() if quiet else None  # `close` closes it
        self._stood_still = False
        self._process: StartedProcess
        if fork is not None:
            assert not arguments
            outputs = (1, 2) if self._written is None else (self._written.fileno(),) * 2
            self._process = fork(descriptors, environment or {}, outputs)
            return
        # In a group of its own it does not get the signals that a terminal sends to all in the foreground.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, descriptors), *arguments],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=self._written,
            stderr=self._written,
            process_group=0,
            env=child_environment() | dict(environment or {}),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_started(self) -> bool:
        """Returns whether the process is, or was, there: a `ForkServer` may not have come to it."""
        try:
            return self.pid > 0
        except ProcessLookupError:
            return False

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def watched(self, attempt: Callable[[], T]) -> T:
        """Returns what `attempt` returns. It raises `TimeoutError` after `LOOK` seconds, and is called again.

        A process that uses no CPU time meanwhile stands still, and is killed, by which `attempt` fails. One that is
        slow, or waits for a core, uses some.
        """
        still, used = 0, self._cpu_time()
        while True:
            try:
                return attempt()
            except TimeoutError:
                before, used = used, self._cpu_time()
                still = still + 1 if used is not None and used == before else 0
                if still >= STILL:
                    self._stood_still = True
                    self._process.kill()

    def _cpu_time(self) -> int | None:
        """Returns the nanoseconds that the process has used, as clock_getcpuclockid(3) finds them; else `None`."""
        try:
            return time.clock_gettime_ns((~self.pid << 3) | _OF_PROCESS)
        except OSError:  # it has ended, or this is not Linux
            return None

    def kill(self) -> None:
        """Ends the process at once, without waiting for it."""
        self._process.kill()

    def close(self, patience: float = _PATIENCE) -> None:
        """Waits until the process is gone, and kills it after so many seconds. The link to it was closed before."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # a driver of the system that hangs may keep it
                self._process.wait(_KILLED)
        if self._written is not None:
            self._written.close()

    def describe_death(self, patience: float = _PATIENCE) -> str:
        """Says how the process ended, as the end of a sentence. It gets so many seconds to end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return self._how() + self._last_words()

    def _last_words(self) -> str:
        """Returns the last line that the process has written, in parentheses; "" for none."""
        if self._written is None:
            return ""
        self._written.seek(0)
        lines = self._written.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" ({one_line(last)})" if last else ""

    def _how(self) -> str:
        status = self._process.returncode
        if self._stood_still:
            return f"stood still for {STILL * LOOK:g} s and was ended"
        if status is None:
            return "has gone silent"
        if status >= 0:
            return f"has ended with code {status}"
        how = f"was ended by signal {-status} ({signal.strsignal(-status)})"
        return f"{how}, as happens where memory is full" if status == -signal.SIGKILL else how


class SharedProcess(Protocol):
    """A process that several runs may use at once."""

    def is_alive(self) -> bool: ...

    def end(self) -> None:
        """Makes the process end."""

    def close(self) -> None:
        """Waits until the process has ended, and frees what belongs to it."""


W = TypeVar("W", bound=SharedProcess)
E = TypeVar("E", bound=BaseException)


class SharedProcesses(Generic[W]):
    """Processes that runs share: each run gets the one that has the fewest. For any number of threads."""

    def __init__(self, start: Callable[[], W], most: int) -> None:
        """`start` starts a process, of which there are `most` at a time."""
        self._start, self._most = start, most
        self._lock = threading.Lock()
        self._alive: list[W] = []
        self._runs: Counter[W] = Counter()  # also of processes that have died

    @contextmanager
    def lent(self) -> Iterator[W]:
        """A process for one run: a new one while there may be more and none is idle. Raises what `start` raises."""
        with self._lock:
            process = self._next()
            self._runs[process] += 1
        try:
            yield process
        finally:
            with self._lock:
                self._runs[process] -= 1
                over = not self._runs[process] and process not in self._alive
                if over:
                    del self._runs[process]
            if over:
                process.close()

    def close(self) -> None:
        """Ends all processes, at the same time."""
        with self._lock:
            processes, self._alive = self._alive, []
        for process in processes:
            process.end()
        for process in processes:
            process.close()

    def _next(self) -> W:
        for dead in [process for process in self._alive if not process.is_alive()]:
            self._alive.remove(dead)
            if not self._runs[dead]:  # else its last run closes it
                del self._runs[dead]
                dead.close()
        free = min(self._alive, key=lambda process: self._runs[process], default=None)
        if free is None or (self._runs[free] and len(self._alive) < self._most):
            free = self._start()
            self._alive.append(free)
        return free


def _unnamed_file() -> IO[bytes]:
    """Returns an empty file. One in a folder would hide that descriptors are used up behind another error."""
    return os.fdopen(os.memfd_create("output"), "w+b") if hasattr(os, "memfd_create") else TemporaryFile()


def with_traceback(exc: E, process: str) -> E:
    """Returns an exception of this process, called `process`; one that was not foreseen has a note with its traceback.

    Else the traceback would be lost on the way to another process.
    """
    if isinstance(exc, InternalError) or not isinstance(exc, SegmentationError | OSError | KeyboardInterrupt):
        exc.add_note(f"In the {process} process:\n{''.join(traceback.format_exception(exc))}".rstrip())
    return exc


def picklable(exc: BaseException) -> BaseException:
    """Returns the exception, or a `RuntimeError` with its text and notes where it can't be pickled."""
    try:
        copy = pickle.loads(pickle.dumps(exc))
    except Exception:
        copy = None
    if type(copy) is type(exc):
        return exc
    plain = RuntimeError(f"{type(exc).__name__}: {exc}")
    for note in getattr(exc, "__notes__", ()):
        plain.add_note(note)
    return plain


def ignore_interrupts() -> None:
    """Leaves SIGINT and SIGTERM to the process that started this one, which handles them and ends this one in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def child_environment() -> dict[str, str]:
    """Returns the process's environment: modules are found as in this process, and NumPy starts no threads."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
