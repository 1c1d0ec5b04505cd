"""Chooses between TensorRT and TensorRT-RTX, by the GPU and the packages that are installed.

Their Python interfaces are the same except where `Variant.rtx` is tested, so the same code drives both.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from segmentation.errors import BackendError, ConfigError
from segmentation.gpu.discovery import GpuInfo, dotted

BUILDERS = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}
LEAN = "tensorrt_lean"  # runs engines that TensorRT has built version compatible, and builds none
TITLES = {**BUILDERS, LEAN: "TensorRT's lean runtime"}
RTX_SERVES = "7.5, 8.0, 8.6, 8.9, 12.x"  # compute capabilities, TensorRT-RTX 1.7
_OLDEST = (7, 5)
_LEAST_VERSION = (10, 13)  # of TensorRT: the calls here are those of 10.13 to 11.4
_RTX = {(7, 5), (8, 0), (8, 6), (8, 9)}
_INSTALL = {
    "tensorrt": "pip install 'tensorrt-cu13>=10.13' (which fetches its libraries from pypi.nvidia.com)",
    "tensorrt_rtx": "pip install tensorrt-rtx",
    LEAN: "pip install 'tensorrt-lean-cu13>=10.13' (likewise)",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the packages, as it is installed on this machine."""

    module: str  # "tensorrt", "tensorrt_rtx" or "tensorrt_lean"
    version: str

    @property
    def rtx(self) -> bool:
        """Whether this is TensorRT-RTX."""
        return self.module == "tensorrt_rtx"

    def __str__(self) -> str:
        return f"{TITLES[self.module]} {self.version}"


@cache
def installed() -> Mapping[str, str]:
    """Returns the versions of the variants that can be imported, by module.

    Each run asks. An import that fails looks through all folders again, where other threads wait for the GIL.
    """
    found = {}
    for module in TITLES:
        try:
            found[module] = str(import_module(module).__version__)
        except (ImportError, OSError, AttributeError) as exc:  # its libraries may be missing or another's
            log.debug("%s: %s", module, exc)
    return found


def choose(
    gpu: GpuInfo | None, available: Mapping[str, str], wanted: str | None = None, *, build: bool = False
) -> Variant:
    """Returns the variant that serves `gpu`: TensorRT where it is installed, else TensorRT-RTX, else the lean runtime.

    `available` is `installed()`; `wanted` is a key of `BUILDERS`, if the user names one. With `build` no engine is run,
    so TensorRT-RTX needs no GPU. Raises `BackendError`, which names the package to install, and `ConfigError` for an
    unknown name.
    """
    if wanted is not None and wanted not in BUILDERS:
        raise ConfigError(f"variant {wanted!r} is unknown: choose from {', '.join(BUILDERS)}")
    if gpu is None and not build:
        raise BackendError("TensorRT needs an NVIDIA GPU, and CUDA shows none here; use --infer torch or onnxruntime")
    if build and wanted == "tensorrt_rtx" and gpu is not None and not serves(wanted, gpu.capability):
        gpu = None  # asked for by name, it builds for other machines
    modules = (wanted,) if wanted is not None else tuple(BUILDERS)
    if wanted is None and not build and LEAN in available:
        modules += (LEAN,)
    reasons = []
    for module in modules:
        reason = _refusal(module, gpu, available)
        if reason is None:
            return Variant(module, available[module])
        reasons.append(reason)
    raise BackendError("; ".join(reasons))


def _refusal(module: str, gpu: GpuInfo | None, available: Mapping[str, str]) -> str | None:
    """Returns why a variant can't serve the GPU; `None` if it can."""
    title = TITLES[module]
    if gpu is None:
        if module == "tensorrt":
            return f"{title} builds for the GPU that it runs on, and CUDA shows none here"
    elif not serves(module, gpu.capability):
        range_ = RTX_SERVES if module == "tensorrt_rtx" else f"{dotted(_OLDEST)} and newer"
        return f"{title} serves compute capability {range_}, and this is {gpu}"
    if module not in available:
        return f"{title} is not installed: {_INSTALL[module]}"
    if module != "tensorrt_rtx" and release(available[module]) < _LEAST_VERSION:
        return f"{title} {available[module]} is too old, {dotted(_LEAST_VERSION)} is the least: {_INSTALL[module]}"
    return None


def release(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version by which plans and runtimes belong together, such as (11, 4, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def serves(module: str, capability: tuple[int, int]) -> bool:
    """Returns whether a variant has kernels for GPUs of this compute capability."""
    if module == "tensorrt_rtx":
        return capability in _RTX or capability[0] == 12
    return capability >= _OLDEST


@cache
def logger(trt: ModuleType) -> Any:
    """Returns the process's logger for a variant's module: TensorRT keeps the first logger that is passed to it.

    Messages go to `logging` at level debug. Errors are kept in the list `errors` as well, because calls that fail
    return no reason.
    """

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(" ".join(message.split()))
            log.debug("%s", message)

    return Logger()
