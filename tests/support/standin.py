"""Builds the stand-in for NVENC and runs programs with it: see `nvenc/nvenc.c` for what it does and what can go wrong.

Where there is no driver, they run with one for CUDA as well, whose device memory is host memory.
"""

import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

SOURCE = ROOT / "tests" / "support" / "nvenc"
BUILT = ROOT / "build" / "nvenc"
_LIBRARY = BUILT / "libnvidia-encode.so.1"
_HEADERS = ("ffnvcodec/nvEncodeAPI.h", "stdint.h", "x264.h", "x265.h", "aom/aom_encoder.h")


@cache
def build() -> None:
    """Builds it where it can be built. Elsewhere a build that was carried here serves; without one the test skips."""
    if _has_headers():
        BUILT.mkdir(parents=True, exist_ok=True)
        with (BUILT / "lock").open("w") as lock:  # tests run in several processes
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(["make", "-C", SOURCE, f"OUT={BUILT}"], check=True, stdout=subprocess.DEVNULL)
    elif not _LIBRARY.is_file():
        packages = "gcc make libffmpeg-nvenc-dev libx264-dev libx265-dev libaom-dev"
        pytest.skip(f"NVENC's stand-in can't be built: apt-get install {packages}")


def _has_headers() -> bool:
    if not shutil.which("make") or not shutil.which("cc"):
        return False
    source = "".join(f"#include <{name}>\n" for name in _HEADERS)
    command = ["cc", "-fsyntax-only", "-x", "c", "-"]
    return subprocess.run(command, input=source, text=True, stderr=subprocess.DEVNULL).returncode == 0


@cache
def has_driver() -> bool:
    """Returns whether there is a CUDA driver, whose memory the stand-in then reads."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def environment(**variables: str) -> dict[str, str]:
    """Returns the environment of a process that finds the stand-in. `FAULT="lost@3"` is NVENC_STANDIN_FAULT there."""
    libraries = [str(BUILT), *([] if has_driver() else [str(BUILT / "host")])]
    paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": [str(ROOT), str(ROOT / "tests" / "support")]}
    return {
        **os.environ,
        **{name: os.pathsep.join([*first, *filter(None, [os.environ.get(name)])]) for name, first in paths.items()},
        **{f"NVENC_STANDIN_{name}": value for name, value in variables.items()},
    }


def run(job: str, folder: Path, *arguments: Any, **variables: str) -> Any:
    """Runs a function of `nvenc_client.py` with the stand-in. Returns what it returned, or the error's text as `str`.

    `folder` is its own: engines' notes and the stand-in's log go there.
    """
    build()
    command = [sys.executable, ROOT / "tests" / "support" / "nvenc_client.py", job, json.dumps(arguments)]
    variables = {"LOG": str(folder / "log"), **variables}
    env = {**environment(**variables), "SEGMENTATION_ENGINES": str(folder / "engines")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    return result["error"] if "error" in result else result["value"]


def sessions(folder: Path) -> list[dict[str, Any]]:
    """Returns what the stand-in says of each session that `run` closed: the proof that it served."""
    log = folder / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
