"""Finds the GPU, its driver and its libraries: the driver is asked, never a table of names."""

import ctypes
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from itertools import count, takewhile
from pathlib import Path

from segmentation.errors import BackendError
from segmentation.options.config import Config
from segmentation.options.devices import allows_cuda
from segmentation.system.imports import imported

logging.getLogger("PyNvVideoCodec").propagate = False  # each import logs a version; warnings still show

NVCUVID = "libnvcuvid.so.1"  # NVDEC
DRIVER = "libcuda.so.1"
TORCH_IS_SLOWER = "without a GPU, PyTorch is slower than ONNX Runtime; --infer torch asks for it"
_NVML = "libnvidia-ml.so.1"
_AMD = ("/dev/kfd", "/dev/dxg")  # of its GPUs under Linux, and under Windows' own
_VIDEO = (NVCUVID, "libnvidia-encode.so.1")  # PyNvVideoCodec loads both
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*, cuda.h
_PACKAGES = (
    "torch",
    "cvcuda-cu13",
    "PyNvVideoCodec",
    "cuda-core",
    "tensorrt-cu13",
    "tensorrt-rtx",
    "av",
    "onnxruntime",
)


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """An NVIDIA GPU as its driver describes it."""

    name: str
    capability: tuple[int, int]  # compute capability: major, minor

    def __str__(self) -> str:
        return f"{self.name} (compute capability {dotted(self.capability)})"


def dotted(capability: tuple[int, int]) -> str:
    """Writes a compute capability such as (8, 9) as "8.9"."""
    return f"{capability[0]}.{capability[1]}"


@cache
def find_gpu(index: int = 0) -> GpuInfo | None:
    """Asks the driver for the `index`-th GPU; `None` if there is no such GPU. PyTorch is not needed for that."""
    try:
        cuda = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    count, device, major, minor = (ctypes.c_int() for _ in range(4))
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or index >= count.value:
        return None
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return GpuInfo(name.value.decode(errors="replace"), (major.value, minor.value))


def gpu_memory() -> int:
    """Returns the bytes of the smallest GPU that the driver shows; 0 if there is none."""
    return min((_memory(number) for number in takewhile(find_gpu, count())), default=0)


def _memory(index: int) -> int:
    try:
        cuda, device, size = ctypes.CDLL(DRIVER), ctypes.c_int(), ctypes.c_size_t()
        found = cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    except (OSError, AttributeError):
        return 0
    return 0 if found else size.value


def device_index(config: Config) -> int:
    """Returns the number of the GPU that `config.device` names.

    Raises `BackendError` in one line, with the remedy, if there is no such GPU.
    """
    if not allows_cuda(config.device):
        raise BackendError(
            f"device {config.device}: this needs an NVIDIA GPU; leave out --device, or write --device cuda:0"
        )
    index = int((config.device or "cuda:0").partition(":")[2] or 0)
    require_gpu(index)
    return index


def require_gpu(index: int) -> GpuInfo:
    """Returns the `index`-th GPU. Raises `BackendError` in one line, with the remedy, if there is no such GPU."""
    if (gpu := find_gpu(index)) is not None:
        return gpu
    if not driver_is_there():
        raise BackendError(f"there is no NVIDIA driver ({DRIVER}); install it, or start the container with --gpus all")
    if find_gpu(0) is None:
        raise BackendError("the NVIDIA driver shows no GPU; check nvidia-smi, or start the container with --gpus all")
    raise BackendError(f"device cuda:{index}: the NVIDIA driver shows no such GPU; use --device cuda:0")


def arch_of(index: int) -> str:
    """Returns the compute capability of the `index`-th GPU without its point, such as "90". Raises as `require_gpu`."""
    return "{}{}".format(*require_gpu(index).capability)


def driver_is_there() -> bool:
    """Returns whether NVIDIA's driver can be loaded, whether or not it shows a GPU."""
    return _loads(DRIVER)


def torch_may_find_gpu(device: str | None) -> bool:
    """Returns whether PyTorch may run on a GPU where `--device` is this. To ask PyTorch takes over a second."""
    if not allows_cuda(device):
        return False
    return sys.platform != "linux" or find_gpu() is not None or any(map(os.path.exists, _AMD))


