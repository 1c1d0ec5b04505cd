"""A file as it is at one time, by which a changed one is seen."""

import os
from typing import NamedTuple


class FileState(NamedTuple):
    """If the file is replaced or written to, this changes."""

    path: str
    device: int
    inode: int
    size: int  # bytes
    modified: int  # nanoseconds


def file_state(path: str) -> FileState:
    """Returns a file as it is now. Raises `OSError` if there is none."""
    found = os.stat(path)
    return FileState(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
