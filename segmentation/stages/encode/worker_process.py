"""The process in which segments are encoded, as the process that has started it sees it."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from segmentation.errors import OutputError, one_line
from segmentation.stages.encode.worker_protocol import EncoderSetup, receive, send, socket_pair

_PATIENCE = 1.0  # seconds that the process gets to end by itself


class EncoderService:
    """Keeps the processes that encode segments from one file to the next."""

    def close(self) -> None:
        """Ends all idle processes."""


class EncoderProcess:
    """Runs `segment_worker`, which ends when this end of their socket is closed, and so when this process dies.

    Raises `OutputError` when the process cannot be started or has died.
    """

    def __init__(self, job: EncoderSetup, memory: int) -> None:
        """Returns at once; the process comes up meanwhile. `memory` is the file of the frames."""
        self._what = job.coding.what
        self._closed = False
        self._link, others = socket_pair()
        command = [sys.executable, "-P", "-m", "segmentation.stages.encode.segment_worker", str(others.fileno())]
        try:
            with others:
                # A group of its own: what a terminal sends to all in the foreground, as Ctrl-C, it does not get.
                self._process = subprocess.Popen(
                    command, pass_fds=[others.fileno()], stdin=subprocess.DEVNULL, process_group=0, env=_environment()
                )
        except OSError as exc:
            self._link.close()
            raise OutputError(f"{self._what}: no process can be started for it ({one_line(exc)})") from exc
        try:
            self.send(job, memory)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Any, *files: int) -> None:
        try:
            send(self._link, message, *files)
        except OSError as exc:
            raise self._death() from exc

    def receive(self, *, wait: bool) -> tuple[Any, int | None] | None:
        """The next message and its file; `None` if there is none yet, unless it may wait."""
        try:
            return receive(self._link, wait=wait)
        except BlockingIOError:
            return None
        except (EOFError, OSError) as exc:
            raise self._death() from exc

    def end(self) -> None:
        """Tells the process to end; who waits for a message waits no longer."""
        self._closed = True
        with suppress(OSError):  # it is gone already
            self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the process and waits until it is gone."""
        self.end()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._link.close()

    def _death(self) -> OutputError:
        """What has become of the process, for users."""
        if self._closed:
            return OutputError(f"{self._what}: it was closed")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        status = self._process.returncode
        how = "has gone silent" if status is None else f"has ended with code {status}"
        if status is not None and status < 0:
            how = f"was ended by signal {-status} ({signal.strsignal(-status)})"
            how += ", as happens where memory is full" if status == -signal.SIGKILL else ""
        return OutputError(f"{self._what}: the process that does it {how}; --encode x264 does without one")


def _environment() -> dict[str, str]:
    """For the process: modules are found where this one found them, and NumPy, which only looks on, has no threads."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
