"""When, how, on what and with what a tool measured: the head of every JSON in tools/lab/results."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import segmentation  # noqa: F401 - before onnxruntime: switches its telemetry off

# isort: split
import av
import cv2
import numpy as np
import onnxruntime as ort

from segmentation import __version__

ROOT = Path(__file__).resolve().parents[2]


def circumstances(program: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Date, command, hardware and versions. Absolute and hidden folders are cut: they say nothing to others."""
    cpu = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) or ["unknown"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    versions = {"segmentation": __version__, "git": git.stdout.strip(), "python": sys.version.split()[0]}
    versions |= {"av": av.__version__, "ffmpeg": av.ffmpeg_version_info, "onnxruntime": ort.__version__}
    versions |= {"opencv": cv2.__version__, "numpy": np.__version__}
    shown = [re.sub(r"(^|=|,)(/|\.\w).*/", r"\1", argument) for argument in arguments]
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["python", f"tools/{program}", *shown]),
        "hardware": {"cpu": cpu[0], "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory, 1)},
        "versions": versions,
    }
