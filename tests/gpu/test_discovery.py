"""Which GPU each of several processes sees, and the driver's version."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from current_device import fake_cuda

from segmentation.gpu import discovery
from segmentation.gpu.discovery import GpuInfo, device_kept, driver_version, stated_version, visible_gpus
from segmentation.options.config import Config


@pytest.mark.parametrize(
    ("variable", "options", "seen"),
    [
        (None, {}, ["0", "1"]),
        ("", {}, ["0", "1"]),
        ("3,5", {}, ["3", "5"]),
        ("3,5", {"device": "cuda:1"}, ["5"]),
        (None, {"device": "cuda:1"}, ["1"]),
        (None, {"device": "cuda"}, ["0", "1"]),
        (None, {"device": "cpu"}, []),
        (None, {"mode": "baseline"}, []),
    ],
)
def test_each_process_sees_one_of_the_gpus(
    variable: str | None, options: dict[str, Any], seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "find_gpu", lambda index=0: GpuInfo("A GPU", (9, 0)) if index < 2 else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus(Config(**options)) == seen


def test_without_a_gpu_there_is_none_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_gpu", lambda index=0: None)
    assert visible_gpus(Config()) == []


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version:\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3)  "
    "Tue Sep 23 09:55:41 UTC 2025\nGCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)\n"
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (CLOSED, "535.183.01"),
        (OPEN, "580.95.05"),
        (OPEN.replace("x86_64", "aarch64"), "580.95.05"),
        ("something else", "unknown"),
    ],
)
def test_the_drivers_version_is_read_of_closed_and_open_modules(text: str, version: str) -> None:
    assert stated_version(text) == version


def test_the_drivers_own_library_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a library that the compiler makes of two of its functions."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "nvml.c").write_text(
        "#include <string.h>\n"
        "int nvmlInit_v2(void) { return 0; }\nint nvmlShutdown(void) { return 0; }\n"
        'int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.1", size); return 0; }\n'
    )
    library = tmp_path / "libnvml.so"
    subprocess.run([compiler, "-shared", "-fPIC", "nvml.c", "-o", library], cwd=tmp_path, check=True)
    monkeypatch.setattr(discovery, "_NVML", str(library))
    assert driver_version() == "580.1"


@pytest.mark.gpu
def test_the_drivers_version_is_a_number() -> None:
    assert re.fullmatch(r"\d+(\.\d+)+", driver_version())


@pytest.mark.parametrize(("initialized", "after"), [(True, 0), (False, 1)])
def test_a_program_that_uses_cuda_keeps_its_device(
    initialized: bool, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = fake_cuda(monkeypatch, initialized=initialized)
    with pytest.raises(ValueError), device_kept():
        cuda.current = 1
        raise ValueError
    assert cuda.current == after
