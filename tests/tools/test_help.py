"""Every program in tools/ explains itself on any machine."""

import re
import subprocess
import sys

import pytest
from marks import first
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


def programs() -> list[str]:
    """Returns the files in tools/ that do something when they are run."""
    tools = ROOT / "tools"
    runs = re.compile(r"^if __name__ == |^sys.exit\(main", re.M)
    return [
        str(path.relative_to(tools)) for path in sorted(tools.rglob("*.py")) if runs.search(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize("name", first(3, programs()))
def test_help_needs_no_gpu_packages(name: str) -> None:
    command = [sys.executable, "-c", RUN, str(ROOT / "tools" / name), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ") and "--help" in done.stdout and done.stderr == ""
