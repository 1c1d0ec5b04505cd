"""A file as it is at one time, by which a changed one is seen."""

import os
from typing import NamedTuple

from segmentation.errors import InputError, one_line


class FileState(NamedTuple):
    """If the file is replaced or written to, this changes."""

    path: str
    device: int
    inode: int
    size: int  # bytes
    modified: int  # nanoseconds


def file_state(path: str) -> FileState:
    """Returns a file as it is now. Raises `InputError` if there is none."""
    try:
        found = os.stat(path)
    except OSError as exc:
        raise InputError(f"{path}: cannot be opened ({one_line(exc)})") from exc
    return FileState(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
