"""Measures on one machine, in one run, how near many files, encoders on the GPU, trainings and GPUs come to the limits.

    python tools/build_native.py && make nvenc-standin
    python tools/lab/experiments/host_aims.py VIDEO --work DIR -o tools/lab/results/host-aims.json

VIDEO is repeated to the lengths that are needed, at 1080p with a keyframe every second. Each part is a process of its
own. After each of them the table is printed so far, and the file written. Some 130 s on one GPU. On
two, `gpus` takes 200 s more, and needs `--seconds 300`. NVENC's part needs the stand-in in `build/nvenc`, or where
`--nvenc` says. For Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice, repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).parents[3]))  # so that a checkout works without being installed

from circumstances import ROOT, circumstances
from clips import make_clip

from segmentation.system.cache import engine_folder

LONG, FILE, CLIP, SHORT = 4800, 600, 90, 300  # frames
SPREAD, SPREAD_X264 = 86400, 28800  # frames of one video for several GPUs
RATES = ("limit", "one", "clips", "files16", "files25", "jpeg", "one-x264", "clips-x264")
_UNENCODED = Path(__file__).with_name("unencoded")  # for PYTHONPATH


class Aim(NamedTuple):
    """A row of the table: a figure of `found`, of another one."""

    text: str
    figure: str
    of: str | None
    aim: float
    least: bool = True  # whether the aim is a least value


AIMS = (
    Aim("one file, nothing encoded, of NVDEC's limit", "one", "limit", 0.92),
    Aim("60 clips of 90 frames, of one file", "clips", "one", 0.85),
    Aim("the same, x264 ultrafast", "clips-x264", "one-x264", 0.95),
    Aim("16 files, one process, of NVDEC's limit", "files16", "limit", 0.92),
    Aim("25 files, one process, of NVDEC's limit", "files25", "limit", 0.92),
    Aim("JPEG, of NVDEC's limit", "jpeg", "limit", 0.88),
    Aim("a stand-in NVENC that encodes nothing, of NVDEC's limit", "nvenc", "limit", 0.9),
    Aim("a start of four workers, times one process's", "start of four", "start of one", 1.3, least=False),
    Aim(f"two GPUs, {SPREAD} frames, nothing encoded, times one", "one GPU", "two GPUs", 1.85),
    Aim(
        f"two GPUs, {SPREAD_X264} frames, x264, as many cores each, times one", "one GPU, x264", "two GPUs, x264", 1.85
    ),
    Aim("an iteration of a training at 1080p, ms more", "training", None, 0.5, least=False),
    Aim("CPU seconds for 1,000 frames, nothing encoded", "one, cpu", None, 0.35, least=False),
)


def clip(options: argparse.Namespace, frames: int) -> Path:
    return make_clip(options.video, frames, (1920, 1080), options.work, gop=30, rate=30, encode=min(FILE, frames))


class Rates:
    """Frames a second of one process, whose session has each encoder."""

    def __init__(self, options: argparse.Namespace) -> None:
        from segmentation import Config, Segmenter
        from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
        from segmentation.pipeline.planning.parallelism import choose_parallelism

        IMPLEMENTATIONS["encode"]["null"] = Implementation("no_encoder:NoEncoder")
        self._options = options
        common: dict[str, Any] = {"mode": "optimized", "overwrite": True}
        self._sessions = {
            "null": Segmenter(Config(encode="null", **common)),
            "jpeg": Segmenter(Config(encode="jpeg", **common)),
            "nvenc": Segmenter(Config(encode="nvenc", **common)),
            "x264": Segmenter(Config(encode="x264-segments", preset="ultrafast", **common)),
        }
        self._jobs = choose_parallelism(Config(**common), (), "auto", 1).jobs

    def one(self, encoder: str, frames: int, number: int = 0) -> int:
        target = self._options.work / f"out{number}{'.mkv' if encoder == 'jpeg' else '.mp4'}"
        return int(self._sessions[encoder].run(clip(self._options, frames), target).frames)

    def many(self, encoder: str, frames: int, count: int, at_once: int) -> int:
        with ThreadPoolExecutor(at_once) as pool:
            return sum(pool.map(lambda number: self.one(encoder, frames, number), range(count)))

    def work(self, name: str) -> Callable[[], int]:
        """Returns what runs one of `RATES`, but for the limit, or nvenc, and returns its frames."""
        case, _, encoder = name.partition("-")
        match case:
            case "one":
                return lambda: self.one(encoder or "null", LONG)
            case "clips":
                return lambda: self.many(encoder or "null", CLIP, 60, self._jobs)
            case "files16" | "files25":
                count = int(case.removeprefix("files"))
                return lambda: self.many("null", FILE, count, count)
            case _:
                return lambda: self.one(case, LONG)

    def limit(self) -> dict[str, float]:
        """Returns the figures of NVDEC's limit: as many decoders as engines, which know nothing of each other."""
        from gpu_decoders import Independent
        from native_decoder import measured

        from segmentation import Config
        from segmentation.media.opening.probe import probe
        from segmentation.stages.decode.nvdec_support import nvdec_engines

        info = probe(str(clip(self._options, LONG)))
        with Independent(info, nvdec_engines(Config(), info)) as decoders:
            return measured(lambda: int(decoders.decode(LONG)))


