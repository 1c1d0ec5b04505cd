"""CPU time of this process, or of a command, with all processes that it starts. For Linux."""

import os
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType

_MARK = "CPU_TIME_OF"  # environment variable, by which the processes of a command are known
_PAUSE = 0.1  # seconds between two looks; what a process does after the last one is not seen


def cpu_seconds() -> float:
    """CPU seconds of this process and of all that it has started, directly or not, whether they live or have ended."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError, IndexError):  # it has ended
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            spent[int(process)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            children[int(fields[1])].append(int(process))
    ours = [os.getpid()]
    for process in ours:  # which grows
        ours += children[process]
    return sum(spent[process] for process in ours)


class CpuTime:
    """Adds up, as a context manager, the CPU seconds of the processes that have `environment`, also those of daemons
    that nobody waits for."""

    def __init__(self) -> None:
        self._mark = token_hex(8)
        self.environment = os.environ | {_MARK: self._mark}
        self._ours: dict[tuple[str, str], bool] = {}  # by id and start of a process
        self._seconds: dict[tuple[str, str], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def seconds(self) -> float:
        """CPU seconds of all processes so far."""
        return sum(self._seconds.values())

    def __enter__(self) -> "CpuTime":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE):
            for process in filter(str.isdecimal, os.listdir("/proc")):
                with suppress(OSError, IndexError):  # it has ended
                    self._look(process)

    def _look(self, process: str) -> None:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        key = process, fields[19]
        if not self._ours.get(key):  # a process has its parent's environment before it runs a program
            self._ours[key] = f"{_MARK}={self._mark}".encode() in Path(f"/proc/{process}/environ").read_bytes()
        if self._ours[key]:
            self._seconds[key] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