def visible_gpus(config: Config) -> list[str]:
    """Returns what `CUDA_VISIBLE_DEVICES` is to be for a process on each GPU that a run may use; empty for the CPU."""
    if not allows_cuda(config.device) or config.mode == "baseline" or find_gpu() is None:
        return []
    visible = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    numbers = takewhile(lambda number: find_gpu(number) is not None, count())
    names = [visible[number] if visible else str(number) for number in numbers]
    if config.device is not None and ":" in config.device:
        return names[int(config.device.partition(":")[2]) :][:1]
    return names


def enter_context(index: int) -> None:
    """Makes the GPU's primary context, which PyTorch and all libraries use, the calling thread's current context.

    Creating the context takes long. These calls release the GIL meanwhile, those of the libraries keep it.
    Failures are left to the libraries, which report them when they create the context themselves.
    """
    try:
        cuda = ctypes.CDLL(DRIVER)
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if not (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), index)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)  # never released, as in PyTorch
    ):
        cuda.cuCtxSetCurrent(context)


@contextmanager
def in_context(index: int) -> Iterator[None]:
    """Makes the GPU's primary context the current one meanwhile, in a thread that may be the program's own."""
    before = ctypes.c_void_p()
    with suppress(OSError):
        ctypes.CDLL(DRIVER).cuCtxGetCurrent(ctypes.byref(before))
    enter_context(index)
    try:
        yield
    finally:
        with suppress(OSError):
            ctypes.CDLL(DRIVER).cuCtxSetCurrent(before)


@contextmanager
def device_kept() -> Iterator[None]:
    """Leaves PyTorch's current device of the calling thread as it was, where a program has used PyTorch's CUDA."""
    if not getattr(sys.modules.get("torch.cuda"), "is_initialized", bool)():
        yield
        return
    import torch

    with torch.cuda.device(torch.cuda.current_device()):
        yield


def wake() -> None:
    """Imports PyTorch, and makes the context of the first GPU meanwhile, in a process that will need both.

    To start the driver and to make the context take as long as half of the import. Failures are left to whoever needs
    them, as by `enter_context`.
    """
    if find_spec("torch") is None:  # stages are on the CPU then
        return
    threading.Thread(target=enter_context, args=(0,), name="context", daemon=True).start()
    with suppress(Exception):
        imported("torch")


def pin_by_threads() -> None:
    """Lets PyTorch pin memory on several threads; it reads that when it is imported.

    By default one thread pins it, a second for each few gigabytes.
    """
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "pinned_use_cuda_host_register:True,pinned_num_register_threads:8")


@cache
def require_torch() -> None:
    """Raises `BackendError` if PyTorch can't use the GPU that the driver shows."""
    import torch

    if not torch.cuda.is_available():
        built = (
            f"CUDA {torch.version.cuda}, which may be newer than the driver" if torch.version.cuda else "the CPU only"
        )
        raise BackendError(f"PyTorch finds no GPU: it was built for {built}; install another build from pytorch.org")


def require_video_libraries() -> None:
    """Raises `BackendError` if one of the driver's libraries for NVDEC and NVENC can't be loaded."""
    absent = [name for name in _VIDEO if not _loads(name)]
    if absent:
        raise BackendError(
            f"the driver's {absent[0]} is missing; in a container, start it with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"
        )


def driver_version() -> str:
    """Returns the version of NVIDIA's driver, or "unknown"."""
    with suppress(OSError, AttributeError):
        nvml, version = ctypes.CDLL(_NVML), ctypes.create_string_buffer(80)  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
        if not nvml.nvmlInit_v2():
            failed = nvml.nvmlSystemGetDriverVersion(version, len(version))
            nvml.nvmlShutdown()
            if not failed:
                return version.value.decode(errors="replace")
    with suppress(OSError):  # a container without "utility" among its capabilities lacks NVML
        return stated_version(Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
    return "unknown"


def stated_version(text: str) -> str:
    """Returns the version in the text of the kernel's module, or "unknown".

    It stands behind "Kernel Module", and on open kernel modules behind "for x86_64" too.
    """
    found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return found[1] if found else "unknown"


def library_versions() -> str:
    """Returns the installed libraries that stages run on, with their versions."""
    found = {name: installed_version(name) for name in _PACKAGES}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def installed_version(package: str) -> str:
    """Returns the version of a package; "" if the package is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _loads(library: str) -> bool:
    """Returns whether the dynamic linker finds a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
