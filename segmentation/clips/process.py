"""A loader in a process of its own: its threads don't share the GIL of the training.

The arrays of batches go over without a pipe: in shared memory on the CPU, on a GPU in memory that both processes have
open. A pipe has requests for one batch after the other, and the answers.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Generator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

from segmentation.errors import BackendError, ConfigError, SegmentationError, one_line
from segmentation.imports import imported

if TYPE_CHECKING:
    from segmentation.clips.loader import ClipLoader, Numbered


class _Begin(NamedTuple):
    """The request to begin with a batch of an epoch. It has no answer."""

    epoch: int
    batch: int


class _Next(NamedTuple):
    """The request for the next batch; the answer is `None` behind the last one."""

    read: list[int]  # arrays that may be written to again, see `Maker.read`


class _End:
    """The request to decode nothing more. It has no answer."""


class LoaderProcess:
    """The other end of a process that makes the batches of a loader. The process ends with this object."""

    def __init__(self, loader: ClipLoader) -> None:
        """Raises `ConfigError` if the loader can't be sent to another process, `BackendError` without PyTorch."""
        try:
            imported("torch.multiprocessing")  # lets pipes take tensors
        except ModuleNotFoundError as exc:
            raise BackendError(f"process: the package {exc.name} is not installed; run: pip install torch") from exc
        self._maker = loader.maker
        self._iteration = 0  # the latest one
        self._owed = False  # whether an answer is to come
        context = multiprocessing.get_context("spawn")  # CUDA and threads don't survive a fork
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, loader), name="clips", daemon=True)
        try:
            self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as exc:
            what = "the dataset can't be sent there, whose labels must be a function of a module"
            raise ConfigError(f"process: {what} ({one_line(exc)})") from exc
        theirs.close()  # else its end would go unseen here

    def numbered(self, epoch: int, begin: int) -> Generator[Numbered, None, None]:
        """See `ClipLoader.numbered`. Raises what that raises in the process; `SegmentationError` if that has ended."""
        self._iteration += 1
        iteration = self._iteration
        if self._owed:  # to an iteration that was left on the way
            with suppress(Exception):
                self._receive(self._answer())
        self._send(_Begin(epoch, begin))
        self._ask()
        try:
            while (answer := self._answer()) is not None:
                self._ask()  # so that the next one is there when it is wanted
                self._receive(answer)
                yield answer
                if iteration != self._iteration:
                    raise ConfigError("process: another iteration has begun, and there is one at a time")
        finally:
            if self._owed and iteration == self._iteration:
                with suppress(SegmentationError):
                    self._send(_End())

    def _ask(self) -> None:
        self._send(_Next(self._maker.read()))
        self._owed = True

    def _send(self, request: _Begin | _Next | _End) -> None:
        try:
            self._pipe.send(request)
        except ConnectionError as exc:
            raise self._ended() from exc

    def _answer(self) -> Numbered | None:
        self._owed = False
        try:
            answer: Numbered | Exception | None = self._pipe.recv()
        except (EOFError, ConnectionError) as exc:
            raise self._ended() from exc
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _receive(self, answer: Numbered | None) -> None:
        """Puts arrays of this process in the place of what has come."""
        if answer is not None and answer.batch is not None:
            for name, array in answer.batch.items():
                answer.batch[name] = self._maker.received(array)

    def _ended(self) -> SegmentationError:
        self.process.join(10)
        return SegmentationError(f"the process of the clips has ended (exit code {self.process.exitcode})")


def _serve(pipe: Connection, loader: ClipLoader) -> None:
    """Answers requests until the other end of the pipe is closed, as it is when its process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C interrupts the training, whose end is seen here
    numbered: Generator[Numbered, None, None] | None = None
    with suppress(EOFError, ConnectionError):
        while True:
            request = pipe.recv()
            if isinstance(request, _Next):
                pipe.send(_answer(loader, numbered, request))
                continue
            if numbered is not None:
                numbered.close()
                loader.maker.write_unsent_again()
            numbered = None if isinstance(request, _End) else loader.numbered(request.epoch, request.batch)


def _answer(
    loader: ClipLoader, numbered: Generator[Numbered, None, None] | None, request: _Next
) -> Numbered | Exception | None:
    try:
        loader.maker.write_again(request.read)
        made = None if numbered is None else next(numbered, None)
        if made is not None and made.batch is not None:
            for name, array in made.batch.items():
                made.batch[name] = loader.maker.shared(array)
        return made
    except SegmentationError as exc:
        return exc
    except Exception as exc:  # a bug, whose place is not sent along
        exc.add_note(traceback.format_exc())
        return exc
