"""Lists all that a worker's packets depend on besides the input and the options."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

import av
import cv2

from segmentation._version import __version__
from segmentation.errors import BackendError
from segmentation.gpu.discovery import device_index, driver_version, find_gpu, library_versions
from segmentation.options.config import Config
from segmentation.pipeline.planning.plan import may_use_gpu


def fingerprint(config: Config) -> dict[str, str]:
    """Returns the versions of all that takes part, and the device, of this process."""
    found = {
        "program": __version__,
        "libraries": library_versions(),
        "ffmpeg": av.ffmpeg_version_info,
        "opencv": cv2.__version__,
        "processor": _processor(),
    }
    if may_use_gpu(config):
        with suppress(BackendError):  # the run will say so
            found["gpu"] = f"{find_gpu(device_index(config))}, driver {driver_version()}"
    return found


def differences(one: dict[str, str], other: dict[str, str]) -> str:
    """Returns in words what differs between two fingerprints, an empty string if nothing does."""
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return "; ".join(f"{name}: {other.get(name, 'none')}, not {one.get(name, 'none')}" for name in names)


def _processor() -> str:
    """Returns the model of the CPU, on which the network's arithmetic depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} {model}".strip()
