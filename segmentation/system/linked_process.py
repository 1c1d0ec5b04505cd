"""Processes of the program's own, with a connection over which both sides send objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing import Pipe

from segmentation.system.child_process import LOOK, ChildProcess, Fork


class LinkedProcess(ChildProcess):
    """See `ChildProcess`. Its first descriptor is that of a `Connection`, whose other end is `link`."""

    def __init__(
        self,
        module: str,
        *descriptors: int,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        quiet: bool = False,
        fork: Fork | None = None,
    ) -> None:
        """Arguments are those of `ChildProcess`. Raises `OSError`."""
        self.link, others = Pipe()
        try:
            with others:
                super().__init__(
                    module,
                    others.fileno(),
                    *descriptors,
                    arguments=arguments,
                    environment=environment,
                    quiet=quiet,
                    fork=fork,
                )
        except BaseException:
            self.link.close()
            raise

    def receive(self) -> object:
        """Waits for the next object. A process that stands still is ended, see `watched`.

        Raises `EOFError` or `OSError` when the process is dead.
        """
        return self.watched(self._attempt)

    def _attempt(self) -> object:
        if not self.link.poll(LOOK):
            raise TimeoutError
        return self.link.recv()
