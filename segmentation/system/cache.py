"""The folder that keeps engines and other files that were built once, and a lock for building them."""

import errno
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from segmentation.system.atomic_file import write_atomically
from segmentation.system.safe_files import LOCKS, is_at, lock, open_lock

log = logging.getLogger(__name__)


def engine_folder() -> Path:
    """Returns `SEGMENTATION_ENGINES`, else `engines/` of a checkout, else a folder in the user's cache."""
    if chosen := os.environ.get("SEGMENTATION_ENGINES"):
        return Path(chosen)
    checkout = Path(__file__).parents[2] / "engines"
    if (checkout / "README.md").is_file() and os.access(checkout, os.W_OK):
        return checkout
    return platformdirs.user_cache_path("video-segmentation") / "engines"


def make_folder(folder: Path) -> None:
    """Makes a folder of the cache, with those above it, for this user alone. Raises `OSError`."""
    if not folder.is_dir():
        make_folder(folder.parent)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def keep(path: Path, data: bytes) -> None:
    """Writes a file of the cache, and its SHA-256 beside it, without which `read_kept` does not read it.

    Raises `OSError`.
    """
    make_folder(path.parent)
    write_atomically(path, data)
    write_atomically(_digest_of(path), hashlib.sha256(data).hexdigest().encode())


def read_kept(path: Path) -> bytes | None:
    """Returns a file of the cache. `None` if there is none, or if it is not the one that `keep` wrote."""
    try:
        data, digest = path.read_bytes(), _digest_of(path).read_bytes()
    except OSError:
        return None
    if digest.decode(errors="replace") == hashlib.sha256(data).hexdigest():
        return data
    log.warning("%s: its SHA-256 is not the one beside it, so it was changed or damaged; it is made again", path)
    return None


def _digest_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of `path` among processes, and removes the lock file afterwards. Raises `OSError`.

    Without locks, two processes may build the same at a time: what is kept appears whole.
    """
    if not LOCKS:
        yield
        return
    file = path.with_name(f".{path.name}.lock")
    while True:
        descriptor = open_lock(file)
        try:
            if not lock(descriptor):
                log.info("%s: another process is building it; waiting", path)
                lock(descriptor, wait=True)
            if is_at(file, descriptor):  # the last holder may have removed it since
                try:
                    yield
                finally:
                    file.unlink()
                return
        finally:
            os.close(descriptor)
