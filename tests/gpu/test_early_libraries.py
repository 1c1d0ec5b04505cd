"""A GPU's libraries, loaded beside Python's imports."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

TORCH = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so")
_DRIVER = "int cuInit(unsigned flags) { return 0; } int cuDeviceGetCount(int *count) { *count = DEVICES; return 0; }"
_LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void wait_for_python(void) {
    for (int i = 0; i < 2400 && access(getenv("GO"), F_OK); i++) usleep(100000);
}
"""
_PROGRAM = """
import os, sys, threading
from segmentation.gpu.early_libraries import begin_loading
begin_loading().set()
open(os.environ["GO"], "w").close()  # which the libraries wait for: nothing may keep the GIL while one is loaded
for thread in threading.enumerate()[1:]:
    thread.join()
maps = open("/proc/self/maps").read()
print(*[name for name in {names!r} if f"/{{name}}" in maps])
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""


def loaded(folder: Path, devices: int) -> list[str]:
    """Returns which of PyTorch's libraries are loaded where the driver shows so many GPUs."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    (folder / "torch" / "lib").mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    (folder / "driver.c").write_text(_DRIVER.replace("DEVICES", str(devices)))
    (folder / "library.c").write_text(_LIBRARY)
    build = [compiler, "-shared", "-fPIC"]
    subprocess.run([*build, "-o", folder / "libcuda.so.1", folder / "driver.c"], check=True)
    for name in TORCH:
        subprocess.run([*build, "-o", folder / "torch" / "lib" / name, folder / "library.c"], check=True)
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": paths, "GO": str(folder / "go")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(names=TORCH)],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_pytorchs_libraries_are_loaded_without_the_gil(tmp_path: Path) -> None:
    assert loaded(tmp_path, devices=1) == list(TORCH)


def test_without_a_gpu_none_is_loaded(tmp_path: Path) -> None:
    assert loaded(tmp_path, devices=0) == []


@pytest.mark.gpu
def test_pytorch_takes_what_was_loaded() -> None:
    program = """
import threading
from segmentation.gpu.early_libraries import begin_loading
begin_loading().set()
for thread in threading.enumerate()[1:]:
    thread.join()
assert "/libtorch_cuda.so" in open("/proc/self/maps").read()
import torch
assert torch.ones(2, device="cuda").sum().item() == 2
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("arguments", "begun"), [("a.mp4", True), ("a.mp4 --device cpu", False), ("a/ --workers=auto", False)]
)
def test_processes_without_a_gpu_of_their_own_load_none(
    arguments: str, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from segmentation import __main__ as entry
    from segmentation.gpu import early_libraries

    calls: list[int] = []
    monkeypatch.setattr(early_libraries, "begin_loading", lambda: calls.append(1) or threading.Event())
    monkeypatch.setattr(sys, "argv", ["segmentation", *arguments.split()])
    entry.begin_libraries()
    assert bool(calls) == begun
