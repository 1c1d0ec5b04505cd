"""Ids, choices and further networks on a GPU: what is found, and what is shown, is what the CPU finds and shows."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import SAMPLE, SHARED
from videos import pictures

from segmentation import Segmenter, segment

pytestmark = pytest.mark.gpu

MODELS = SHARED / "models"
FACE_NETWORK = str(MODELS / "faces-yunet.onnx")
FACES = {"then": (f"face={FACE_NETWORK}@person",)}
SMALL = 10_000  # pixels: a mask's smallest parts come and go with rounding


def large(instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in instances if one["box"][2] * one["box"][3] >= SMALL]


def need_faces() -> None:
    if not MODELS.is_dir():
        pytest.skip("the networks of faces are not here: ../shared/models is missing")


@pytest.mark.parametrize(
    "options",
    [
        {"track": "balanced", "effect": "overlay"},
        {"track": "accurate", "keep": "largest", "effect": "blur"},
        {"track": "fast", "keep": "largest", "effect": "color:#00ff00", "interval": 2},
        {**FACES, "effect": "blur@face"},
        {"model": FACE_NETWORK, "effect": "blur"},
        {"model": FACE_NETWORK, "track": "balanced", "keep": "largest", "effect": "overlay"},
    ],
    ids=str,
)
def test_instances_are_those_of_the_cpu(tmp_path: Path, options: dict[str, Any]) -> None:
    if FACE_NETWORK in str(options):
        need_faces()
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for mode in ("optimized", "baseline"):
        results = tmp_path / f"{mode}.jsonl"
        given: dict[str, Any] = {"mode": mode, "max_frames": 40, "batch_size": 16, "quality": 0, **options}
        run = segment(SAMPLE, tmp_path / f"{mode}.mkv", results=results, **given)
        assert run.frames == 40
        if "model" in options:
            assert run.plan["infer"] == ("torch-instances" if mode == "optimized" else "instances")
        found[mode] = [large(json.loads(line)["instances"]) for line in results.read_text().splitlines()]
    assert all(found["baseline"])
    for ours, theirs in zip(found["optimized"], found["baseline"], strict=True):
        assert [(one["id"], one["label"]) for one in ours] == [(one["id"], one["label"]) for one in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a["box"] == pytest.approx(b["box"], abs=20)  # pixels of 640x360, and of its mask's 336x192
    sides = (pictures(tmp_path / f"{mode}.mkv") for mode in ("optimized", "baseline"))
    for one, other in zip(*sides, strict=True):
        assert np.abs(one.planes[0].astype(int) - other.planes[0]).mean() < 1


@pytest.mark.parametrize("options", [{"model": FACE_NETWORK}, FACES], ids=str)
def test_runs_of_one_session_share_a_network_of_single_things(tmp_path: Path, options: dict[str, Any]) -> None:
    """Each run has its own instances and ids, whose pictures went through the network beside those of others."""
    need_faces()
    given: dict[str, Any] = {"track": "balanced", "effect": "overlay", "mode": "optimized", **options}
    with Segmenter(**given) as segmenter, ThreadPoolExecutor(3) as pool:

        def instances(number: int) -> list[list[dict[str, Any]]]:
            results = tmp_path / f"{number}.jsonl"
            segmenter.run(
                SAMPLE, tmp_path / f"{number}.mp4", results=results, max_frames=40 + number
            )  # the last masks lack later ones
            return [json.loads(line)["instances"] for line in results.read_text().splitlines()][:36]

        first, *others = pool.map(instances, range(3))
        assert all(first)
        for other in others:
            for ours, theirs in zip(other, first, strict=True):
                assert [(one["id"], one["label"]) for one in ours] == [(one["id"], one["label"]) for one in theirs]
                for a, b in zip(ours, theirs, strict=True):
                    assert a["box"] == pytest.approx(b["box"], abs=1)


def test_the_frames_of_an_iterator_have_the_instances() -> None:
    need_faces()
    with Segmenter(model=FACE_NETWORK, max_frames=5) as segmenter:
        frames = [frame.instances for frame in segmenter.frames(SAMPLE)]
    assert [len(frame.instances) for frame in frames if frame is not None] == [1] * 5
