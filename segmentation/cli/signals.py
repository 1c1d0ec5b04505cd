"""The effect of Ctrl-C (SIGINT), SIGTERM and a closed terminal (SIGHUP) on the command line."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

_TWICE = 0.3  # seconds


@dataclass(slots=True)
class Received:
    """Holds the first signal that has arrived, and the event that asks a run to finish its files."""

    stop: threading.Event = field(default_factory=threading.Event)
    _first: int | None = None
    _since: float = 0.0  # when it arrived

    @property
    def exit_code(self) -> int | None:
        """Returns 128 and the first signal's number, as shells count; None if no signal has arrived."""
        return None if self._first is None else 128 + self._first

    @property
    def again(self) -> str:
        """Returns what would end the process at once: the signal that has arrived, as its sender calls it."""
        first = signal.Signals(self._first or signal.SIGINT)
        return "another Ctrl-C" if first == signal.SIGINT else f"another {first.name}"

    def takes(self, number: int) -> bool:
        """Notes a signal. Returns whether it counts: the first one may come twice, at once.

        timeout(1) sends it to the process and then to its group, and so do parents that pass Ctrl-C on.
        """
        now = time.monotonic()
        if self._first is None:
            self._first, self._since = number, now
            return True
        return number != self._first or now - self._since >= _TWICE


@contextmanager
def finish_on_signals() -> Iterator[Received]:
    """Lets the first signal set `stop`, so that the run finishes its files. A second one raises KeyboardInterrupt.

    Signals that the process ignores from its start, as under nohup or in a script's background, stay ignored.
    """
    received = Received()

    def handle(number: int, frame: FrameType | None) -> None:
        if received.takes(number):
            if received.stop.is_set():
                raise KeyboardInterrupt
            received.stop.set()

    hangup = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # not on Windows
    with _handled((signal.SIGINT, signal.SIGTERM, *hangup), handle):
        yield received


@contextmanager
def interrupt_on_signals() -> Iterator[Received]:
    """Lets SIGINT and SIGTERM raise KeyboardInterrupt, so that locks and half-written files are cleared away."""
    received = Received()

    def handle(number: int, frame: FrameType | None) -> None:
        if received.takes(number):
            raise KeyboardInterrupt

    with _handled((signal.SIGINT, signal.SIGTERM), handle):
        yield received


@contextmanager
def _handled(numbers: Sequence[int], handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Installs a handler for those of these signals that are not ignored, and the previous handlers afterwards."""
    heeded = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
