"""Files in folders that others may write: locked, compared, moved and removed without trust in their names.

A lock ends with the descriptor that holds it, and so with its process. Windows has none of these ways: there files are
addressed by their names, without locks.
"""

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    LOCKS = False
else:
    LOCKS = True

BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would change the ends of lines
UNWAITED: int = getattr(os, "O_NONBLOCK", 0) | BINARY  # a named pipe is not waited for
# For names in folders that others may write: a link is not followed either.
SAFE: int = getattr(os, "O_NOFOLLOW", 0) | UNWAITED | getattr(os, "O_CLOEXEC", 0)


def lock(descriptor: int, *, wait: bool = False) -> bool:
    """Locks an open file, and returns whether it did: without `wait`, another holder is no reason to wait.

    The descriptor has to be open for writing: NFS gives no other one an exclusive lock. Raises `OSError` on file
    systems without locks, and where `LOCKS` is false.
    """
    if not LOCKS:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def open_lock(path: Path) -> int:
    """Opens a file that is there for its lock alone, and makes it if need be. Returns its descriptor.

    Raises `OSError`, also where the name is that of a link, a folder, a pipe or a device.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | SAFE, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no regular file", str(path))


def is_at(path: Path, descriptor: int) -> bool:
    """Returns whether an open file still has this name: another process may have removed or replaced the name.

    Raises `OSError`.
    """
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def address_of(descriptor: int) -> str | None:
    """Returns a name by which an open file can be opened again, whatever becomes of its path; `None` without one."""
    address = f"/proc/self/fd/{descriptor}"
    return address if os.path.exists(address) else None


def move_new(path: Path, place: Path, folder: int | None = None) -> None:
    """Renames a file, unless the new name exists. `folder` is the descriptor of the one that `path` begins in.

    Raises `FileExistsError` if it does, and `OSError`.
    """
    try:  # unlike a rename, a link never replaces a file that has come into being meanwhile
        os.link(path, place, src_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this file system: an empty file takes the name first
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE))
        try:
            os.replace(path, place, src_dir_fd=folder)
        except OSError:
            place.unlink()
            raise
    else:
        os.unlink(path, dir_fd=folder)


def open_folder(folder: Path) -> int | None:
    """Opens a folder, which may be no link. Returns its descriptor, `None` on Windows. Raises `OSError`."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | SAFE) if hasattr(os, "O_DIRECTORY") else None


def remove_files(folder: Path, own: re.Pattern[str]) -> None:
    """Removes the files whose names `own` matches from a folder, which may be no link. Raises `OSError`."""
    descriptor = open_folder(folder)
    try:
        for name in os.listdir(folder if descriptor is None else descriptor):
            if own.fullmatch(name):
                os.unlink(folder / name if descriptor is None else name, dir_fd=descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def remove_folder(folder: Path, own: re.Pattern[str]) -> None:
    """Removes a folder with all files whose names `own` matches. If there are others, they stay. Raises `OSError`."""
    remove_files(folder, own)
    folder.rmdir()


def is_own(path: Path) -> bool:
    """Returns whether a file or folder is this user's. Raises `OSError`.

    Some file systems state another owner for all that this user makes, so a new file shows it.
    """
    owner = path.lstat().st_uid
    if not hasattr(os, "geteuid") or owner == os.geteuid():
        return True
    with TemporaryFile(dir=path.parent) as file:
        return owner == os.fstat(file.fileno()).st_uid


def keep_rights(descriptor: int, old: os.stat_result) -> None:
    """Gives an open file the group, owner and mode of the one that it replaces, as far as they are permitted.

    Rights that were meant for another group, or given by another owner, are not handed on. Windows has none of these.
    """
    if not hasattr(os, "fchown"):
        return
    with suppress(OSError):
        os.fchown(descriptor, -1, old.st_gid)
    with suppress(OSError):  # root alone may
        os.fchown(descriptor, old.st_uid, -1)
    new, mode = os.fstat(descriptor), old.st_mode & 0o777
    if new.st_gid != old.st_gid:
        mode &= ~0o070
    if new.st_uid != old.st_uid:
        mode &= ~0o022
    with suppress(OSError):  # a file system without modes
        os.fchmod(descriptor, mode)
