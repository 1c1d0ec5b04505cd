"""Keeps videos open from one clip to the next: opening one takes longer than reading the packets of a clip."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from av.container import InputContainer

from segmentation.media.opening.open_input import open_input
from segmentation.system.file_state import FileState, file_state

_MOST_IDLE = 32  # open files that no thread reads


class OpenVideos:
    """Lends containers to threads that read packets and seek first. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[FileState, InputContainer]] = []  # the least recently used one first

    @contextmanager
    def lent(self, path: str) -> Iterator[InputContainer]:
        """Lends a video, open since an earlier loan or opened now, in any state. After an error it is closed.

        A file that has changed since then is opened anew. Raises `InputError` if that fails.
        """
        file = file_state(path)
        container = self._take(file) or open_input(path)
        try:
            yield container
        except BaseException:
            container.close()
            raise
        self._give_back(file, container)

    def _take(self, file: FileState) -> InputContainer | None:
        with self._lock:
            for place in reversed(range(len(self._idle))):
                if self._idle[place][0] == file:
                    return self._idle.pop(place)[1]
        return None

    def _give_back(self, file: FileState, container: InputContainer) -> None:
        """Keeps a container. Closes the one that is idle longest, if too many are open."""
        with self._lock:
            self._idle.append((file, container))
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for _, old in surplus:
            old.close()
