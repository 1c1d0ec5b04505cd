"""Runs the GPU's stages on the CPU: kernels through the host's C++ compiler, and OpenCV in place of CV-CUDA.

The same source runs one thread after the other, so that machines without a GPU test the arithmetic. Tests marked `gpu`
show what the CUDA compiler and a GPU make of the source.

The compiler takes the flags in `CXXFLAGS`, so that AddressSanitizer can check every access:

    export CXXFLAGS="-fsanitize=address,undefined -fno-sanitize-recover" ASAN_OPTIONS=detect_leaks=0
    export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)"
    pytest tests/stages/{test_parity,masks/test_cuda,encode/test_jpeg}.py -k "host or surfaces"
"""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import cv2
import pytest
import torch

from segmentation.frames import PixelFormat
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.gpu import kernels
from segmentation.gpu.kernels import KernelSource
from segmentation.gpu.pinned_pool import PinnedPool
from segmentation.gpu.plane_pool import PlanePool
from segmentation.gpu.signatures import Argument

_BEFORE = """
#include <algorithm>
#include <cmath>
#include <cstddef>
using std::isnan; using std::max; using std::min;
#define __global__
#define __device__
#define __shared__ static
struct Index { unsigned x, y, z; };
static const Index threadIdx{0, 0, 0}, blockDim{1, 1, 1};
static thread_local Index blockIdx, gridDim;
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
static float __saturatef(float value) { return fminf(fmaxf(value, 0), 1); }
static void __syncthreads() {}
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static float widened(unsigned short bits) {  // FP16 to float
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
               : exponent ? ldexpf(1024 + mantissa, exponent - 25) : ldexpf(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}
static unsigned short narrowed(float value) {  // the nearest FP16, to even between two
    float size = fabsf(value);
    unsigned sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return 0x7fff;
    int exponent;
    frexpf(size, &exponent);
    exponent = max(exponent, -13);
    float steps = rintf(ldexpf(size, 11 - exponent));  // of the last bit; 2048 carries into the exponent
    return steps == 0 ? sign : size >= 65520 ? sign | 0x7c00
         : sign | (unsigned)((exponent + 13) * 1024 + (int)steps);
}
// The product of 16 x 16 and 16 x 8 numbers that 32 lanes share: see the PTX ISA, "Matrix Fragments for mma.m16n8k16".
static void multiply(float sums[32][4], const unsigned upper[32][2], const unsigned lower[32][2],
                     const unsigned column[32][2]) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; k < 4; k++) {
            int place = lane % 4 * 2 + k / 2 * 8 + k % 2, shift = k % 2 * 16;
            a[lane / 4][place] = widened(upper[lane][k / 2] >> shift);
            a[lane / 4 + 8][place] = widened(lower[lane][k / 2] >> shift);
            b[place][lane / 4] = widened(column[lane][k / 2] >> shift);
        }
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 16; j++)
                sums[lane][k] += a[lane / 4 + k / 2 * 8][j] * b[j][lane % 4 * 2 + k % 2];
}
"""
_RUN = """
extern "C" void run_{name}(int width, int height, int count, const void *packed) {{
    struct Arguments {{ {members} }};
    const Arguments &a = *(const Arguments *)packed;
    gridDim = Index{{(unsigned)width, (unsigned)height, (unsigned)count}};
    for (unsigned z = 0; z < (unsigned)count; z++)
        for (unsigned y = 0; y < (unsigned)height; y++)
            for (unsigned x = 0; x < (unsigned)width; x++) {{ blockIdx = Index{{x, y, z}}; {name}({values}); }}
}}
"""


@cache
def _library(source: KernelSource, macros: tuple[tuple[str, str], ...]) -> ctypes.CDLL:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    text = source.text()
    runs = ""
    for name, parameters in re.findall(r'extern "C" __global__ void (\w+)\(([^)]*)\)', text):
        members = [" ".join(parameter.split()).replace("__restrict__ ", "") for parameter in parameters.split(",")]
        values = ", ".join("a." + member.split()[-1].lstrip("*") for member in members)
        runs += _RUN.format(name=name, members="; ".join(members) + ";", values=values)
    alone = {"THREADS_X": "1", "THREADS_Y": "1"}
    defines = [f"-D{name}={value}" for name, value in (dict(macros) | alone).items()]
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", *shlex.split(os.environ.get("CXXFLAGS", ""))]
    command = [compiler, *flags, *defines, "kernels.cpp", "-o", "kernels.so"]
    with TemporaryDirectory() as folder:
        Path(folder, "kernels.cpp").write_text(_BEFORE + text + runs)
        subprocess.run(command, cwd=folder, check=True)
        return ctypes.CDLL(str(Path(folder, "kernels.so")))


