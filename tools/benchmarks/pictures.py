"""Measures a picture through a warm session on the CPU against the network's own time for the same picture.

    python tools/benchmarks/pictures.py

The network and the calls take turns, after a warm-up. CPU seconds are those of all threads; on a machine that others
use too, they say more than the clock. For Linux.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation import Config, Segmenter
from segmentation.media.opening.probe import probe
from segmentation.models.model import load_model
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

SIZES = ((640, 360), (1920, 1080), (3840, 2160))  # of the shape of the photograph, and of one of the network's inputs
WARM_UP = 5


def network() -> Callable[[], object]:
    """Returns a call of the network alone, on an input of its own size."""
    photo = str(ROOT / "segmentation" / "models" / "astronaut.jpg")
    model = load_model(Config(), probe(photo))
    tensor = np.random.default_rng(1).normal(size=(1, 3, model.height, model.width)).astype(np.float32)
    infer = OnnxRuntimeInference(model, Config())
    return lambda: infer(tensor)


def times(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, dict[str, float]]:
    """Returns the milliseconds of each call, the calls taking turns: of the clock and of the CPU."""
    clock: dict[str, list[float]] = {name: [] for name in calls}
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(WARM_UP + repeats):
        for name, call in calls.items():
            begin = time.perf_counter(), time.process_time()
            call()
            if repeat >= WARM_UP:
                clock[name].append(1000 * (time.perf_counter() - begin[0]))
                cpu[name].append(1000 * (time.process_time() - begin[1]))
    return {
        name: {
            "median_ms": round(statistics.median(clock[name]), 2),
            "min_ms": round(min(clock[name]), 2),
            "cpu_median_ms": round(statistics.median(cpu[name]), 2),
            "cpu_min_ms": round(min(cpu[name]), 2),
        }
        for name in calls
    }


def measure(repeats: int) -> dict[str, Any]:
    """Returns the times at each size, and their ratios to the network's."""
    photo = cv2.imread(str(ROOT / "segmentation" / "models" / "astronaut.jpg"))
    assert photo is not None
    found: dict[str, Any] = {}
    with Segmenter(mode="baseline", infer="onnxruntime") as segmenter:
        for size in SIZES:
            picture: NDArray[np.uint8] = np.asarray(cv2.resize(photo[..., ::-1], size), np.uint8)
            calls: dict[str, Callable[[], object]] = {"network": network()}
            calls["masks"] = lambda picture=picture: segmenter.masks(picture)
            calls["apply blur:25"] = lambda picture=picture: segmenter.apply(picture, effect="blur:25")
            row: dict[str, Any] = dict(times(calls, repeats))
            for name in ("masks", "apply blur:25"):
                row[name]["of_network"] = {
                    key: round(row[name][key] / row["network"][key], 2) for key in row["network"]
                }
            found["x".join(map(str, size))] = row
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a picture through a warm session on the CPU.")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "pictures.json")
    options = parser.parse_args()
    results = circumstances("benchmarks/pictures.py", sys.argv[1:]) | {"warm_up": WARM_UP, "repeats": options.repeats}
    results["sizes"] = measure(options.repeats)
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for size, row in results["sizes"].items():
        print(size, *(f"{name}: {figures}" for name, figures in row.items()), sep="\n  ")


if __name__ == "__main__":
    main()
