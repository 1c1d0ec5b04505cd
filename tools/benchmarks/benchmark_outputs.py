"""Measures several outputs of one run against a run for each of them, and rendering from saved masks.

    python tools/benchmarks/benchmark_outputs.py VIDEO --frames 600

Every run is a process of its own, so that its peak memory is its own; in it a few frames go first, unmeasured. All
kinds of runs take turns. On a machine that others use too, CPU seconds say more than frames a second. For Linux.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmark import WARM_UP, Result, measured, summary

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation import segment

EFFECTS = ("blur", "mask", "blur:60")
TOGETHER = {f"{count} in one run": {"effects": EFFECTS[:count]} for count in (1, 2, 3)}
APART = {f"{effect} alone": {"effects": (effect,)} for effect in EFFECTS[1:]}
MASKS = {
    "masks saved too": {"effects": EFFECTS[:1], "save_masks": "masks.mkv"},
    "from saved masks": {"effects": EFFECTS[:1], "masks": "masks.mkv"},
}
RUNS: dict[str, dict[str, Any]] = {**TOGETHER, **APART, **MASKS}


def run(clip: str, frames: int, folder: Path, name: str) -> Result:
    """One run, by its name in `RUNS`."""
    kind = RUNS[name]
    effect, *others = kind["effects"]
    also = [(other, folder / f"{i}.mp4") for i, other in enumerate(others)]
    files = {key: folder / value for key, value in kind.items() if key != "effects"}
    segment(clip, folder / "warm.mp4", effect=effect, max_frames=WARM_UP, overwrite=True)
    return measured(
        lambda: (
            segment(
                clip, folder / "out.mp4", effect=effect, also=also, max_frames=frames, overwrite=True, **files
            ).frames
        )
    )


def measure(clip: str, frames: int, repeats: int) -> dict[str, Result]:
    """All kinds of runs, taking turns."""
    runs: dict[str, list[Result]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for name, results in runs.items():
                with get_context("spawn").Pool(1) as pool:
                    results.append(pool.apply(run, (clip, frames, Path(folder), name)))
                print(f"  {name}: {results[-1]['fps']:.1f} fps", file=sys.stderr)
    return {name: summary(results) for name, results in runs.items()}


def table(runs: dict[str, Result]) -> Iterator[str]:
    for name, row in runs.items():
        speed = "{median:.1f} fps ({min:.1f} to {max:.1f})".format(**row["fps"])
        yield f"{name}: {speed}, {row['cpu_seconds_per_1000_frames']} CPU s/1000, {row['peak_memory_mib']:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures several outputs of one run against runs of their own.")
    parser.add_argument("video")
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, help="default: tools/lab/results/outputs-DATE.json")
    options = parser.parse_args()
    results = circumstances("benchmarks/benchmark_outputs.py", sys.argv[1:])
    results["runs"] = measure(options.video, options.frames, options.repeats)
    output = options.output or ROOT / "tools" / "lab" / "results" / f"outputs-{results['date'][:10]}.json"
    output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print("\n".join(table(results["runs"])))


if __name__ == "__main__":
    main()