class HostKernels:
    """Runs kernels like `kernels.Kernels`, on tensors in host memory. A block of threads is one thread."""

    def __init__(self, source: KernelSource, layout: PixelFormat, orientation: Orientation) -> None:
        self._library = _library(source, tuple(source.macros(layout, orientation).items()))
        self._signatures = kernels.signatures(source, layout)

    def __call__(self, name: str, size: tuple[int, int, int], *arguments: Argument) -> None:
        # a block of threads makes a block of the picture, or all of it
        if name in ("pixelate", "suppress", "separable"):
            size = (size[0] // kernels.THREADS[0], size[1] // kernels.THREADS[1], size[2])
        assert all(value.is_contiguous() for value in arguments if isinstance(value, torch.Tensor))
        getattr(self._library, f"run_{name}")(*size, self._signatures[name].pack(arguments))

    def handle(self, name: str) -> int:
        """Returns the function's address, by which the stand-in for the driver calls it."""
        return ctypes.cast(getattr(self._library, f"run_{name}"), ctypes.c_void_p).value or 0

    def packed(self, name: str, *arguments: Argument) -> bytes:
        return self._signatures[name].pack(arguments)


class HostGpu:
    """The methods of `context.Gpu` that stages call, in host memory."""

    device = torch.device("cpu")
    stream = cvcuda_stream = None

    def enter(self) -> None: ...

    entered = nullcontext

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        # NaN and noise show where a stage reads memory that it has not written.
        return (
            torch.full(shape, float("nan"), dtype=dtype)
            if dtype.is_floating_point
            else torch.randint(0, 256, shape).to(dtype)
        )

    pinned = empty

    def constant(self, array: Any) -> torch.Tensor:
        return torch.from_numpy(array.copy())

    def download(self, *tensors: torch.Tensor, rows: int | None = None, wait: bool = True) -> list[Any]:
        return [tensor[:rows].clone().numpy() for tensor in tensors]

    def pinned_pool(self) -> PinnedPool:
        return PinnedPool(self)  # type: ignore[arg-type]

    def empty_planes(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        return tuple(self.empty(shape, dtype) for shape in shapes)

    def plane_pool(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, reader: Any = None) -> PlanePool:
        return PlanePool(self, shapes, dtype, reader)  # type: ignore[arg-type]

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)

    def copy_bytes(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def record_event(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None, query=lambda: True)

    def kernels(self, source: KernelSource, layout: PixelFormat, orientation: Orientation = UPRIGHT) -> HostKernels:
        return HostKernels(source, layout, orientation)


class HostCvCuda(ModuleType):
    """The functions of CV-CUDA that stages call, by OpenCV."""

    __version__ = f"OpenCV {cv2.__version__}"
    Border = SimpleNamespace(REFLECT101=cv2.BORDER_REFLECT_101)

    @staticmethod
    def as_tensor(tensor: torch.Tensor, layout: str) -> torch.Tensor:
        assert layout == "NHWC"
        return tensor

    @staticmethod
    def gaussian_into(
        target: torch.Tensor,
        source: torch.Tensor,
        size: tuple[int, int],
        sigma: tuple[float, float],
        border: int,
        *,
        stream: None,
    ) -> None:
        for shown, picture in zip(target.numpy(), source.numpy(), strict=True):
            blurred = cv2.GaussianBlur(picture, size, sigma[0], sigmaY=sigma[1], borderType=border)
            shown[:] = blurred.reshape(shown.shape)


def _put_back(name: str, module: ModuleType | None) -> None:
    """Puts a module, or none, back in `sys.modules` and in the package that it belongs to."""
    package, _, own = name.rpartition(".")
    sys.modules.pop(name, None)
    if package:
        vars(sys.modules[package]).pop(own, None)
    if module is not None:
        sys.modules[name] = module
        if package:
            setattr(sys.modules[package], own, module)


@cache
def host_stages() -> SimpleNamespace:
    """Returns `CvCudaPostprocessor`, preprocessors and `GpuTransfer` with OpenCV in place of CV-CUDA."""
    names = (
        "segmentation.gpu.context",
        "segmentation.gpu.transfer",
        "segmentation.stages.preprocess.cuda",
        "segmentation.stages.preprocess.cuda_crops",
        "segmentation.stages.postprocess.cvcuda",
    )
    kept = {name: sys.modules.pop(name, None) for name in ("cvcuda", *names)}
    sys.modules["cvcuda"] = HostCvCuda("cvcuda")
    try:
        _, transfer, preprocess, crops, postprocess = map(import_module, names)
    finally:
        for name, module in kept.items():
            _put_back(name, module)

    return SimpleNamespace(
        CvCudaPostprocessor=postprocess.CvCudaPostprocessor,
        CudaPreprocessor=preprocess.CudaPreprocessor,
        CudaCrops=crops.CudaCrops,
        GpuTransfer=transfer.GpuTransfer,
    )
