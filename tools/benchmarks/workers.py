"""Measures what pieces and workers cost on one machine: an ordinary run, one worker, two, and two with one killed.

    python tools/benchmarks/workers.py VIDEO -o tools/results/workers.json

Every run is a command of its own. All kinds take turns, after one run of each that is not counted. On a machine that
others use too, CPU seconds say more than frames a second. For Linux.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmark import measured, spread
from clips import make_clip

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

KINDS = {
    "ordinary": [],
    "local:1": ["--workers", "local:1"],
    "local:2": ["--workers", "local:2"],
    "local:2, one killed": ["--workers", "local:2"],
}


def run(clip: Path, kind: str, options: list[str], kill_after: float) -> dict[str, Any]:
    """Runs one kind; returns its report with wall seconds and CPU seconds, of all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "segmentation", str(clip), "-o", f"{folder}/out.mp4", "--json", "-q"]
        report: dict[str, Any] = {}

        def work() -> int:
            with subprocess.Popen([*command, *KINDS[kind], *options], stdout=subprocess.PIPE, text=True) as process:
                if kind.endswith("killed"):
                    threading.Timer(kill_after, kill_worker, [process.pid]).start()
                report.update(json.loads(process.communicate()[0]))
            return int(report["frames"])

        figures = measured(work)
    return figures | {"redone": report["redone"], "stages": report["stages"], "inferred": report["inferred"]}


def kill_worker(driver: int) -> None:
    """Kills the first worker of a command."""
    for task in os.listdir(f"/proc/{driver}/task"):
        for child in map(int, Path(f"/proc/{driver}/task/{task}/children").read_text().split()):
            if "segmentation.scale.worker" in Path(f"/proc/{child}/cmdline").read_text():
                os.kill(child, signal.SIGKILL)
                return


def measure(clip: Path, options: list[str], repeats: int) -> dict[str, Any]:
    """All kinds, taking turns; the first turn warms up."""
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for turn in range(repeats + 1):
        for kind in KINDS:
            known = [one["seconds"] for one in runs["local:2"]]
            figures = run(clip, kind, options, kill_after=0.6 * (median(known) if known else 20.0))
            print(f"turn {turn}, {kind}: {figures['seconds']:.1f} s, {figures['cpu']:.1f} CPU s per 1,000", flush=True)
            if turn:
                runs[kind].append(figures)
            elif kind == "local:2":
                runs[kind].append(figures)  # for the moment of the kill in this turn
        if not turn:
            runs["local:2"].clear()
    return {
        kind: {
            "frames": several[0]["frames"],
            "seconds": spread(one["seconds"] for one in several),
            "cpu_seconds_per_1000_frames": spread(one["cpu"] for one in several),
            "inferred": several[-1]["inferred"],
            "redone": [one["redone"] for one in several],
            "stage_busy_seconds": several[-1]["stages"],
        }
        for kind, several in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--frames", type=int, default=1500, help="(%(default)s)")
    parser.add_argument("--size", default="1280x720", help="(%(default)s)")
    parser.add_argument("--gop", type=int, default=30, help="frames of a group of pictures (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "results" / "workers.json")
    parser.add_argument("--device", default="cpu", help="(%(default)s)")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        clip = make_clip(options.video, options.frames, (width, height), Path(folder), gop=options.gop, encode=600)
        begin = time.perf_counter()
        kinds = measure(clip, ["--device", options.device], options.repeats)
    head = circumstances("benchmarks/workers.py", sys.argv[1:])
    load = {
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "took_seconds": round(time.perf_counter() - begin),
    }
    options.output.write_text(json.dumps({**head, **load, "kinds": kinds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
