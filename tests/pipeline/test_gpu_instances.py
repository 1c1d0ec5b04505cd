"""Ids, choices and further networks on a GPU: what is found, and what is shown, is what the CPU finds and shows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import SAMPLE, SHARED
from videos import pictures

from segmentation import segment

pytestmark = pytest.mark.gpu

MODELS = SHARED / "models"
FACES = {"then": (f"face={MODELS / 'faces-yunet.onnx'}@person",)}
SMALL = 10_000  # pixels: a mask's smallest parts come and go with rounding


def large(instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in instances if one["box"][2] * one["box"][3] >= SMALL]


@pytest.mark.parametrize(
    "options",
    [
        {"track": "balanced", "effect": "overlay"},
        {"track": "accurate", "keep": "largest", "effect": "blur"},
        {"track": "fast", "keep": "largest", "effect": "color:#00ff00", "interval": 2},
        {**FACES, "effect": "blur@face"},
    ],
    ids=str,
)
def test_instances_are_those_of_the_cpu(tmp_path: Path, options: dict[str, Any]) -> None:
    if "then" in options and not MODELS.is_dir():
        pytest.skip("the networks of faces are not here: ../shared/models is missing")
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for mode in ("optimized", "baseline"):
        results = tmp_path / f"{mode}.jsonl"
        given: dict[str, Any] = {"mode": mode, "max_frames": 40, "batch_size": 16, "quality": 0, **options}
        run = segment(SAMPLE, tmp_path / f"{mode}.mkv", results=results, **given)
        assert run.frames == 40
        found[mode] = [large(json.loads(line)["instances"]) for line in results.read_text().splitlines()]
    assert all(found["baseline"])
    for ours, theirs in zip(found["optimized"], found["baseline"], strict=True):
        assert [(one["id"], one["label"]) for one in ours] == [(one["id"], one["label"]) for one in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a["box"] == pytest.approx(b["box"], abs=20)  # pixels of 640x360, and of its mask's 336x192
    sides = (pictures(tmp_path / f"{mode}.mkv") for mode in ("optimized", "baseline"))
    for one, other in zip(*sides, strict=True):
        assert np.abs(one.planes[0].astype(int) - other.planes[0]).mean() < 1
