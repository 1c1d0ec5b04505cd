"""The terminal: messages and the progress bar on stderr, results on stdout. Imports no library but rich."""

from __future__ import annotations  # types of options need NumPy, which `segmentation doctor` may find missing

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.console import Console

from segmentation.errors import InternalError, OutputError, ReaderGone, SegmentationError, printable, reported

if TYPE_CHECKING:
    from segmentation.options.command import LogFormat

log = logging.getLogger(__name__)


_EACH_TIME = "segmentation.live.reader"  # the logger whose lines may be said again: each loss is one
console = Console(stderr=True, highlight=False, emoji=False)  # file names may hold rich's emoji codes
if console.width < 1:  # as COLUMNS=0 has it, with which rich prints nothing
    console.width = 80
_format: LogFormat = "text"  # of lines, see `lines_as`


class ConsoleHandler(logging.Handler):
    """Writes log records as plain lines on stderr, above the progress bar if there is one.

    Each line is written once: several outputs of one input log the same facts about the input. The traceback of a
    record's exception follows where details are wanted.
    """

    def __init__(self, program: str = "segmentation") -> None:
        super().__init__()
        self._program = program
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self._program}: {record.getMessage()}"
        if line not in self._said or record.name == _EACH_TIME:
            self._said.add(line)
            say(line, record.levelno)
        if record.exc_info and record.exc_info[1] is not None:
            _say_where(record.exc_info[1])


@contextmanager
def lines_as(form: LogFormat) -> Iterator[None]:
    """Sets the format of the lines on stderr: as they are, after time and level, or as JSON objects."""
    global _format
    before, _format = _format, form
    try:
        yield
    finally:
        _format = before


def lines_are_plain() -> bool:
    """Returns whether lines are for people, not for programs that collect them."""
    return _format == "text"


def say(line: str, level: int = logging.INFO) -> None:
    """Writes a line on stderr, as `printable` returns it. A closed stderr is no error: the video is good without it."""
    text = printable(line)
    if _format != "text":
        time, name = datetime.now().astimezone().isoformat(timespec="milliseconds"), logging.getLevelName(level).lower()
        if _format == "json":
            text = json.dumps({"time": time, "level": name, "message": text}, ensure_ascii=False)
        else:
            text = f"{time} {name} {text}"
    with suppress(OSError):
        console.print(text, markup=False, soft_wrap=True)


def megabytes(size: int) -> str:
    """Returns a number of bytes for a line, to two digits."""
    return f"{size / 1e6:.2g} MB" if size < 10_000_000 else f"{size / 1e6:.0f} MB"


def fail(error: SegmentationError, program: str = "segmentation") -> int:
    """Writes an error in one line on stderr; returns the exit code. A closed pipe is the reader's wish, no error."""
    if not isinstance(error, ReaderGone):
        say(f"{program}: error: {error}", logging.ERROR)
    if isinstance(error, InternalError):
        _say_where(error)
    return error.exit_code


def _say_where(error: BaseException) -> None:
    """Writes the traceback of an error where details are wanted (-v)."""
    if log.isEnabledFor(logging.INFO):
        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line)


@contextmanager
def threads_reported() -> Iterator[None]:
    """Says in one line that a thread has ended by an exception, where Python would print the traceback."""

    def report(ended: threading.ExceptHookArgs) -> None:
        if isinstance(ended.exc_value, Exception):
            name = "a thread" if ended.thread is None else f"the thread {ended.thread.name}"
            log.warning("%s", reported(ended.exc_value, name), exc_info=ended.exc_value)

    before, threading.excepthook = threading.excepthook, report
    try:
        yield
    finally:
        threading.excepthook = before


class _Main(Protocol):
    def __call__(self, arguments: Sequence[str] | None = None) -> int: ...


def checks_stdout(main: _Main) -> _Main:
    """Wraps a command, so that its exit code shows whether all that it has printed could be written.

    Python would find out at the process's end, and print a traceback.
    """

    @wraps(main)
    def checked(arguments: Sequence[str] | None = None) -> int:
        try:
            try:
                return main(arguments)
            finally:  # also after the exit of --help
                if sys.stdout is not None:
                    _flush(sys.stdout)
        except OutputError as exc:
            return fail(exc)

    return checked


def _flush(file: TextIO) -> None:
    """Writes what is in a file object's buffer, else drops it. Raises `OutputError`."""
    try:
        file.flush()
    except OSError as exc:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), file.fileno())
        raise _unwritable(exc) from exc


def put_out(text: str) -> None:
    """Prints text on standard output as it is. Raises `OutputError`."""
    _print(text, sys.stdout)


def _print(text: str, file: TextIO | None) -> None:
    try:
        print(text, file=file, flush=True)
    except OSError as exc:
        raise _unwritable(exc) from exc


def _unwritable(exc: OSError) -> OutputError:
    """Returns the error of standard output."""
    if isinstance(exc, BrokenPipeError):
        return ReaderGone("standard output: its reader has closed it")
    return OutputError(f"standard output: cannot be written ({exc.strerror})")


@dataclass(frozen=True, slots=True)
class Stdout:
    """Holds the process's standard output, None where the parent process has closed it."""

    file: TextIO | None

    def print(self, text: str) -> None:
        """Prints one result. Raises `OutputError` if that fails."""
        if self.file is not None:
            _print("\n".join(map(printable, text.splitlines())), self.file)

    @property
    def open_file(self) -> TextIO:
        """The file for text; its `buffer` takes bytes. Raises `OutputError`."""
        if self.file is None:
            raise OutputError("standard output: is closed")
        return self.file


@contextmanager
def results_on_stdout() -> Iterator[Stdout]:
    """Yields the process's standard output.

    Meanwhile file descriptor 1 leads to stderr: GPU libraries print to the process's stdout, where only results belong.
    """
    if sys.stdout is None:  # closed by the parent process
        yield Stdout(None)
        return
    sys.stdout.flush()
    saved = os.dup(1)
    # A failed flush leaves text in a file object's buffer: this object, unlike sys.stdout, is closed here.
    stdout = open(saved, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115

    with suppress(OSError):  # a closed stderr
        os.dup2(2, 1)
    try:
        yield Stdout(stdout)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(saved, 1)
        with suppress(OSError):
            stdout.close()
