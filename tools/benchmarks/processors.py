"""Measures whole files with the network on several processors of one machine, which take turns.

    python tools/benchmarks/processors.py VIDEO --devices cpu,openvino --frames 600 --repeats 5 -o FILE.json

Every run is a process of its own, in which a few frames go first. Steady figures leave out a run's start and end. The
machine's load by others is in the JSON: where it is not near 0, CPU seconds compare better than frames a second.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from benchmark import WARM_UP, Result, measured, spread, steady_rate
from clips import make_clip

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import circumstances
from cpu_time import cpu_seconds

from segmentation import Config, segment


def run(clip: Path, config: Config, folder: Path) -> Result:
    """One file, after a few frames of it: `measured`, with the steady rate and what ran the network."""
    segment(clip, folder / "warm.mp4", config, max_frames=WARM_UP)
    marks, used = [(0, time.perf_counter())], [(0, cpu_seconds())]
    plan: dict[str, str] = {}

    def progress(done: int, _: int) -> None:
        marks.append((done, time.perf_counter()))
        used.append((done, cpu_seconds()))

    def work() -> int:
        report = segment(clip, folder / "out.mp4", config, progress=progress)
        plan.update(report.plan)
        return report.frames

    return {
        **measured(work),
        "steady": steady_rate(marks),
        "steady_cpu": 1000 / steady_rate(used),
        "infer": plan["infer"],
    }


def in_turn(clip: Path, config: Config, devices: list[str], repeats: int) -> dict[str, Result]:
    """Each device's figures; which of them goes first changes from round to round."""
    runs: dict[str, list[Result]] = {device: [] for device in devices}
    for number in range(repeats):
        for device in devices[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory(dir=clip.parent) as folder, get_context("spawn").Pool(1) as pool:
                result = pool.apply(run, (clip, replace(config, device=device), Path(folder)))
            print(f"  {device}: {result['steady']:.1f} fps, {result['steady_cpu']:.1f} CPU s/1000", file=sys.stderr)
            runs[device].append(result)
    return {device: summary(several) for device, several in runs.items()}


def summary(runs: list[Result]) -> Result:
    """Repeated runs in one, rounded."""
    return {
        "infer": runs[0]["infer"],
        "frames": runs[0]["frames"],
        "fps": spread(one["fps"] for one in runs),
        "steady_fps": spread(one["steady"] for one in runs),
        "cpu_seconds_per_1000_frames": spread(one["cpu"] for one in runs),
        "steady_cpu_seconds_per_1000_frames": spread(one["steady_cpu"] for one in runs),
        "peak_memory_mib": round(median(one["peak"] for one in runs), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures whole files with the network on several processors in turn.")
    add = parser.add_argument
    add("video", help="what the clip is made from")
    add("--devices", type=lambda text: text.split(","), default=["cpu", "openvino"], metavar="NAME,...")
    add("--frames", type=int, default=600)
    add("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(1920, 1080), metavar="WxH")
    add("--model", action="append", metavar="NAME|FILE.onnx", help="may be repeated (default: person)")
    add("--repeats", type=int, default=5)
    add("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    results = circumstances("benchmarks/processors.py", sys.argv[1:])
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        clip = make_clip(options.video, options.frames, options.size, Path(folder))
        results["clip"] = {"source": Path(options.video).name, "size": list(options.size), "frames": options.frames}
        results["repeats"] = options.repeats
        results["models"] = {
            Path(model).name: in_turn(clip, Config(model=model, overwrite=True), options.devices, options.repeats)
            for model in options.model or ["person"]
        }
    results["load_average"] = {"before": before, "after": os.getloadavg()}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results["models"], indent=2))


if __name__ == "__main__":
    main()
