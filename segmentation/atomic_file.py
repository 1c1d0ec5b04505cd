"""Files that appear whole or not at all: written under another name beside their target, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType

from segmentation.errors import OutputError, one_line


class PendingFile:
    """Holds the temporary path of one file until `commit` gives the file its name, or `discard` removes it.

    Creating the object writes nothing: the caller creates the file at `path`. As a context manager the object discards
    a file that was not committed.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        """`target` may be relative: its folder is the one that is current now. `overwrite` lets it be replaced."""
        self.target = target  # as the user wrote it, for messages
        self.overwrite = overwrite
        self._place = target.absolute()  # the current folder may change before the end
        # No process id: containers use the same ones again. Not the whole name: it may be as long as names can be.
        self.path = self._place.with_name(f".{target.stem[:40]}.{token_hex(4)}.part{target.suffix}")

    def __enter__(self) -> PendingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def check(self, option: str) -> None:
        """Tests before any work whether the target may and can be written. `option` is the one that names the target.

        Raises `OutputError` if the target must not or can't be written.
        """
        target = self.target
        if leads_to_device(target):  # root could put a file in its place
            raise OutputError(f"{target}: is a device or a link to one, no regular file; name another")
        if not target.parent.is_dir():
            raise OutputError(f"{target}: the folder {target.parent} does not exist")
        try:
            target.lstat()
        except FileNotFoundError:
            return
        except OSError as exc:  # such as a name that is too long, which the temporary one would hide
            raise OutputError(f"{target}: cannot be written ({one_line(exc)})") from exc
        if target.is_dir():
            raise OutputError(f"{target}: is a folder; name a file")
        if os.path.exists(target) and not target.is_file():  # a device or a pipe would become a file
            raise OutputError(f"{target}: is no regular file; name another")
        if not self.overwrite:
            raise OutputError(
                f"{target}: exists already; use -y (overwrite=True) to replace it, or {option} to name another"
            )

    def commit(self, *, fragment: bool = False) -> Path:
        """Flushes the file to the disk and gives it the target's name. Returns the target as the user wrote it.

        A `fragment` never replaces a file: where one exists, the fragment becomes `NAME.partial.EXT`. Raises `OSError`,
        and `OutputError` if without `overwrite` the target has come into being meanwhile.
        """
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        if self.overwrite:
            partial = f".partial{self.target.suffix}" if fragment and self._place.exists() else self.target.suffix
            self.path.replace(self._place.with_suffix(partial))
            return self.target.with_suffix(partial)
        try:  # unlike a rename, a link never replaces a file that has come into being meanwhile
            os.link(self.path, self._place)
        except FileExistsError:
            raise OutputError(
                f"{self.target}: came into being in the meantime; use -y (overwrite=True) to replace it"
            ) from None
        except OSError:  # no hard links on this file system
            self.path.rename(self._place)
        self.path.unlink(missing_ok=True)
        return self.target

    def discard(self) -> None:
        """Removes the temporary file, if there is one. After `commit` there is none."""
        with suppress(OSError):  # in a folder that can't be written there is nothing to remove
            self.path.unlink(missing_ok=True)


def write_atomically(target: Path, data: bytes) -> None:
    """Writes `data` to `target`, replacing it: an interruption leaves the old file or the new one. Raises `OSError`."""
    with PendingFile(target, overwrite=True) as pending:
        pending.path.write_bytes(data)
        pending.commit()


def leads_to_device(path: Path) -> bool:
    """Returns whether `path`, or a symbolic link on the way from it, lies in /dev or /proc, but for /dev/shm."""
    with suppress(OSError, RuntimeError):  # links that lead to themselves, names that can't be
        for _ in range(40):  # as many links as Linux follows
            path = path.parent.resolve() / path.name
            if path.is_relative_to("/proc") or (path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm")):
                return True
            if not path.is_symlink():
                return False
            path = path.parent / path.readlink()
    return False
