"""Measures `--anonymize` on a GPU against the blur of the same clip, in turn.

    python tools/benchmarks/covers_gpu.py VIDEO... --work DIR -o covers-gpu.json
    python tools/benchmarks/covers_gpu.py VIDEO --work DIR --only blur,faces --encode null --repeats 1

Each run is a process of its own, with a warm-up in it. `steady` is the rate without the run's start and end, `of_blur`
the medians' ratio. For Linux.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmark import Result
from benchmark_gpu import ENCODED, gpu, versions
from clips import make_clip
from processes import in_process

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import circumstances

CASES: dict[str, dict[str, Any]] = {
    "blur": {},
    "faces": {"anonymize": "faces"},
    "faces+people": {"anonymize": "faces,people"},
    "people": {"anonymize": "people"},
    "heads": {"anonymize": "heads"},
    "region": {"region": ("0,0,64,64",)},  # no network and a sharp picture: what the encoder leaves
}


def run(folder: Path, clip: Path, case: str, kind: str, frames: int) -> Result:
    """Returns the figures of one run of a clip."""
    from gpu_runs import KINDS, Progress, from_inside

    from segmentation import Config, Report, segment

    config = Config(mode="optimized", overwrite=True, **KINDS[kind], **CASES[case])
    reports: list[Report] = []

    def work(count: int, progress: Progress) -> int:
        reports.append(segment(clip, folder / "out.mp4", config, max_frames=count, progress=progress))
        return reports[-1].frames

    figures = from_inside(work, frames)
    last = reports[-1]
    spent = {stage: round(1000 * seconds / frames, 3) for stage, seconds in last.stages.items()}
    return {**figures, "found": last.found, "stages_ms_a_frame": spent, "plan": last.plan}


def measure(options: argparse.Namespace) -> list[Result]:
    """Runs all cases of each clip in turn, each round in the opposite order, and returns a row for each."""
    rows = []
    for video in options.videos:
        clip = make_clip(video, options.frames, options.size, options.work, rate=30, gop=30, encode=ENCODED)
        found: dict[str, list[Result]] = defaultdict(list)
        for number in range(options.repeats):
            for case in options.only[:: 1 if number % 2 == 0 else -1]:
                with tempfile.TemporaryDirectory(dir=options.work) as folder:
                    arguments = Path(folder), clip, case, options.encode, options.frames
                    found[case].append(in_process("covers_gpu", "run", *arguments))
                print(f"  {Path(video).name}: {case} {found[case][-1]['steady']:.1f} fps", file=sys.stderr, flush=True)
        steady = {case: median(one["steady"] for one in runs) for case, runs in found.items()}
        for case, runs in found.items():
            rows.append({"clip": Path(video).name, "case": case, "steady_fps": round(steady[case], 1)})
            rows[-1] |= {"all_steady_fps": [round(one["steady"], 1) for one in runs]}
            rows[-1] |= {"cpu_seconds_per_1000_frames": round(median(one["cpu"] for one in runs), 2)}
            rows[-1] |= {name: runs[-1][name] for name in ("found", "stages_ms_a_frame", "plan")}
            rows[-1] |= {"of_blur": round(steady[case] / steady["blur"], 3)} if "blur" in steady else {}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--work", type=Path, required=True, help="a folder, best in memory")
    parser.add_argument("--frames", type=int, default=1800)
    parser.add_argument("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(1920, 1080))
    parser.add_argument("--encode", default="x264 ultrafast", help="one of `gpu_runs.KINDS` (default: x264 ultrafast)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES)[:3], help="cases")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    options = parser.parse_args()
    about = circumstances("benchmarks/covers_gpu.py", sys.argv[1:])
    about["hardware"] |= gpu()
    about["versions"] |= versions()
    options.output.write_text(json.dumps(about | {"runs": measure(options)}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
