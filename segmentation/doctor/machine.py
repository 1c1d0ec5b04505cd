"""The machine: processor, memory, GPU, driver, and the formats that NVDEC decodes."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from segmentation.doctor.finding import ABSENT, FAILED, OK, Finding, Request, refused
from segmentation.errors import BackendError
from segmentation.gpu.discovery import (
    device_index,
    driver_is_there,
    driver_version,
    find_gpu,
    require_video_libraries,
)
from segmentation.options.config import Config
from segmentation.options.devices import allows_cuda
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS, nvdec_caps, nvdec_formats
from segmentation.system.cores import core_count


def check(request: Request) -> Iterator[Finding]:
    """Yields a finding for the processor, one for the GPU, and one for NVDEC where there is a GPU."""
    memory = ""
    if hasattr(os, "sysconf"):  # not on Windows
        memory = f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB"
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    detail = f"{_processor()}, {core_count()} cores{memory}; {system}"
    yield Finding(name="machine", outcome=OK, detail=detail)
    if not allows_cuda(request.device):
        yield Finding(name="GPU", outcome=ABSENT, detail=f"--device {request.device} leaves NVIDIA's out")
        return
    try:
        index = device_index(Config(device=request.device))
    except BackendError as exc:
        wanted = request.device is not None or driver_is_there()
        yield refused("GPU", exc, FAILED if wanted else ABSENT)
        return
    yield Finding(name="GPU", outcome=OK, detail=f"{find_gpu(index)}, driver {driver_version()}")
    try:
        require_video_libraries()
        yield Finding(name="NVDEC", outcome=OK, detail=", ".join(nvdec_formats(index)), figures=_sizes(index))
    except BackendError as exc:
        yield refused("NVDEC", exc)


def _sizes(index: int) -> dict[str, object]:
    """Returns the least and the largest size by codec, and the number of engines."""
    found: dict[str, object] = {}
    for codec in dict.fromkeys(NVDEC_CODECS.values()):
        caps = nvdec_caps(index, codec, "420", 8)
        if caps.supported:
            sizes = f"{caps.width_min}x{caps.height_min} to {caps.width_max}x{caps.height_max}"
            found[codec.lower()] = f"{sizes}, {caps.engines} engines"
    return found


def _processor() -> str:
    """Returns the processor's name, as Linux has it."""
    with suppress(OSError):
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        if found:
            return found[1]
    return platform.processor() or platform.machine()
