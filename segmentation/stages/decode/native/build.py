"""Compiles the library of decoder.cpp. Imports nothing of the package, since setup.py runs this before it is there."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

BUILT = Path(__file__).with_name("built") / f"libnvdec-{platform.machine()}.so"  # absent from a checkout
_SOURCE = Path(__file__).with_name("decoder.cpp")
_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared")


def build_library(path: Path, compiler: str, extra: Sequence[str] = ()) -> None:
    """Compiles the library into `path`. Raises `RuntimeError` with what the compiler says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, *_FLAGS, *extra, "-o", str(path), str(_SOURCE), "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as exc:
        raise RuntimeError(f"the native decoder can't be built by {compiler}: {exc.strerror}") from exc
    if done.returncode:
        raise RuntimeError(f"the native decoder can't be built by {compiler}: {done.stderr.strip()}")
