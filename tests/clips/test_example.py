"""The example `samples/train_masks.py`: it learns, and goes on where it stopped as if it had not."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marks import DEVICES
from numbered import numbered
from paths import ROOT

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture
def example() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("train_masks", ROOT / "samples" / "train_masks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = torch.are_deterministic_algorithms_enabled()
    yield module
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("device", DEVICES)
def test_training_goes_on_where_it_stopped(device: str, example: Any, tmp_path: Path) -> None:
    for name, codec, pix_fmt in (("a.mp4", "libx264", "yuv420p"), ("a.masks.mkv", "ffv1", "gray")):
        numbered(tmp_path / name, 96, codec, pix_fmt=pix_fmt)

    def run(steps: int, output: str) -> list[float]:
        given = [str(tmp_path / "a.mp4"), str(tmp_path), "--steps", str(steps), "--batch", "2", "-o", output]
        losses: list[float] = example.main([*given, "--device", device])
        return losses

    whole = run(14, str(tmp_path / "whole.pt"))
    parts = [run(steps, str(tmp_path / "parts.pt")) for steps in (5, 6, 14)]  # an epoch has six batches
    assert [len(part) for part in parts] == [5, 1, 8] and [loss for part in parts for loss in part] == whole
    assert whole[-1] < whole[0]
    first, second = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("whole", "parts"))
    assert first["loader"] == second["loader"]
    assert all(torch.equal(first["network"][name], second["network"][name]) for name in first["network"])
