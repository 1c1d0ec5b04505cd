"""The terminal: messages and the progress bar on stderr, results on stdout."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from segmentation.errors import OutputError, SegmentationError, printable

_console = Console(stderr=True, highlight=False, emoji=False)  # file names may hold rich's emoji codes


class ConsoleHandler(logging.Handler):
    """Writes log records as plain lines on stderr, above the progress bar if there is one.

    Each line is written once: several outputs of one input log the same facts about the input.
    """

    def __init__(self, program: str = "segmentation") -> None:
        super().__init__()
        self._program = program
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self._program}: {record.getMessage()}"
        if line not in self._said:
            self._said.add(line)
            say(line)


def say(line: str) -> None:
    """Writes a line on stderr, as `printable` returns it. A closed stderr is no error: the video is good without it."""
    with suppress(OSError):
        _console.print(printable(line), markup=False, soft_wrap=True)


def fail(error: SegmentationError | OSError) -> int:
    """Writes an error in one line on stderr; returns the exit code."""
    if isinstance(error, SegmentationError):
        say(f"segmentation: error: {error}")
        return error.exit_code
    say(f"segmentation: error: {error.filename or 'a file'}: {error.strerror or error}")
    return 1


@contextmanager
def progress_bar(name: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that shows the progress of the file `name`: (frames done, frames expected or 0).

    The bar is shown on a terminal alone, and is gone at the end.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[fps]:.1f} fps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_console, disable=quiet or not _console.is_terminal, transient=True) as bar:
        task = bar.add_task(printable(name), total=None, fps=0.0)

        def advance(done: int, expected: int) -> None:
            bar.update(task, completed=done, total=max(done, expected) or None, fps=bar.tasks[task].speed or 0.0)

        yield advance


@contextmanager
def results_on_stdout() -> Iterator[Callable[[str], None]]:
    """Yields a function that prints one result on stdout, and raises `OutputError` if that fails.

    Meanwhile file descriptor 1 leads to stderr: GPU libraries print to the process's stdout, where only results belong.
    """
    if sys.stdout is None:  # closed by the parent process
        yield lambda text: None
        return
    sys.stdout.flush()
    saved = os.dup(1)
    # A failed flush leaves text in a file object's buffer: this object, unlike sys.stdout, is closed here.
    stdout = open(saved, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115

    def print_result(text: str) -> None:
        try:
            print("\n".join(map(printable, text.splitlines())), file=stdout, flush=True)
        except OSError as exc:
            raise OutputError(f"standard output: cannot be written ({exc.strerror})") from exc

    with suppress(OSError):  # a closed stderr
        os.dup2(2, 1)
    try:
        yield print_result
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(saved, 1)
        with suppress(OSError):
            stdout.close()
