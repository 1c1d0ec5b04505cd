"""Processes of the program's own that work beside it, with a Python lock of their own: started, watched and ended."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

_PATIENCE = 1.0  # seconds that a process gets to end by itself


class ChildProcess:
    """A process that runs a module of this package. It ends by itself when the other end of its link is closed."""

    def __init__(self, module: str, *descriptors: int) -> None:
        """Starts `python -m module DESCRIPTOR...`, which inherits the descriptors. Raises `OSError`."""
        # In a group of its own it does not get the signals that a terminal sends to all in the foreground.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, descriptors)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            process_group=0,
            env=_environment(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def close(self, patience: float = _PATIENCE) -> None:
        """Waits until the process is gone, and kills it after so many seconds. The link to it was closed before."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def describe_death(self) -> str:
        """Says how the process ended, as the end of a sentence."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        status = self._process.returncode
        if status is None:
            return "has gone silent"
        if status >= 0:
            return f"has ended with code {status}"
        how = f"was ended by signal {-status} ({signal.strsignal(-status)})"
        return f"{how}, as happens where memory is full" if status == -signal.SIGKILL else how


def ignore_interrupts() -> None:
    """Leaves SIGINT and SIGTERM to the process that started this one, which handles them and ends this one in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _environment() -> dict[str, str]:
    """Returns the process's environment: modules are found as in this process, and NumPy starts no threads."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