def rates(options: argparse.Namespace, names: tuple[str, ...]) -> dict[str, list[float]]:
    """Returns the frames a second of each case, twice where nothing is encoded by x264, and one file's CPU seconds."""
    from native_decoder import measured

    made = Rates(options)
    for frames in (LONG, FILE, CLIP):  # before threads that would make the same one at once
        clip(options, frames)
    for name in names:
        encoder = {"jpeg": "jpeg", "nvenc": "nvenc"}.get(name, name.partition("-")[2] or "null")
        made.many(encoder, CLIP, 4, 4)
    made.one("null", FILE)
    found: dict[str, list[float]] = {}
    for turn in range(2):
        for name in names[:: -1 if turn else 1]:
            if turn and name.endswith("x264"):
                continue
            figures = made.limit() if name == "limit" else measured(made.work(name))
            print(f"  {name}: {figures}", flush=True)
            found.setdefault(name, []).append(figures["fps"])
            if name == "one":
                found.setdefault("one, cpu", []).append(figures["cpu"])
    return found


def training(options: argparse.Namespace) -> dict[str, list[float]]:
    """Returns what an iteration takes more, in ms, whose batches are decoded at 1080p meanwhile."""
    import clip_grid

    from segmentation.clips import ClipDataset

    video, iterations = clip(options, FILE), 25
    clips = 4 * iterations * clip_grid.BATCH
    dataset = ClipDataset([video] * -(-clips // (FILE // clip_grid.LENGTH)), length=clip_grid.LENGTH)
    figures = clip_grid.measured(dataset, "float32", "cuda", None, iterations)
    print(f"  training: {figures}", flush=True)
    return {"training": [figures["overhead_ms"]], "loading": [figures["loading_ms"]]}


def command(options: argparse.Namespace, frames: int, *more: str, cores: str | None = None) -> float:
    """Returns the seconds of a whole command."""
    program = [sys.executable, "-m", "segmentation", str(clip(options, frames)), "-q", "-y", "--preset", "ultrafast"]
    program += ["-o", str(options.work / "whole.mp4"), *more]
    environment = dict(os.environ)
    if "x264" not in more[-1:]:
        environment["PYTHONPATH"] = f"{_UNENCODED}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    program = [part for part in program if part != "x264"]
    if cores is not None:
        program, environment["CUDA_VISIBLE_DEVICES"] = ["taskset", "-c", cores, *program], "0"
    begin = time.perf_counter()
    subprocess.run(program, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    print(f"  {frames} frames {' '.join(more)} {cores or ''}: {seconds:.2f} s", flush=True)
    return seconds


def starts(options: argparse.Namespace) -> dict[str, list[float]]:
    """Returns the seconds of a start, a command of few frames: of one process and of four workers."""
    found: dict[str, list[float]] = {"start of one": [], "start of four": []}
    for _ in range(3):
        found["start of one"].append(command(options, SHORT))
        found["start of four"].append(command(options, SHORT, "--workers", "local:4"))
    return {name: seconds[1:] for name, seconds in found.items()}


def encoder_alone(video: str, core: int, seconds: float) -> float:
    """Returns the frames a second that x264 with one thread encodes on a core, from frames in memory."""
    import av

    os.sched_setaffinity(0, {core})
    with av.open(video) as container:
        frames = list(islice(container.decode(video=0), 30))
    with av.open(os.devnull, "w", format="null") as made:
        stream = made.add_stream("libx264", rate=30, options={"preset": "ultrafast", "threads": "1"})
        stream.width, stream.height = frames[0].width, frames[0].height
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            frame = frames[count % len(frames)]
            frame.pts, frame.pict_type = count, av.video.frame.PictureType.NONE  # not the source's
            stream.encode(frame)
            count += 1
        return count / (time.perf_counter() - begin)


def encoders_alone(options: argparse.Namespace, cores: list[int]) -> float:
    """Returns the frames a second of as many encoders as cores, which do nothing else."""
    with ProcessPoolExecutor(len(cores), get_context("spawn")) as pool:
        rate = sum(pool.map(encoder_alone, repeat(str(clip(options, CLIP))), cores, repeat(5.0)))
    print(f"  x264 alone on {len(cores)} cores: {rate:.0f} frames a second", flush=True)
    return rate


def gpus(options: argparse.Namespace) -> dict[str, list[float]]:
    """Returns the seconds of whole commands on one GPU with half of the cores, and on two with all."""
    cores = sorted(os.sched_getaffinity(0))
    half = ",".join(map(str, cores[: len(cores) // 2]))
    command(options, SHORT)  # fills the caches of networks and kernels
    found: dict[str, list[float]] = {"one GPU": [], "two GPUs": [], "one GPU, x264": [], "two GPUs, x264": []}
    found["x264 alone, half"] = [encoders_alone(options, cores[: len(cores) // 2])]
    found["x264 alone, all"] = [encoders_alone(options, cores)]
    for _ in range(2):
        found["one GPU"].append(command(options, SPREAD, cores=half))
        found["two GPUs"].append(command(options, SPREAD, "--workers", "local:2"))
        found["one GPU, x264"].append(command(options, SPREAD_X264, "x264", cores=half))
        found["two GPUs, x264"].append(command(options, SPREAD_X264, "--workers", "local:2", "x264"))
    return found


def count_gpus() -> int:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return len([line for line in listed.splitlines() if line.startswith("GPU ")])


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, list[float]]]] = {
    "rates": lambda options: rates(options, RATES),
    "nvenc": lambda options: rates(options, ("one", "nvenc")),
    "training": training,
    "starts": starts,
    "gpus": gpus,
}


def table(found: dict[str, list[float]]) -> str:
    """Returns the rows whose figures are there."""
    rows = ["| | figure | aim | |", "|---|---|---|---|"]
    for aim in AIMS:
        if aim.figure not in found or (aim.of is not None and aim.of not in found):
            continue
        value = median(found[aim.figure]) / (1 if aim.of is None else median(found[aim.of]))
        met = value >= aim.aim if aim.least else value <= aim.aim
        sign = ">=" if aim.least else "<="
        rows.append(f"| {aim.text} | {value:.3g} | {sign} {aim.aim} | {'met' if met else 'missed'} |")
    return "\n".join(rows)


def in_own_process(part: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Returns what a part has found; nothing if it fails, which its output tells."""
    environment = dict(os.environ)
    if part == "nvenc":
        engines = options.work / "engines"  # without the note that this GPU has no NVENC
        shutil.copytree(engine_folder(), engines, ignore=shutil.ignore_patterns("no-nvenc-*"), dirs_exist_ok=True)
        environment |= {"NVENC_STANDIN_EMPTY": "1", "LD_LIBRARY_PATH": str(options.nvenc)}
        environment["SEGMENTATION_ENGINES"] = str(engines)
    result = options.work / f"{part}.json"
    result.unlink(missing_ok=True)
    program = [sys.executable, __file__, options.video, "--work", str(options.work), "--part", part]
    try:
        subprocess.run([*program, "-o", str(result)], env=environment, timeout=options.seconds, check=False)
    except subprocess.TimeoutExpired:
        print(f"  {part}: takes more than {options.seconds:g} s", flush=True)
    found: dict[str, list[float]] = json.loads(result.read_text()) if result.exists() else {}
    return {name: figures for name, figures in found.items() if part != "nvenc" or name == "nvenc"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--work", type=Path, required=True, help="folder for clips and outputs, best in memory")
    parser.add_argument("--parts", default="rates,nvenc,training,starts,gpus")
    parser.add_argument("--part", choices=PARTS, help="this one alone, in this process")
    parser.add_argument("--nvenc", type=Path, default=ROOT / "build" / "nvenc", help="folder of the stand-in")
    parser.add_argument("--seconds", type=float, default=90, help="that a part may take (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "host-aims.json")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True, parents=True)
    if options.part:
        options.output.write_text(json.dumps(PARTS[options.part](options)))
        return
    from benchmark_gpu import gpu, versions

    results = circumstances("lab/experiments/host_aims.py", sys.argv[1:])
    results["hardware"] |= gpu()
    results["versions"] |= versions()
    found: dict[str, list[float]] = {}
    two = count_gpus() > 1
    for part in options.parts.split(","):
        if (part == "nvenc" and not options.nvenc.exists()) or (part == "gpus" and not two):
            continue
        begin = time.perf_counter()
        found |= in_own_process(part, options)
        print(f"{part}: {time.perf_counter() - begin:.0f} s\n{table(found)}", flush=True)
        options.output.write_text(json.dumps({**results, "found": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
