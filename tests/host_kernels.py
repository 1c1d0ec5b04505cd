"""The kernels of masks.cu on the CPU: the same source through the host's C++ compiler, one thread after the other, so
that what they compute is tested where there is no GPU. What the CUDA compiler and a GPU make of them, tests marked
`gpu` show.

`CXXFLAGS` is given to the compiler. So AddressSanitizer sees every access:

    export CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover" ASAN_OPTIONS=detect_leaks=0
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" pytest tests/test_masks_cuda.py
"""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

from segmentation import kernels
from segmentation.frames import PixelFormat

_BEFORE = """
#include <algorithm>
#include <cmath>
using std::max; using std::min;
#define __global__
#define __device__
struct Index { int x, y, z; };
static const Index threadIdx{0, 0, 0}, blockDim{1, 1, 1};
static thread_local Index blockIdx, gridDim;
static float __saturatef(float value) { return fminf(fmaxf(value, 0), 1); }
"""
_RUN = """
extern "C" void run_{name}(int width, int height, int count, {parameters}) {{
    gridDim = Index{{width, height, count}};
    for (int z = 0; z < count; z++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {{ blockIdx = Index{{x, y, z}}; {name}({names}); }}
}}
"""


@cache
def _library(macros: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    source = kernels.source_of(kernels.MASKS)
    runs = ""
    for name, parameters in re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', source):
        names = ", ".join(parameter.split()[-1].lstrip("*") for parameter in parameters.split(","))
        runs += _RUN.format(name=name, parameters=parameters.replace("width", "width_").replace("height", "height_"),
                            names=names.replace("width", "width_").replace("height", "height_"))  # fmt: skip
    defines = [f"-D{name}={value}" for name, value in macros]
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", *shlex.split(os.environ.get("CXXFLAGS", ""))]
    command = [compiler, *flags, *defines, "masks.cpp", "-o", "masks.so"]
    with TemporaryDirectory() as folder:
        Path(folder, "masks.cpp").write_text(_BEFORE + source + runs)
        subprocess.run(command, cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder, "masks.so")))


class HostKernels:
    """As `kernels.Kernels`, on tensors in the host's memory."""

    def __init__(self, macros: tuple[tuple[str, str], ...]) -> None:
        self._library = _library(macros)

    def __call__(self, name: str, size: tuple[int, int, int], *arguments: Any) -> None:
        getattr(self._library, f"run_{name}")(*map(ctypes.c_int, size), *map(_argument, arguments))


def _argument(value: Any) -> Any:
    if hasattr(value, "data_ptr"):
        assert value.is_contiguous()
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_float(value) if isinstance(value, np.floating) else ctypes.c_int(value)


class HostGpu:
    """What the masks' stages ask of a `gpu.Gpu`, in the host's memory."""

    device = torch.device("cpu")
    stream = None

    def enter(self) -> None: ...

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.full(shape, float("nan"), dtype=dtype)  # what is read before it is written shows

    def kernels(self, layout: PixelFormat, turns: int = 0, source: tuple[str, ...] = ()) -> HostKernels:
        assert source == kernels.MASKS
        return HostKernels(tuple(kernels.macros_of(source, layout, turns).items()))
