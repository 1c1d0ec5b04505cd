"""Previews in a process of their own, so that an input that crashes a decoder takes the server nowhere."""

from __future__ import annotations

import logging
import sys
import threading
from multiprocessing.connection import Connection
from typing import cast

from segmentation.errors import BackendError, SegmentationError, one_line, reported
from segmentation.options.keywords import FrameOptions, Options
from segmentation.system.child_process import ignore_interrupts
from segmentation.system.linked_process import LinkedProcess
from segmentation.web.preview import InputFacts, Previews, View
from segmentation.web.store import StoredInput

_LOOK = 20.0  # seconds between looks for videos that nobody asks for any more


class PreviewProcess:
    """See `Previews`. Any number of threads may call; they wait for each other. A process that dies is replaced."""

    def __init__(self, limits: FrameOptions) -> None:
        """`limits` are options that hold for all inputs. The process starts with the first request."""
        self._limits = limits
        self._lock = threading.Lock()
        self._process: LinkedProcess | None = None
        self.rendered = 0  # frames and masks

    def about(self, source: StoredInput) -> InputFacts:
        """See `Previews.about`. Raises `SegmentationError` also where the process dies, as all requests do."""
        return cast(InputFacts, self._ask("about", source))

    def frame(
        self, source: StoredInput, seconds: float, view: View, options: Options, width: int, project: str
    ) -> bytes:
        """See `Previews.frame`."""
        return cast(bytes, self._ask("frame", source, seconds, view, options, width, project))

    def mask(self, source: StoredInput, options: Options) -> bytes:
        """See `Previews.mask`."""
        return cast(bytes, self._ask("mask", source, options))

    def close(self) -> None:
        """Ends the process, also during a request."""
        if process := self._process:
            process.kill()
        with self._lock:
            self._end()

    def _ask(self, name: str, source: StoredInput, *arguments: object) -> object:
        with self._lock:
            process = self._started()
            try:
                process.link.send((name, source.path, *arguments))
                answer = process.receive()
            except (EOFError, OSError):
                how = process.describe_death()
                self._end()
                raise SegmentationError(f"{source.name}: the process that reads it {how}") from None
            self.rendered += isinstance(answer, bytes)
        if isinstance(answer, SegmentationError):
            raise type(answer)(str(answer).replace(source.path, source.name))
        return answer

    def _started(self) -> LinkedProcess:
        if self._process is not None and not self._process.is_alive():
            self._end()
        if self._process is None:
            try:
                self._process = LinkedProcess("segmentation.web.preview_process", quiet=True)
            except OSError as exc:
                raise BackendError(f"no process can be started ({one_line(exc)})") from exc
            self._process.link.send(self._limits)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.link.close()
            self._process.close()
            self._process = None


def main() -> None:
    """Answers requests until the server closes the link."""
    ignore_interrupts()
    logging.disable()  # what is written is kept in memory, for the last words of one that crashes
    with Connection(int(sys.argv[1])) as link:
        previews = Previews(cast(FrameOptions, link.recv()))
        while True:
            while not link.poll(_LOOK):
                previews.close_idle()
            try:
                name, path, *arguments = cast(tuple[str, ...], link.recv())
                link.send(_answer(previews, name, path, arguments))
            except (EOFError, BrokenPipeError):
                return


def _answer(previews: Previews, name: str, path: str, arguments: list[str]) -> object:
    try:
        return getattr(previews, name)(path, *arguments)
    except Exception as exc:
        return reported(exc)


if __name__ == "__main__":
    main()
