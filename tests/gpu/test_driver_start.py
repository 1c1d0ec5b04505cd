"""The GPU's driver, which is started beside Python's imports."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from paths import ROOT

from segmentation import __main__ as entry

_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) {
    for (int i = 0; i < 2400 && access(getenv("GO"), F_OK); i++) usleep(100000);
    puts("started");
    fflush(stdout);
    return 100;  // CUDA_ERROR_NO_DEVICE
}
"""
_PROGRAM = """
import os
from segmentation.__main__ import begin_driver
begin_driver()
print("beside it", flush=True)
open(os.environ["GO"], "w").close()  # which the driver waits for: it must not keep the GIL meanwhile
"""


_WAKING = """
import threading
from segmentation.gpu.discovery import wake
wake()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
"""
_TORCH = """
import os
print("imports", flush=True)
open(os.environ["GO"], "w").close()
"""


@pytest.mark.parametrize(("program", "first"), [(_PROGRAM, "beside it"), (_WAKING, "imports")])
def test_the_driver_starts_without_the_gil(program: str, first: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    (tmp_path / "driver.c").write_text(_DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=tmp_path, check=True)
    (tmp_path / "torch.py").write_text(_TORCH)
    paths = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    environment = os.environ | paths | {"GO": str(tmp_path / "go")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == f"{first}\nstarted\n" and not done.stderr


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [("a.mp4", True), ("a.mp4 --device cuda:1", True), ("a.mp4 --device cpu", False), ("a/ --workers=auto", True)],
)
def test_a_command_that_asks_for_no_gpu_starts_none(
    arguments: str, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread.name))
    monkeypatch.setattr(sys, "argv", ["segmentation", *arguments.split()])
    entry.begin_driver()
    assert started == ["driver"] * begun
