"""Files that appear whole or not at all: written under another name beside their target, then renamed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from weakref import WeakSet

from segmentation.errors import OutputError, one_line

_pending: WeakSet[PendingFile] = WeakSet()


class PendingFile:
    """Holds the temporary path of one file until `commit` gives the file its name, or `discard` removes it.

    Making the object writes nothing: `create` makes the file at `path`, for the caller to write. As a context manager
    the object discards a file that was not committed.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        """`target` may be relative: its folder is the one that is current now. `overwrite` lets it be replaced."""
        self.target = target  # as the user wrote it, for messages
        self.overwrite = overwrite
        self.place = target.absolute()  # the current folder may change before the end
        # No process id: containers use the same ones again. Not the whole name: it may be as long as names can be.
        self.path = self.place.with_name(f".{target.stem[:40]}.{token_hex(4)}.part{target.suffix}")
        self._lock: int | None = None  # descriptor that holds the lock of the temporary file
        _pending.add(self)

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

    def create(self, *, folder: bool = False) -> None:
        """Makes the temporary file, or `folder`, and removes those that killed processes have left. Raises `OSError`.

        The file is locked while this process lives, so that others can tell it from one that was left.
        """
        name, suffix = re.escape(self.target.stem[:40]), re.escape(self.target.suffix)
        leftover = re.compile(rf"\.{name}\.[0-9a-f]{{8}}\.part{suffix}")
        with suppress(OSError):  # a folder that can't be read has no leftovers that can be removed
            for path in [path for path in self.path.parent.iterdir() if leftover.fullmatch(path.name)]:
                _remove_if_left(path)
        while True:
            self.path.mkdir() if folder else self.path.touch(exist_ok=False)
            self._lock = os.open(self.path, os.O_RDONLY)
            with suppress(OSError):  # some file systems have no locks, and so no process removes anything there
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # another process took it for a leftover before it was locked
                if os.path.samestat(os.fstat(self._lock), self.path.stat()):
                    return
            self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None  # first, since an interrupt may come behind any line
        if lock is not None:
            os.close(lock)

    def commit(self, *, fragment: bool = False) -> Path:
        """Flushes the file to the disk and gives it the target's name. Returns the target as the user wrote it.

        A `fragment` never replaces a file: where one exists, the fragment becomes `NAME.partial.EXT`. Raises `OSError`,
        and `OutputError` if without `overwrite` the target has come into being meanwhile.
        """
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        self._unlock()
        if self.overwrite:
            partial = f".partial{self.target.suffix}" if fragment and self.place.exists() else self.target.suffix
            self.place = self.path.replace(self.place.with_suffix(partial))
            return self.target.with_suffix(partial)
        try:  # unlike a rename, a link never replaces a file that has come into being meanwhile
            os.link(self.path, self.place)
        except FileExistsError:
            raise OutputError(
                f"{self.target}: came into being in the meantime; use -y (overwrite=True) to replace it"
            ) from None
        except OSError:  # no hard links on this file system
            self.path.rename(self.place)
        self.path.unlink(missing_ok=True)
        return self.target

    def discard(self) -> None:
        """Removes the temporary file, if there is one. After `commit` there is none."""
        with suppress(OSError):  # in a folder that can't be written there is nothing to remove
            self.path.unlink(missing_ok=True)
        self._unlock()


def _remove_if_left(path: Path) -> None:
    """Removes a temporary file or folder that no living process has locked. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except BlockingIOError:  # it is being written
        pass
    finally:
        os.close(descriptor)


def discard_all() -> None:
    """Removes all temporary files of this process, which then has to end."""
    for pending in list(_pending):
        pending.discard()


def write_atomically(target: Path, data: bytes) -> None:
    """Writes `data` to `target`, replacing it: an interruption leaves the old file or the new one. Raises `OSError`."""
    with PendingFile(target, overwrite=True) as pending:
        pending.create()
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
