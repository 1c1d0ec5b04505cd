"""Every program in tools/ explains itself on any machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

# Packages of the extras for GPUs and training. An import of one fails, also where it is installed.
ABSENT = (
    "torch",
    "torchvision",
    "cvcuda",
    "PyNvVideoCodec",
    "tensorrt",
    "tensorrt_rtx",
    "onnx2torch",
    "ai_edge_litert",
)
RUN = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({ABSENT}))
sys.argv[:] = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
NEEDS_TORCH = "training/train.py"  # imports it before it reads its arguments


def programs() -> list[Path]:
    """Returns the files in tools/ that do something when they are run."""
    files = sorted((ROOT / "tools").rglob("*.py"))
    return [path for path in files if re.search(r"^if __name__ == |^sys.exit\(main", path.read_text("utf-8"), re.M)]


def cases() -> list[object]:
    fails = pytest.mark.xfail(strict=True, reason="imports PyTorch before it reads its arguments")
    names = [str(path.relative_to(ROOT / "tools")) for path in programs()]
    assert len(names) > 15 and NEEDS_TORCH in names
    return [pytest.param(name, marks=[fails] if name == NEEDS_TORCH else []) for name in names]


@pytest.mark.parametrize("name", cases())
def test_help_needs_no_gpu_packages(name: str) -> None:
    command = [sys.executable, "-c", RUN, str(ROOT / "tools" / name), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ") and "--help" in done.stdout and done.stderr == ""
