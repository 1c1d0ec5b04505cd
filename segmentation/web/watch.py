"""Makes a job of each complete video or picture that comes into a folder, once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from segmentation.errors import InputError, OutputError, SegmentationError, one_line, printable
from segmentation.options.config import Config
from segmentation.options.keywords import Options
from segmentation.pipeline.output_paths import default_output
from segmentation.system.file_state import FileState, file_state
from segmentation.web.shown import SUFFIXES
from segmentation.web.store import FAILED, QueuedJob, Store, TakenFile

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds between looks
STILL = 4.0  # seconds in which neither size nor time of a complete file change


class WatchedFolder:
    """Looks for files on a thread of its own, while it is used as a context manager.

    Links, hidden files and outputs of earlier runs are left out, and so are folders in the folder.
    """

    def __init__(self, store: Store, folder: Path, to: Path, options: Options, added: Callable[[], None]) -> None:
        """Outputs are written in `to`, with the names of the command's. `added` is called after each job."""
        self._store, self._folder, self._to = store, folder.resolve(), to.resolve()
        self._options, self._config, self._added = options, Config(**options), added
        self._taken = store.taken()
        self._waiting: Mapping[str, tuple[FileState, float]] = {}  # files, and since when they stand still
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="segmentation-watch", daemon=True)

    def __enter__(self) -> WatchedFolder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self, now: float) -> None:
        """Makes jobs of the files that have stood still. `now` is in seconds, of any clock."""
        waiting: dict[str, tuple[FileState, float]] = {}
        for state in self._files():
            known = self._taken.get(state.path)
            if known is not None and known[:2] == (state.size, state.modified):
                continue
            before, since = self._waiting.get(state.path, (None, now))
            waiting[state.path] = (state, since if before == state else now)
            if now - waiting[state.path][1] >= STILL:
                self._take(state)
        self._waiting = waiting

    def _files(self) -> list[FileState]:
        found = []
        for path in sorted(self._folder.iterdir()):
            left_out = path.name.startswith(".") or ".segmented" in path.suffixes or path.is_symlink()
            if not left_out and path.suffix.lower() in SUFFIXES and path.is_file():
                with suppress(InputError):  # it is gone
                    found.append(file_state(str(path)))
        return [state for state in found if state.size]

    def _take(self, state: FileState) -> None:
        """Puts a file in the queue. Raises `OutputError` where that can't be noted."""
        job = QueuedJob(token_hex(8), printable(Path(state.path).name), state.path, dict(self._options))
        try:
            job = replace(job, target=self._target(state.path))
        except OutputError as exc:
            job = replace(job, state=FAILED, ended=time.time(), error=str(exc))
            log.error("%s", exc)
        self._store.add(job, state)
        self._taken[state.path] = TakenFile(state.size, state.modified, job.target)
        self._added()

    def _target(self, path: str) -> str:
        """Returns the output of a file. Raises `OutputError` where there is another's.

        It has all of the input's name where another input has the short one, as the command's outputs.
        """
        if path in self._taken and (known := self._taken[path].target) is not None:
            return known
        short, whole = (self._to / default_output(path, self._config, whole_name=whole).name for whole in (False, True))
        others = {file.target for file in self._taken.values()}
        target = whole if str(short) in others else short
        if str(target) in others or os.path.lexists(target):
            raise OutputError(f"{path}: its output {target} exists already; move that away, and save the file again")
        return str(target)

    def _work(self) -> None:
        while not self._stop.wait(_PAUSE):
            try:
                self.look(time.monotonic())
                self._said = ""
            except (SegmentationError, OSError) as exc:  # the folder may come back, and the disk be emptied
                text = f"--watch {self._folder}: {one_line(exc)}"
                if text != self._said:
                    log.error("%s", text)
                    self._said = text
