"""The folder that keeps engines and other files that were built once, and a lock for building them."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

log = logging.getLogger(__name__)


def engine_folder() -> Path:
    """Returns `SEGMENTATION_ENGINES`, else `engines/` of a checkout, else a folder in the user's cache."""
    if chosen := os.environ.get("SEGMENTATION_ENGINES"):
        return Path(chosen)
    checkout = Path(__file__).parent.parent / "engines"
    if (checkout / "README.md").is_file() and os.access(checkout, os.W_OK):
        return checkout
    return platformdirs.user_cache_path("video-segmentation") / "engines"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of `path` among processes, and removes the lock file afterwards. Raises `OSError`."""
    lock = path.with_name(f".{path.name}.lock")
    while True:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("%s: another process is building it; waiting", path)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same(lock, descriptor):
                try:
                    yield
                finally:
                    lock.unlink()
                return
        finally:
            os.close(descriptor)


def _is_same(lock: Path, descriptor: int) -> bool:
    """Returns whether a descriptor is that of the lock file. The last holder may have removed the file since."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False
