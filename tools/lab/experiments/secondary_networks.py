"""Measures what further networks on people cost beside the first, and how far kept answers are from fresh ones.

    python tools/lab/experiments/secondary_networks.py ../shared/corpus/selfie_segmentation_web.mp4 \\
        --models ../shared/models

Pipelines take turns, after a run that is not measured: people; with ids; with their faces; with what covers the faces.
Each writes a video with the same effect. Then the faces of each frame are compared with those that the network finds
when it looks at every frame.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation import Segmenter
from segmentation.tracking import secondary_steps
from segmentation.tracking.motion import box_iou

Boxes = list[NDArray[np.float64]]


def pipelines(models: Path) -> dict[str, dict[str, Any]]:
    """Returns the options of each pipeline by its name."""
    face = f"face={models / 'faces-yunet.onnx'}@person"
    cover = f"cover={models / 'faces-masked-rfb640.onnx'}@face"
    return {
        "people": {},
        "people with ids": {"track": "balanced"},
        "people, faces": {"then": (face,)},
        "people, faces, covers": {"then": (face, cover)},
    }


def timed(segmenter: Segmenter, video: str, output: Path) -> dict[str, float]:
    """Returns milliseconds of the wall clock and of all cores for a frame of one run."""
    begin, cpu = time.perf_counter(), time.process_time()
    frames = segmenter.run(video, output, effect="overlay", overwrite=True).frames
    return {
        "wall_ms": 1000 * (time.perf_counter() - begin) / frames,
        "cpu_ms": 1000 * (time.process_time() - cpu) / frames,
    }


def measure(videos: Sequence[str], pipelines: dict[str, dict[str, Any]], repeats: int) -> dict[str, Any]:
    """Returns the figures of all pipelines, whose options are given by name, by video."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        segmenters = {name: Segmenter(**options) for name, options in pipelines.items()}
        for video in videos:
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in segmenters}
            for number in range(repeats + 1):
                for name, segmenter in segmenters.items():
                    result = timed(segmenter, video, Path(folder) / "out.mp4")
                    if number:
                        rounds[name].append(result)
            found[Path(video).name] = {
                name: {
                    key: {"median": round(statistics.median(values), 2), "least": round(min(values), 2)}
                    for key in ("wall_ms", "cpu_ms")
                    if (values := [result[key] for result in results])
                }
                for name, results in rounds.items()
            }
        for segmenter in segmenters.values():
            segmenter.close()
    return found


def faces(video: str, then: tuple[str, ...], fresh: float) -> list[Boxes]:
    """Returns the boxes of the faces of each frame, if answers are kept for `fresh` seconds."""
    secondary_steps.FRESH = fresh
    with Segmenter(then=then) as segmenter:
        return [
            [np.array(one.box) for one in frame.instances.instances if one.label == "face"]
            for frame in segmenter.frames(video)
            if frame.instances is not None
        ]


def agreement(video: str, then: tuple[str, ...], fresh: float) -> dict[str, float]:
    """Compares kept faces with those that are looked for in every frame."""
    pairs = zip(faces(video, then, 0), faces(video, then, fresh), strict=True)
    overlaps = [max((box_iou(face, other) for other in kept), default=0.0) for each, kept in pairs for face in each]
    return {
        "faces": len(overlaps),
        "mean_iou": round(float(np.mean(overlaps)), 3),
        "iou_5_percent": round(float(np.percentile(overlaps, 5)), 3),
        "found": round(float(np.mean(np.array(overlaps) > 0.3)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("videos", nargs="+", help="videos of people")
    parser.add_argument("--models", type=Path, required=True, help="folder of the two networks of faces")
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of each pipeline (default: 5)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools/lab/results/secondary-networks.json")
    options = parser.parse_args()
    head = circumstances("lab/experiments/secondary_networks.py", sys.argv[1:])
    then = pipelines(options.models)["people, faces"]["then"]
    times = (secondary_steps.FRESH, 2 * secondary_steps.FRESH)
    result = {
        **head,
        "milliseconds_a_frame": measure(options.videos, pipelines(options.models), options.repeats),
        "kept_faces": {
            Path(video).name: {f"{fresh:g} s": agreement(video, then, fresh) for fresh in times}
            for video in options.videos
        },
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["milliseconds_a_frame"], indent=2), json.dumps(result["kept_faces"], indent=2))


if __name__ == "__main__":
    main()
