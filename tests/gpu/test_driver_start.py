"""The GPU's driver, which is started beside Python's imports."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from segmentation import __main__ as entry

_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) {
    for (int i = 0; i < 2400 && access(getenv("GO"), F_OK); i++) usleep(100000);
    puts("started");
    return fflush(stdout);
}
"""
_PROGRAM = """
import os
from segmentation.__main__ import begin_driver
begin_driver()
print("beside it", flush=True)
open(os.environ["GO"], "w").close()  # which the driver waits for: it must not keep the GIL meanwhile
"""


def test_the_driver_starts_without_the_gil(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    (tmp_path / "driver.c").write_text(_DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=tmp_path, check=True)
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "GO": str(tmp_path / "go")}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "beside it\nstarted\n" and not done.stderr


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
