"""The inputs that requests may name: uploads, and the files of one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from starlette.exceptions import HTTPException

from segmentation.errors import ConfigError, one_line
from segmentation.web.store import Store, StoredInput

FILES = "files/"  # begins the ids of the folder's files
_MOST = 1000  # files of the folder
SUFFIXES = {
    *(".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".gif", ".wmv", ".flv"),
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".heic", ".avif"),
}


class ShownInputs:
    """Finds inputs by their ids: those of uploads are random, those of the folder `files/NAME`."""

    def __init__(self, store: Store, folder: Path | None) -> None:
        self._store = store
        self._folder = None if folder is None else folder.resolve()

    def all(self) -> list[StoredInput]:
        """Returns all inputs, uploads first."""
        return [*self._store.inputs(), *self._files()]

    def find(self, id: str) -> StoredInput:
        """Returns the input with an id. Raises `HTTPException`, 404, and `ConfigError` without an id."""
        if not id:
            raise ConfigError("file, source: both are missing; send a file, or the id of an input as source")
        if id.startswith(FILES) and self._folder is not None and (found := self._file(id)) is not None:
            return found
        for one in self._store.inputs():
            if one.id == id:
                return one
        raise HTTPException(404, f"{one_line(repr(id))}: no such input")

    def _file(self, id: str) -> StoredInput | None:
        assert self._folder is not None
        try:
            path = Path(os.path.realpath(self._folder / id.removeprefix(FILES)))
            # A link out of the folder leads to no file that the server may show.
            if path.is_relative_to(self._folder) and path.is_file() and path.suffix.lower() in SUFFIXES:
                return StoredInput(id, path.name, str(path))
        except (OSError, ValueError):  # a name that is too long, or has a byte 0
            pass
        return None

    def _files(self) -> Iterator[StoredInput]:
        if self._folder is None:
            return
        paths = sorted(path for path in self._folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        for path in paths[:_MOST]:
            name = path.relative_to(self._folder).as_posix()
            yield StoredInput(FILES + name, name, str(path))
