"""Measures what pieces and workers cost on one machine, beside others' ways to spread a video over processes.

    python tools/lab/experiments/workers.py VIDEO -o tools/lab/results/workers.json
    python tools/lab/experiments/workers.py VIDEO --device cuda --frames 28800 --size 1920x1080 --cores 0-15  # on two
    python tools/lab/experiments/workers.py VIDEO --device cuda --frames 28800 --size 1920x1080 --unencoded   # GPUs

Ours are an ordinary run, one worker, several, and several with one killed; the others are those of `worker_peers.py`
that are installed. Every run is a command of its own. All take turns, after two of each with a clip of 10 seconds, of
which the second shows what a start takes. The pictures of the last turn are compared with those of the ordinary run.
With `--cores`, runs by one process have these of the machine's cores, and the first GPU. With `--unencoded` nothing is
encoded, and no pictures are compared: GPUs and pieces are measured alone. With `--ray` workers are Ray's actors too.
On a machine that others use too, CPU seconds say more than frames a second. For Linux.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice, product
from math import log10
from pathlib import Path
from statistics import mean, median
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from benchmark import spread
from circumstances import ROOT, circumstances
from clips import make_clip
from cpu_time import CpuTime

SAME = 60.0  # dB of PSNR, for pictures that are the same
KILLED = ", one killed"
SHORT = 300  # frames of the clip that warms up
UNENCODED = Path(__file__).with_name("unencoded")  # for PYTHONPATH


def commands(
    workers: int, options: list[str], cores: str | None, *, ray: bool, unencoded: bool
) -> dict[str, list[str]]:
    """The command line of each kind, before the input and the output."""
    alone = [] if cores is None else ["taskset", "-c", cores, "env", "CUDA_VISIBLE_DEVICES=0"]
    ours = [sys.executable, "-m", "segmentation", *options, "--json", "-q"]
    several = [*ours, "--workers", f"local:{workers}"]
    kinds = {"ordinary": [*alone, *ours], "local:1": [*alone, *ours, "--workers", "local:1"]}
    kinds |= {f"local:{workers}": several, f"local:{workers}{KILLED}": several}
    kinds |= {"ray": [*ours, "--workers", "ray"]} if ray else {}
    if unencoded:
        path = f"PYTHONPATH={UNENCODED}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return {kind: ["env", path, *command] for kind, command in kinds.items()}
    program = str(Path(__file__).with_name("worker_peers.py"))
    peers = [sys.executable, program, "--workers", str(workers), *options]
    if shutil.which("ffmpeg") is None:
        print("the peers are left out: they need the program ffmpeg", flush=True)
        return kinds
    kinds[f"FFmpeg segment farm, {workers} at a time"] = [*peers, "farm"]
    if find_spec("ray") is None or find_spec("pyarrow") is None:
        print("Ray Data is left out: pip install 'ray[data]'", flush=True)
        return kinds
    return kinds | {f"Ray Data, {workers} actors": [*peers, "ray-data"]}


def run(clip: Path, target: Path, command: list[str], kill_after: float | None) -> dict[str, Any]:
    """Runs one kind; returns its figures, with those of the report if it makes one."""
    output = ["-o", str(target)] if "segmentation" in command else [str(target)]
    begin = time.perf_counter()
    with CpuTime() as cpu, tempfile.TemporaryFile("w+") as errors:
        everything = [*command, str(clip), *output]
        with subprocess.Popen(
            everything, env=cpu.environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process:
            if kill_after is not None:
                threading.Timer(kill_after, kill_worker, [process.pid]).start()
            printed = process.communicate()[0]
        seconds = time.perf_counter() - begin
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(everything)}\n{errors.read()}")
    report = json.loads(printed) if output[0] == "-o" else {}
    with av.open(str(target)) as container:
        frames = sum(bool(packet.size) for packet in container.demux(container.streams.video[0]))
    figures = {"frames": frames, "seconds": seconds, "fps": frames / seconds, "cpu": 1000 * cpu.seconds / frames}
    return figures | {name: report[name] for name in ("inferred", "redone", "stages") if name in report}


def kill_worker(driver: int) -> None:
    """Kills the first worker of a command: they are forked from a process that it has started."""
    for server in children(driver):
        if "segmentation.scale.worker" in Path(f"/proc/{server}/cmdline").read_text() and (workers := children(server)):
            os.kill(workers[0], signal.SIGKILL)
            return


def children(of: int) -> list[int]:
    """Returns the processes that a process has started."""
    tasks = (Path(f"/proc/{of}/task") / task / "children" for task in os.listdir(f"/proc/{of}/task"))
    return [int(child) for task in tasks for child in task.read_text().split()]


def pictures(path: Path) -> Iterator[NDArray[np.uint8]]:
    """All planes of each frame."""
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            yield frame.to_ndarray(format="yuv420p")  # type: ignore[misc]


def likeness(ours: Path, theirs: Path, limit: int) -> dict[str, Any]:
    """How alike the first frames of two outputs are. Raises `ValueError` if one has fewer of these."""
    ratios = []
    for one, other in zip(*(islice(pictures(path), limit) for path in (ours, theirs)), strict=True):
        error = float(np.square(one.astype(np.float32) - other).mean())
        ratios.append(min(SAME, 10 * log10(255**2 / error)) if error else SAME)
    return {
        "frames": len(ratios),
        "psnr_mean": round(mean(ratios), 2),
        "psnr_min": round(min(ratios), 2),
        "frames_that_differ": sum(ratio < SAME for ratio in ratios),
    }


def measure(clips: list[Path], kinds: dict[str, list[str]], repeats: int, compare: int, folder: Path) -> dict[str, Any]:
    """All kinds, taking turns, with the short clip of two and then with the other."""
    targets = {kind: folder / f"{number}.mp4" for number, kind in enumerate(kinds)}
    short = {}
    for turn, (kind, command) in product(range(2), kinds.items()):
        if kind.endswith(KILLED):
            continue
        targets[kind].unlink(missing_ok=True)
        short[kind] = run(clips[0], targets[kind], command, None)["seconds"]
        print(f"{SHORT} frames, turn {turn}, {kind}: {short[kind]:.1f} s", flush=True)
    clip = clips[1]
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for turn in range(repeats):
        for kind, command in kinds.items():
            targets[kind].unlink(missing_ok=True)
            known = [one["seconds"] for one in runs.get(kind.removesuffix(KILLED), [])]
            figures = run(clip, targets[kind], command, 0.6 * median(known) if kind.endswith(KILLED) else None)
            print(f"turn {turn}, {kind}: {figures['seconds']:.1f} s, {figures['cpu']:.1f} CPU s per 1,000", flush=True)
            runs[kind].append(figures)
    return {
        kind: {
            "frames": several[0]["frames"],
            "seconds": spread(one["seconds"] for one in several),
            "fps": spread(one["fps"] for one in several),
            "cpu_seconds_per_1000_frames": spread(one["cpu"] for one in several),
            f"seconds_for_{SHORT}_frames": round(short[kind.removesuffix(KILLED)], 2),
        }
        | ({"compared_with_ordinary": likeness(targets["ordinary"], targets[kind], compare)} if compare else {})
        | {name: [one[name] for one in several] for name in ("inferred", "redone") if name in several[0]}
        | ({"stage_busy_seconds": several[-1]["stages"]} if "stages" in several[-1] else {})
        for kind, several in runs.items()
    }


def version_of_ffmpeg() -> dict[str, str]:
    """The version of the program, if there is one."""
    if shutil.which("ffmpeg") is None:
        return {}
    about = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout
    return {"ffmpeg_program": re.findall(r"version (\S+)", about)[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--frames", type=int, default=1500, help="(%(default)s)")
    parser.add_argument("--size", default="1280x720", help="(%(default)s)")
    parser.add_argument("--gop", type=int, default=30, help="frames of a group of pictures (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="(%(default)s)")
    parser.add_argument("--cores", help="of runs by one process, as taskset takes them (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--compare", type=int, default=1500, help="frames of each output (%(default)s)")
    parser.add_argument("--unencoded", action="store_true", help="encode nothing; on a GPU only")
    parser.add_argument("--ray", action="store_true", help="measure Ray's actors too")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "workers.json")
    parser.add_argument("--device", default="cpu", help="(%(default)s)")
    parser.add_argument("--preset", default="superfast", help="of x264 (%(default)s)")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clips = [
            make_clip(options.video, frames, (width, height), folder, gop=options.gop, encode=600)
            for frames in (SHORT, options.frames)
        ]
        begin = time.perf_counter()
        given = ["--device", options.device, "--preset", options.preset]
        compare = 0 if options.unencoded else options.compare
        kinds = commands(options.workers, given, options.cores, ray=options.ray, unencoded=options.unencoded)
        results = measure(clips, kinds, options.repeats, compare, folder)
    head = circumstances("lab/experiments/workers.py", sys.argv[1:])
    head["versions"] |= version_of_ffmpeg()
    load = {
        "size": options.size,
        "repeats": options.repeats,
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "took_seconds": round(time.perf_counter() - begin),
    }
    options.output.write_text(json.dumps({**head, **load, "kinds": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
