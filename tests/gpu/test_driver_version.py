"""The version of the driver, as its kernel module states it."""

from pathlib import Path

import pytest

from segmentation.gpu.discovery import driver_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2026\n", "550.54.15"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n", "580.159.04"),
        ("something else\n", "unknown"),
    ],
    ids=["closed", "open", "neither"],
)
def test_both_kernel_modules_state_their_version(monkeypatch: pytest.MonkeyPatch, text: str, version: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert driver_version() == version
