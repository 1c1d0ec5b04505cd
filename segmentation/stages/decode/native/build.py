"""Compiles the library of decoder.cpp and samples.cpp. Imports nothing of the package: setup.py runs this before."""

from __future__ import annotations

import platform
import shlex
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

_COMPILED = tuple(Path(__file__).with_name(name) for name in ("decoder.cpp", "samples.cpp"))
_SOURCES = (*_COMPILED, *(Path(__file__).with_name(name) for name in ("driver.h", "nvcuvid.h")))
_NAME = f"libnvdec-{platform.machine()}"
# Absent from a checkout. One of other sources, as before an update, has another name: its structures may be others.
BUILT = Path(__file__).with_name("built") / f"{_NAME}-{zlib.crc32(b''.join(s.read_bytes() for s in _SOURCES)):08x}.so"
_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared")


def build_library(path: Path, compiler: str, extra: Sequence[str] = ()) -> None:
    """Compiles the library into `path`, in place of those of other sources beside it.

    `compiler` is a command, such as `ccache g++`. Raises `RuntimeError` with what the compiler says.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for earlier in path.parent.glob(f"{_NAME}*.so"):
        earlier.unlink()
    command = [*shlex.split(compiler), *_FLAGS, *extra, "-o", str(path), *map(str, _COMPILED), "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as exc:
        raise RuntimeError(f"the native decoder can't be built by {compiler}: {exc.strerror}") from exc
    if done.returncode:
        raise RuntimeError(f"the native decoder can't be built by {compiler}: {done.stderr.strip()}")
