"""Measures many short clips of one command, one by one and several at a time, against one long file.

    python tools/benchmarks/many_inputs.py VIDEO
    python tools/benchmarks/many_inputs.py VIDEO --size 1920x1080 --encode null --way "--jobs 4"      # on a GPU
    PYTHONPATH=tools/lab/experiments/unencoded python tools/benchmarks/many_inputs.py VIDEO --size 1920x1080 \\
        --preset ultrafast --way "--processes 2" --way "--workers local:2"      # which encode nothing then, either

Every command is a process of its own, in which a clip goes first, unmeasured. All kinds take turns. On a machine that
others use too, CPU seconds say more than frames a second. JPEG makes large files, of which the disk may be the limit.
For Linux.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

from benchmark import Result, measured, summary
from clips import make_clip

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation.cli.main import main as segmentation
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation

ENCODED = 1200  # frames that are encoded for a clip; longer ones repeat them


def command(inputs: Path, warm: Path, frames: int, output: Path, options: list[str]) -> Result:
    """Runs the command on a file or a folder, into an empty folder; returns its figures."""
    shared = ["-q", "-y", "-o", f"{output}/", *options]
    assert segmentation([str(warm), *shared]) == 0

    def work() -> int:
        assert segmentation([str(inputs), *shared]) == 0
        return frames

    return measured(work)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Result]:
    """All kinds of commands, taking turns."""
    IMPLEMENTATIONS["encode"]["null"] = Implementation("no_encoder:NoEncoder")  # on a GPU only
    clip = make_clip(options.video, options.frames, options.size, folder, gop=30)
    total = options.clips * options.frames
    long = make_clip(options.video, total, options.size, folder, gop=30, encode=ENCODED)
    clips = folder / "clips"
    clips.mkdir()
    for number in range(options.clips):
        shutil.copy(clip, clips / f"{number:03}{clip.suffix}")
    kinds = {"one file": (long, [])}
    kinds |= {f"{options.clips} clips, {way}": (clips, shlex.split(way)) for way in options.way}
    results: dict[str, list[Result]] = {name: [] for name in kinds}
    for _ in range(options.repeats):
        for name, (inputs, given) in kinds.items():
            with get_context("spawn").Pool(1) as pool:
                chosen = [] if options.encode == "jpeg" else ["--preset", options.preset]  # JPEG has none
                chosen += ["--encode", options.encode] if options.encode else []
                arguments = (inputs, clip, total, folder / "out", [*given, *chosen])
                results[name].append(pool.apply(command, arguments))
            load = os.getloadavg()[0]
            print(f"  {name}: {results[name][-1]['fps']:.1f} fps (load of the machine: {load:.1f})", file=sys.stderr)
    return {name: summary(runs) for name, runs in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures many short clips of one command against one long file.")
    parser.add_argument("video")
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--frames", type=int, default=90, help="of each clip (default: 90)")
    parser.add_argument("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(640, 360), metavar="WxH")
    parser.add_argument(
        "--way", action="append", help="options of the command; may be given again (default: --jobs 1, --jobs 2)"
    )
    parser.add_argument("--preset", default="superfast")
    parser.add_argument("--encode", help="as the program takes it; null: nothing is encoded, on a GPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "many-inputs.json")
    options = parser.parse_args()
    options.way = options.way or ["--jobs 1", "--jobs 2"]
    results = circumstances("benchmarks/many_inputs.py", sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        results["runs"] = runs = measure(options, Path(folder))
    results["load_of_the_machine"] = round(os.getloadavg()[0], 1)
    one = runs["one file"]
    rates = {name: run["fps"]["median"] / one["fps"]["median"] for name, run in runs.items()}
    work = "cpu_seconds_per_1000_frames"
    results["part_of_one_file"] = {name: round(rate, 3) for name, rate in rates.items()}
    results["part_of_one_file_by_cpu_seconds"] = {name: round(one[work] / run[work], 3) for name, run in runs.items()}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print("\n".join(f"{name}: {run['fps']['median']:.1f} fps" for name, run in runs.items()))


if __name__ == "__main__":
    main()
