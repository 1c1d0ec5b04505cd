"""How fast many videos go at once, by tracker, interval and networks, and what an interval costs in accuracy.

`streams.py experiments` runs it. The grid is that of NVIDIA's published benchmark of DeepStream, whose figures state no
accuracy. Videos go as fast as they can, so that a frame rate is what each of so many streams could have.
"""

import re
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "quality"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from benchmark import measured
from clips import make_clip
from intervals import Areas, agreement, areas
from secondary_networks import pipelines
from stream_peers import LOOP, loops, whole_run

from segmentation import Report, Segmenter
from segmentation.gpu.discovery import find_gpu
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.sessions.processes import session as in_processes

ONE, THREE = "people", "people, faces, covers"  # pipelines of `secondary_networks.py`
TRACKERS = ("none", "fast", "balanced", "accurate")
RATE = GOP = 30  # frames of the clip in a second, and from keyframe to keyframe
LIMIT_FRAMES = 6000
WARM_UP = 16  # frames of each stream, before what is measured
Figures = dict[str, Any]
Marks = list[tuple[int, float]]  # frames done, and when


@dataclass(frozen=True)
class Cell:
    """What is measured at once."""

    networks: str
    track: str  # "none", or as the program has it
    interval: int
    streams: int


def add_options(parser: ArgumentParser, results: Path) -> None:
    """Adds the options of `measure`, with the published grid as defaults."""

    def numbers(text: str) -> list[int]:
        return [int(one) for one in text.split(",")]

    parser.add_argument("video", help="people in motion; it is repeated where it is too short")
    parser.add_argument("--streams", type=numbers, default=[16, 25], help="default: 16,25; for a CPU 2,4")
    parser.add_argument("--intervals", type=numbers, default=[0, 1, 3, 10], help="default: 0,1,3,10")
    parser.add_argument("--trackers", type=lambda text: text.split(","), default=list(TRACKERS))
    parser.add_argument("--models", type=Path, help="folder of the two networks of faces; without it, people alone")
    parser.add_argument("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(1920, 1080))
    parser.add_argument("--frames", type=int, default=300, help="of each stream, several batches (default: 300)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the video, for the error (default: 60)")
    parser.add_argument("--model", default="person")
    parser.add_argument("--preset", default="ultrafast")
    parser.add_argument("--encode", help="as the program takes it; null: nothing is encoded, on a GPU")
    parser.add_argument("--processes", type=int, default=1, help="that share the videos (default: 1)")
    parser.add_argument("--batch-size", type=int, help="frames of a stream at a time, as the program takes it")
    parser.add_argument("--peers", action="store_true", help="measure other ways to process so many videos too")
    parser.add_argument("--repeats", type=int, default=1, help="rounds, of which the median counts (default: 1)")
    parser.add_argument("-o", "--output", type=Path, default=results / "stream-experiments.json")


def cells(options: Namespace, networks: str) -> Iterator[Cell]:
    """Yields the grid: all trackers with the first network alone, the one that `--then` implies with three."""
    trackers = options.trackers if networks == ONE else ["balanced"]
    for streams, track, interval in product(options.streams, trackers, options.intervals):
        yield Cell(networks, track, interval, streams)


def measure(options: Namespace) -> Iterator[Figures]:
    """Yields the error of each interval and the figures of all cells so far, which take turns, after each."""
    IMPLEMENTATIONS["encode"]["null"] = Implementation("no_encoder:NoEncoder")  # on a GPU only
    gpu = find_gpu()
    about: Figures = {
        "processes": options.processes,
        "batch_size": options.batch_size,
        "gpu": None if gpu is None else str(gpu),
        "of": {
            "video": Path(options.video).name,
            "size": "x".join(map(str, options.size)),
            "model": Path(options.model).name,
        },
    }
    found: dict[Cell, list[Figures]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = make_clip(options.video, options.frames + GOP, options.size, folder, rate=RATE, gop=GOP)
        about["nvdec_limit"] = None if gpu is None else nvdec_limit(clip)
        if options.encode == "null" and (options.processes > 1 or options.peers):  # processes know it by this folder
            sys.path.insert(0, str(Path(__file__).with_name("unencoded")))
        session = {"model": options.model, "preset": options.preset, "encode": options.encode}
        with Segmenter(**session) as segmenter:
            errors = accuracy(segmenter, options, folder)
        for networks in [ONE] if options.models is None else [ONE, THREE]:
            then = {} if networks == ONE else pipelines(options.models)[THREE]
            with in_processes(options.processes, batch_size=options.batch_size, **session, **then) as segmenter:
                for _, cell in product(range(options.repeats), cells(options, networks)):
                    process(segmenter, clip, cell, WARM_UP, folder)
                    result = run(segmenter, clip, cell, options.frames, folder)
                    found.setdefault(cell, []).append(result)
                    print(f"  {cell}: {result['fps']:.1f}", file=sys.stderr)
                    yield {**about, "errors": errors, "rows": list(rows(found))}
        if options.peers:
            peers = []
            for streams in options.streams:
                peers += peers_of(options, session, clip, streams, folder)
                yield {**about, "errors": errors, "rows": list(rows(found)), "peers": peers}


def peers_of(options: Namespace, session: Figures, clip: Path, streams: int, folder: Path) -> Iterator[Figures]:
    """Yields the figures of other ways to process so many videos at once, in the shape of `rows`."""
    cell = Cell(ONE, "none", 0, streams)
    with in_processes(streams, **session) as segmenter:
        process(segmenter, clip, cell, WARM_UP, folder)

        def work() -> int:
            return sum(report.frames for report, _ in process(segmenter, clip, cell, options.frames, folder))

        alone = whole_run(work, streams)
    yield {"peer": "a process for each", **asdict(cell), "fps": alone["fps"], "runs": [alone]}
    loop = loops(clip, options.model, streams, options.frames, folder)
    yield {"peer": LOOP, **asdict(cell), "fps": loop["fps"], "runs": [loop]}


def nvdec_limit(clip: Path) -> float:
    """Returns the frames a second of decoders that know nothing of each other, with nothing else on the GPU."""
    from gpu_decoders import Independent  # needs a GPU's libraries

    from segmentation.media.opening.probe import probe
    from segmentation.options.config import Config
    from segmentation.stages.decode.nvdec_support import nvdec_engines

    info = probe(str(clip))
    with Independent(info, 2 * nvdec_engines(Config(), info)) as limit:  # an engine is never without work
        return round(float(measured(lambda: limit.decode(LIMIT_FRAMES))["fps"]), 1)


def rows(found: dict[Cell, list[Figures]]) -> Iterator[Figures]:
    """Yields a row for each cell: the median of its runs."""
    for cell, runs in found.items():
        yield asdict(cell) | {"fps": median(one["fps"] for one in runs), "runs": runs}


def process(segmenter: Segmenter, clip: Path, cell: Cell, frames: int, folder: Path) -> list[tuple[Report, Marks]]:
    """Processes all streams of a cell at once, each from another frame on: cameras' keyframes do not coincide."""
    ready = threading.Barrier(cell.streams)
    track = {} if cell.track == "none" else {"track": cell.track}
    options: Figures = {"interval": cell.interval, "max_frames": frames, "overwrite": True, **track}

    def stream(number: int) -> tuple[Report, Marks]:
        def note(count: int, _: int) -> None:
            marks.append((count, time.perf_counter()))

        marks: Marks = []
        ready.wait()
        start = number * GOP // cell.streams / RATE
        return segmenter.run(clip, folder / f"{number}.mkv", start=start, progress=note, **options), marks

    with ThreadPoolExecutor(cell.streams) as pool:
        return list(pool.map(stream, range(cell.streams)))


def run(segmenter: Segmenter, clip: Path, cell: Cell, frames: int, folder: Path) -> Figures:
    """Returns the figures of a cell."""
    done: list[tuple[Report, Marks]] = []

    def work() -> int:
        done.extend(process(segmenter, clip, cell, frames, folder))
        return sum(report.frames for report, _ in done)

    result = measured(work)
    rates = rates_together([marks for _, marks in done])
    return {
        "fps": round(fmean(rates), 2),  # of a stream
        "least": round(min(rates), 2),
        "fps_of_all_the_run": round(
            result["fps"] / cell.streams, 2
        ),  # with the start of the first, the end of the last
        "cpu_seconds_per_1000_frames": round(result["cpu"], 2),
        "peak_memory_mib": round(result["peak"]),
        "share_inferred": round(sum(report.inferred for report, _ in done) / result["frames"], 3),
        "plan": {stage: re.sub(r"=\S*/", "=", name) for stage, name in done[0][0].plan.items()},  # no folders
    }


def rates_together(streams: list[Marks]) -> list[float]:
    """Returns the frames a second of each stream while all were under way: those that begin first, or end last, have
    the GPU to themselves before and after."""
    begin, end = max(marks[0][1] for marks in streams), min(marks[-1][1] for marks in streams)
    if begin >= end:
        raise SystemExit("the streams were never all under way at once; take more --frames")
    rates = []
    for marks in streams:
        counts, times = zip(*marks, strict=True)
        first, last = np.interp((begin, end), times, counts)
        rates.append(float(last - first) / (end - begin))
    return rates


def accuracy(segmenter: Segmenter, options: Namespace, folder: Path) -> dict[str, Figures]:
    """Returns the agreement of each interval's masks (smoothed, not refined) with those of interval 0.

    Of the video itself, once: how many streams there are, and who is tracked, changes no mask.
    """
    truth: Areas = []
    found: dict[str, Figures] = {}
    for interval in sorted({0, *options.intervals}):
        saved = folder / "masks.mkv"
        asked: Figures = {"interval": interval, "duration": options.seconds, "save_masks": saved, "overwrite": True}
        report = segmenter.run(options.video, folder / "out.mkv", **asked)
        masks = areas(saved)
        truth = truth or masks
        found[str(interval)] = {"frames": report.frames, "inferred": report.inferred, **agreement(masks, truth)}
    return found
