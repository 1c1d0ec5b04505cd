"""Builds the native decoder's library, and a stand-in for the driver that it calls."""

import ctypes
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from segmentation.stages.decode.native import build, library

_STAND_IN = Path(__file__).with_name("stand_in_nvcuvid.cpp")


def compiler() -> str:
    """Returns the C++ compiler; skips the test where there is none."""
    found = shutil.which("c++")
    if found is None:
        pytest.skip("there is no C++ compiler")
    return found


@cache
def _built() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """Returns the library and the stand-in, both with the flags in `CXXFLAGS`."""
    flags = shlex.split(os.environ.get("CXXFLAGS", ""))
    with TemporaryDirectory() as folder:
        driver, decoder = Path(folder, "stand_in.so"), Path(folder, "decoder.so")
        headers = f"-I{Path(library.__file__).parent}"
        command = [
            compiler(),
            "-std=c++17",
            "-O1",
            "-shared",
            "-fPIC",
            *flags,
            headers,
            str(_STAND_IN),
            "-o",
            str(driver),
        ]
        subprocess.run(command, check=True)
        build.build_library(decoder, compiler(), flags)
        return library.load_library(decoder, str(driver), str(driver)), ctypes.CDLL(str(driver))


def stand_in() -> ctypes.CDLL:
    """Returns the library, which has loaded the stand-in."""
    return _built()[0]


def stand_in_driver() -> ctypes.CDLL:
    """Returns the stand-in, with its own functions."""
    return _built()[1]


def nvdec() -> str:
    """Returns the decoder that is chosen on a GPU."""
    return "nvdec-native" if build.BUILT.exists() else "nvdec"


def require_native() -> None:
    """Skips the test where the library has not been built into the package."""
    if not build.BUILT.exists():
        pytest.skip("the native decoder is not built: python tools/build_native.py")
