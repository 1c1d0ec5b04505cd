"""Measures what `--interval` costs in accuracy and saves in time, against the network on every frame.

    python tools/quality/intervals.py --shared ../shared

For each clip and interval: how many frames the network saw, the agreement of the masks (IoU, boundary F; smoothed, not
refined) with those of interval 0, mean and worst frame, and the CPU time of the whole run, which other programs on the
machine change little.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances
from measures import boundary_f

from segmentation import Segmenter
from segmentation.options.keywords import Interval

CLIPS = {  # patterns of the files' names, by folder
    "clips": ("person-walking.mp4", "signing-*.mkv"),
    "corpus": ("05_default_juggle.mp4", "04_coffee.mp4", "selfie_segmentation_web.mp4"),
}
INTERVALS: tuple[Interval, ...] = (0, 1, 3, 5, 10, "auto")
Areas = list[NDArray[np.bool_]]
Figures = dict[str, Any]


def areas(path: Path) -> Areas:
    """Returns where each saved mask of a video is above a half."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="gray") > 127 for frame in container.decode(video=0)]


def overlap(found: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Returns the intersection over union of two areas: 1 for two empty ones."""
    union = np.count_nonzero(found | truth)
    return np.count_nonzero(found & truth) / union if union else 1.0


def agreement(found: Areas, truth: Areas) -> Figures:
    """Returns IoU, that of the worst frame, and boundary F of a video's masks against those of another run."""
    pairs = list(zip(found, truth, strict=True))
    ious = [overlap(*pair) for pair in pairs]
    return {
        "iou": round(fmean(ious), 4),
        "worst": round(min(ious), 4),
        "f": round(fmean(boundary_f(*pair) for pair in pairs), 4),
    }


def measure(segmenter: Segmenter, clip: Path, count: int, folder: Path) -> dict[str, Figures]:
    """Returns the figures of one clip by interval."""
    figures: dict[str, Figures] = {}
    truth: Areas = []
    for interval in INTERVALS:
        saved = folder / "masks.mkv"
        options = {"interval": interval, "max_frames": count, "save_masks": saved, "overwrite": True}
        begin = time.process_time()
        report = segmenter.run(clip, folder / "out.mkv", effect="mask", codec="ffv1", **options)  # type: ignore[arg-type]
        spent = time.process_time() - begin
        found = areas(saved)
        truth = truth or found
        figures[str(interval)] = {
            "frames": report.frames,
            "inferred": report.inferred,
            **agreement(found, truth),
            "cpu_ms_per_frame": round(1000 * spent / report.frames, 2),
        }
    return figures


def means(clips: dict[str, dict[str, Figures]]) -> dict[str, Figures]:
    """Returns the figures of all clips together, by interval: each clip counts the same, the worst is the worst."""
    result: dict[str, Figures] = {}
    for interval in map(str, INTERVALS):
        each = [clip[interval] for clip in clips.values()]
        mean = {name: round(fmean(one[name] for one in each), 4) for name in ("iou", "f", "cpu_ms_per_frame")}
        share = round(fmean(one["inferred"] / one["frames"] for one in each), 3)
        result[interval] = mean | {"worst": min(one["worst"] for one in each), "share_inferred": share}
    return result


def table(result: dict[str, Figures]) -> Iterator[str]:
    """Yields the rows of the table in docs/masks.md."""
    for interval, f in result.items():
        yield (
            f"| {interval} | {f['share_inferred']:.0%} | {f['iou']:.3f} | {f['f']:.3f} | {f['worst']:.2f} "
            f"| {f['cpu_ms_per_frame']:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what --interval costs in accuracy and saves in time.")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with clips/ and corpus/")
    parser.add_argument("--model", default="person")
    parser.add_argument("--frames", type=int, default=240, help="of each clip, at most (default: 240)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "intervals.json")
    options = parser.parse_args()
    results = circumstances("quality/intervals.py", sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch, Segmenter(model=options.model) as segmenter:
        results["model"] = Path(options.model).name
        for folder, patterns in CLIPS.items():
            clips: dict[str, dict[str, Figures]] = {}
            for path in (path for pattern in patterns for path in sorted((options.shared / folder).glob(pattern))):
                print(f"  {folder}/{path.name}", file=sys.stderr)
                clips[path.stem] = measure(segmenter, path, options.frames, Path(scratch))
            if not clips:
                parser.error(f"{options.shared / folder} has no clips; name the folder above it by --shared")
            results[folder] = {"clips": clips, "mean": means(clips)}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for folder in CLIPS:
        print(f"{folder}: {len(results[folder]['clips'])}", *table(results[folder]["mean"]), sep="\n")


if __name__ == "__main__":
    main()
