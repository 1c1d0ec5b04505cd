"""Files that appear whole or not at all: written under another name beside their target, then renamed.

Others may write in the folder. So a name that is there already is never followed, waited for or trusted: only what this
program has made, of its own kind and user, is written, moved and removed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from weakref import WeakSet

from segmentation.errors import OutputError, OutputExists, one_line
from segmentation.system.safe_files import LOCKS, SAFE, address_of, is_at, keep_rights, lock, move_new

_ATTEMPTS = 100  # at a temporary name; another process takes it for a leftover only in the moment before it is locked

_NONE = -1  # no descriptor: the system refuses it

_pending: WeakSet[PendingFile] = WeakSet()


class PendingFile:
    """Holds the temporary path of one file until `commit` gives the file its name, or `discard` removes it.

    Making the object writes nothing: `create` makes the file at `path`, for the caller to write by `address`. As a
    context manager the object discards a file that was not committed.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        """`target` may be relative: its folder is the one that is current now. `overwrite` lets it be replaced."""
        self._descriptor = _NONE  # of the temporary file; it holds the lock
        self.target = target  # as the user wrote it, for messages
        self.overwrite = overwrite
        self.place = target.absolute()  # the current folder may change before the end
        self.path = self._temporary()
        self._replaced: os.stat_result | None = None  # the file that was there
        _pending.add(self)

    def __enter__(self) -> PendingFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def __del__(self) -> None:
        self._close()

    @property
    def address(self) -> str:
        """Returns the name to open the temporary file by, once it is made: nobody can lead it to another file.

        On systems without names of descriptors it is the path.
        """
        return address_of(self._descriptor) or str(self.path)

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
            there = target.lstat()
        except FileNotFoundError:
            return
        except OSError as exc:  # such as a name that is too long, which the temporary one would hide
            raise OutputError(f"{target}: cannot be written ({one_line(exc)})") from exc
        with suppress(FileNotFoundError):  # a link that leads nowhere
            mode = target.stat().st_mode if stat.S_ISLNK(there.st_mode) else there.st_mode
            if stat.S_ISDIR(mode):
                raise OutputError(f"{target}: is a folder; name a file")
            if not stat.S_ISREG(mode):  # a device or a pipe would become a file
                raise OutputError(f"{target}: is no regular file; name another")
        if not self.overwrite:
            raise OutputExists(
                f"{target}: exists already; use -y (overwrite=True) to replace it, or {option} to name another"
            )
        folder = target.parent.stat()
        if folder.st_mode & stat.S_ISVTX and there.st_uid not in (os.geteuid(), folder.st_uid):
            raise OutputError(f"{target}: belongs to another user, in a folder that everyone may write; name another")

    def create(self) -> None:
        """Makes the temporary file, and removes those that killed processes have left. Raises `OSError`.

        The file is locked while this process lives, so that others can distinguish it from one that was left.
        """
        with suppress(OSError):  # a link that leads nowhere
            there = self.place.stat()
            self._replaced = there if stat.S_ISREG(there.st_mode) else None  # a folder, since it was tested
        for _ in range(_ATTEMPTS):
            self._descriptor = self._make()
            if self._keep():
                break
            self.discard()
            self._close()
            self.path = self._temporary()
        else:
            raise OSError(errno.EAGAIN, "others lock its temporary file")
        with suppress(OSError):  # a folder that can't be read has no leftovers that can be removed
            self.remove_leftovers(os.fstat(self._descriptor).st_uid)

    def write(self, data: bytes) -> None:
        """Writes all of the temporary file. Raises `OSError`."""
        with open(self.address, "wb") as file:
            file.write(data)

    def put(self, data: bytes) -> None:
        """Makes the file of this content, and gives it the target's name. Raises `OutputError`."""
        with self.reporting():
            self.create()
            self.write(data)
            self.commit()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Raises an `OSError` of the statements within as an `OutputError`, which names the target."""
        try:
            yield
        except OSError as exc:
            raise OutputError(f"{self.target}: cannot be written ({one_line(exc)})") from exc

    def commit(self, *, fragment: bool = False) -> Path:
        """Flushes the file to the disk and gives it the target's name. Returns the target as the user wrote it.

        A `fragment` never replaces a file: where one exists, the fragment becomes `NAME.partial.EXT`. So does any file
        whose target has come into being meanwhile, without `overwrite`, and `OutputError` is raised. A file that is
        replaced hands on its mode, and its owner where permitted. Raises `OSError`, and `OutputError` too if others
        have put something else in the file's place.
        """
        os.fsync(self._descriptor)
        if self._replaced is not None:
            keep_rights(self._descriptor, self._replaced)
        if not os.path.samestat(os.fstat(self._descriptor), self.path.lstat()):
            raise self._swapped(self.path)
        if not LOCKS:  # Windows, which renames no open file
            self._close()
        suffix = self.target.suffix
        if self.overwrite and not fragment:
            self.path.replace(self.place)
        else:
            try:
                move_new(self.path, self.place)
            except FileExistsError:
                suffix = f".partial{suffix}"
                if not self.overwrite:
                    raise self._kept(suffix) from None
                self.path.replace(self.place.with_suffix(suffix))
        self.place = self.place.with_suffix(suffix)
        if self.place.is_symlink():  # swapped since it was tested
            raise self._swapped(self.place)
        self._close()  # not before: unlocked, it would be a leftover to others
        return self.target.with_suffix(suffix)

    def discard(self) -> None:
        """Removes the temporary file, if there is one. After `commit` there is none.

        From then on `address` leads to nothing: FFmpeg may open it once more while it closes the file.
        """
        with suppress(OSError):  # in a folder that can't be written there is nothing to remove
            # An interrupt may have come between the file and its descriptor.
            if self._descriptor == _NONE or is_at(self.path, self._descriptor):
                self.path.unlink(missing_ok=True)
        if self._descriptor != _NONE:
            with suppress(OSError), open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), self._descriptor, inheritable=False)
        if not LOCKS:  # Windows, which removes no open file
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _temporary(self) -> Path:
        """Returns a new name. It has no process id: containers use the same ones again."""
        return self.place.with_name(f"{self._beginning()}{token_hex(4)}.part{self.place.suffix}")

    def _beginning(self) -> str:
        """Returns the beginning of temporary names: not the whole name, which may be as long as names can be."""
        return f".{self.place.stem[:40]}."

    def _make(self) -> int:
        """Makes the temporary file, and returns its descriptor. What replaces a private file is private too."""
        mode = 0o666 if self._replaced is None else 0o600
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE, mode)  # for writing: see `lock`

    def _keep(self) -> bool:
        """Locks the temporary file. Returns whether it is still there: others may have taken it for a leftover."""
        with suppress(OSError):  # a file system without locks: no process removes anything there
            if not lock(self._descriptor):
                return False
        return is_at(self.path, self._descriptor)

    def _clear(self, path: Path) -> None:
        """Removes all that a left temporary file of this kind has beside it. Raises `OSError`."""

    def remove_leftovers(self, owner: int) -> None:
        """Removes temporary files of killed processes, of this target and this user. Raises `OSError`."""
        leftover = re.compile(rf"{re.escape(self._beginning())}[0-9a-f]{{8}}\.part{re.escape(self.place.suffix)}")
        for name in os.listdir(self.path.parent):
            if leftover.fullmatch(name) and (path := self.path.with_name(name)) != self.path:
                with suppress(OSError):  # another process was faster
                    if path.lstat().st_uid == owner:
                        self._remove_leftover(path)

    def _remove_leftover(self, path: Path) -> None:
        """Removes a file that no living process has locked. Raises `OSError`."""
        if not stat.S_ISREG(path.lstat().st_mode):
            return
        descriptor = os.open(path, os.O_RDWR | SAFE)
        try:
            if lock(descriptor) and is_at(path, descriptor):
                self._clear(path)
                path.unlink()
        finally:
            os.close(descriptor)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _NONE  # first, since an interrupt may come behind any line
        if descriptor != _NONE:
            os.close(descriptor)

    def _kept(self, suffix: str) -> OutputError:
        """Keeps the file with `suffix`, if that name is free. Returns the error of a target that others have made."""
        try:
            move_new(self.path, self.place.with_suffix(suffix))
        except OSError:
            return self._came_into_being()
        kept = self.target.with_suffix(suffix)
        return OutputError(f"{self.target}: came into being in the meantime; what this run has written is {kept}")

    def _came_into_being(self) -> OutputError:
        return OutputError(f"{self.target}: came into being in the meantime; use -y (overwrite=True) to replace it")

    def _swapped(self, path: Path) -> OutputError:
        return OutputError(f"{path}: was replaced by another process while it was written; name another folder")


def discard_all() -> None:
    """Removes all temporary files of this process, which then has to end."""
    for pending in list(_pending):
        pending.discard()


def remove_leftovers(target: Path) -> None:
    """Removes the temporary files of `target` that killed processes of this user have left."""
    pending = PendingFile(target, overwrite=True)
    with suppress(OSError):  # in a folder that can't be read or written there is nothing to remove
        pending.remove_leftovers(os.geteuid())


def write_atomically(target: Path, data: bytes) -> None:
    """Writes `data` to `target`, replacing it: an interruption leaves the old file or the new one. Raises `OSError`."""
    with PendingFile(target, overwrite=True) as pending:
        pending.create()
        pending.write(data)
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
