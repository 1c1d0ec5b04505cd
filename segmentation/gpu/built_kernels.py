"""Machine code of kernels that was compiled when the package was built: a first run need not compile it."""

import io
import logging
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from segmentation.errors import one_line

log = logging.getLogger(__name__)

FOLDER = Path(__file__).with_name("built")  # empty in a checkout, see tools/build_kernels.py


@cache
def built_kernels(arch: str) -> Mapping[str, bytes]:
    """Returns the machine code for a compute capability such as "90", by `Program.fingerprint`; else nothing."""
    path = _path(arch)
    try:
        with tarfile.open(path) as file:
            opened = ((member.name, file.extractfile(member)) for member in file)
            return {name: content.read() for name, content in opened if content is not None}
    except FileNotFoundError:
        return {}
    except Exception as exc:  # those of tarfile and of the compression, which a Python may lack, have no common class
        log.warning("%s can't be read (%s); kernels are compiled", path, one_line(exc))
        return {}


def write_built_kernels(arch: str, codes: Mapping[str, bytes]) -> Path:
    """Writes what `built_kernels` reads, packed as one: programs for several layouts are much alike."""
    FOLDER.mkdir(exist_ok=True)
    path = _path(arch)
    with tarfile.open(path, "w:xz", preset=9) as file:
        for name, code in codes.items():
            member = tarfile.TarInfo(name)
            member.size = len(code)
            file.addfile(member, io.BytesIO(code))
    built_kernels.cache_clear()
    return path


def _path(arch: str) -> Path:
    return FOLDER / f"sm_{arch}.tar.xz"
