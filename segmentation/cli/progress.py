"""The progress of a command: bars on a terminal, else a line from time to time."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from segmentation.cli.console import console, lines_are_plain, say
from segmentation.errors import counted, printable
from segmentation.frames.source import Source

INTERVAL = 30.0  # seconds between two lines where there is no terminal


class BatchProgress:
    """Shows the frames of each input under way; with several inputs also how many are done, and the time left for all.

    The bars are shown on a terminal alone, and are gone at the end. Elsewhere a line comes every `INTERVAL` seconds.
    Inputs may be under way on several threads.
    """

    def __init__(self, sources: Sequence[Source], *, quiet: bool, about: Callable[[], str] | None = None) -> None:
        """`about` returns a few words on those who do the work, if there is something to say."""
        self._about = about
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            _FramesColumn(about),
            TimeRemainingColumn(),
        )
        terminal = console.is_terminal and lines_are_plain() and not quiet
        self._bars = Progress(*columns, console=console, disable=not terminal, transient=True)
        self._lines = not terminal and not quiet
        self._lock = threading.Lock()
        self._sizes = _sizes(sources)
        self._count = len(sources)
        self._endless = any(source.is_live for source in sources)
        self._ended = 0
        self._parts: dict[Source, float] = {}  # of each input that has begun: how much of it is done, 0 to 1
        self._said = time.monotonic()
        self._begin: tuple[float, float] | None = None  # when the first frames were done, and how much of all that was
        several = self._count > 1
        self._all = self._bars.add_task(self._of_all, total=1.0, frames=False) if several else None

    def __enter__(self) -> "BatchProgress":
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, source: Source) -> tuple[Callable[[int, int], None], Callable[[], None]]:
        """Returns two functions: one shows an input's progress, (frames done, frames expected or 0), one its end."""
        name = printable(source.label.rpartition("/")[2])
        task = self._bars.add_task(name, total=None, frames=True)

        def advance(done: int, expected: int) -> None:
            self._bars.update(task, completed=done, total=max(done, expected) if expected else None)
            with self._lock:
                self._parts[source] = min(1.0, done / expected) if expected else 0.0
                self._show_all()
                shown = f"{done} of {expected} frames" if expected else counted(done, "frame")
                line = self._line(f"{name}: {shown}")
            if line:
                say(line)

        def end() -> None:
            self._bars.remove_task(task)
            with self._lock:
                self._end(source)

        return advance, end

    def add(self, source: Source) -> None:
        """Counts one more input, which is to come."""
        with self._lock:
            self._count += 1
            self._endless = self._endless or source.is_live
            self._sizes[source] = 1.0

    def skip(self, source: Source) -> None:
        """Counts an input as done that was not begun."""
        with self._lock:
            before = self._part_done()
            self._end(source)
            if self._begin is not None:  # it took no time
                self._begin = self._begin[0], self._begin[1] + self._part_done() - before

    def _end(self, source: Source) -> None:
        self._ended += 1
        self._parts[source] = 1.0
        self._show_all()

    @property
    def _of_all(self) -> str:
        return f"{self._ended} of {self._count}"

    def _show_all(self) -> None:
        if self._all is not None:
            self._bars.update(self._all, completed=self._part_done(), description=self._of_all)

    def _part_done(self) -> float:
        """Returns how much of all inputs is done, 0 to 1, by their sizes in bytes."""
        return sum(self._sizes[source] * part for source, part in self._parts.items()) / sum(self._sizes.values())

    def _line(self, of_one: str) -> str | None:
        """Returns the line that is due where there is no terminal."""
        now, part = time.monotonic(), self._part_done()
        begin, before = self._begin = self._begin or (now, part)  # loading the network, or building an engine, is over
        if not self._lines or now - self._said < INTERVAL:
            return None
        self._said = now
        done = part - before
        left = f", {_clock((now - begin) * (1 - part) / done)} left" if done > 0 and not self._endless else ""
        about = f" ({self._about()})" if self._about is not None else ""
        return f"segmentation: {self._of_all + ' inputs done, ' if self._count > 1 else ''}{of_one}{about}{left}"


class _FramesColumn(ProgressColumn):
    """Shows frames and speed of an input, and who works on it; nothing in the bar of all inputs."""

    def __init__(self, about: Callable[[], str] | None) -> None:
        super().__init__()
        self._about = about

    def render(self, task: Task) -> Text:
        """Returns such as `12/150 48.2 fps (2 of 2 workers)`."""
        if not task.fields["frames"]:
            return Text("")
        total = int(task.total) if task.total is not None else "?"
        about = f" ({self._about()})" if self._about is not None else ""
        return Text(f"{int(task.completed)}/{total} {task.speed or 0.0:.1f} fps{about}")


def _sizes(sources: Sequence[Source]) -> dict[Source, float]:
    """Returns each input's size in bytes; for those without one, such as addresses, the mean of the others."""
    sizes = [size for source in sources if (size := source.size)]
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    return {source: source.size or mean for source in sources}


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}"
