"""Files that appear whole or not at all: written under another name beside their target, then renamed."""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from segmentation.errors import OutputError
from segmentation.media.input import reason


def temporary_path(target: Path) -> Path:
    """Another name beside `target`, with its suffix. It is absolute: the current folder may change until it is used."""
    # Not the process id: in containers it comes again. Not the whole name: it may be as long as names can be.
    return target.absolute().with_name(f".{target.stem[:40]}.{token_hex(4)}.part{target.suffix}")


def commit(temporary: Path, target: Path, *, overwrite: bool) -> None:
    """Flushes `temporary` to the disk and gives it the name of the target, beside which it was made. Raises `OSError`,
    and `OutputError` if without `overwrite` the target has come into being."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    place = temporary.with_name(target.name)  # `target` itself may be relative to another folder by now
    if overwrite:
        temporary.replace(place)
        return
    try:  # unlike a rename, a link never replaces a file that has come into being in the meantime
        os.link(temporary, place)
    except FileExistsError:
        raise OutputError(f"{target}: came into being in the meantime; use -y to overwrite it") from None
    except OSError:  # no hard links on this file system
        temporary.rename(place)
    temporary.unlink(missing_ok=True)


def remove(temporary: Path) -> None:
    """Removes what was written aside, if it is there."""
    with suppress(OSError):  # where nothing could be written
        temporary.unlink(missing_ok=True)


def check_target(target: Path, overwrite: bool, option: str) -> None:
    """Raises `OutputError` if `target` must not or can't be written, before any work is done.

    `option` is what names another target.
    """
    if not target.parent.is_dir():
        raise OutputError(f"{target}: the folder {target.parent} does not exist")
    try:
        target.lstat()
    except FileNotFoundError:
        return
    except OSError as exc:  # a name that is too long: the temporary one would not tell
        raise OutputError(f"{target}: cannot be written ({reason(exc)})") from exc
    if target.is_dir():
        raise OutputError(f"{target}: is a folder; name a file")
    if os.path.exists(target) and not target.is_file():  # a device or a pipe would become a file
        raise OutputError(f"{target}: is no regular file; name another")
    if not overwrite:
        raise OutputError(f"{target}: exists already; use -y to overwrite it, or {option} to name another")
