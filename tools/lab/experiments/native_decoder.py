"""Compares `nvdec-native` with `nvdec` on a GPU, in turn, beside NVDEC's limit.

    python tools/build_native.py
    python tools/lab/experiments/native_decoder.py VIDEO --work DIR -o FILE.json

VIDEO is repeated to the lengths that are needed, at 1080p with a keyframe every second. Everything runs in one process,
after a warm-up. A round has each case with both decoders, and every second round the opposite order. Results are
printed and written after each case, so that a run that is cut off leaves some.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).parents[3]))  # so that a checkout works without being installed

from circumstances import circumstances
from clips import make_clip

from segmentation import Config, Segmenter
from segmentation.frames import FORMATS
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool

DECODERS = ("nvdec", "nvdec-native")
LONG, FILE, CLIP = 4800, 600, 90  # frames
IMPLEMENTATIONS["encode"]["null"] = Implementation("no_encoder:NoEncoder")
ENCODERS: dict[str, dict[str, Any]] = {
    "null": {"encode": "null"},
    "x264": {"encode": "x264-segments", "preset": "ultrafast"},
}


@dataclass(frozen=True)
class Case:
    """Files of as many frames each, so many at a time, through the whole pipeline."""

    frames: int
    count: int = 1
    at_once: int = 1
    encoder: str = "null"  # "": nothing but the decoder


CASES = {
    "alone": Case(LONG, encoder=""),
    "alone16": Case(FILE, 16, 16, ""),
    "one": Case(LONG),
    "files16": Case(FILE, 16, 16),
    "files25": Case(FILE, 25, 25),
    "clips": Case(CLIP, 60, 4),
    "one-x264": Case(LONG, encoder="x264"),
    "clips-x264": Case(CLIP, 60, 4, "x264"),
}


class Bench:
    """What each case needs, made once."""

    def __init__(self, video: str, work: Path) -> None:
        from gpu_decoders import Independent  # --help needs no GPU

        from segmentation.gpu.context import Gpu
        from segmentation.stages.decode.nvdec_support import nvdec_engines

        self._work, self._gpu = work, Gpu()
        self._clips = {
            frames: make_clip(video, frames, (1920, 1080), work, gop=30, rate=30, encode=min(600, frames))
            for frames in (LONG, FILE, CLIP)
        }
        info = probe(str(self._clips[LONG]))
        self._engines = nvdec_engines(Config(), info)
        self._limit = lambda: Independent(info, self._engines)
        self._pools = {name: NvdecSessionPool() for name in DECODERS}
        self._segmenters = {
            (name, encoder): Segmenter(Config(mode="optimized", decode=name, overwrite=True, **options))
            for name in DECODERS
            for encoder, options in ENCODERS.items()
        }

    def warm_up(self, cases: list[str], decoders: list[str]) -> None:
        """Runs what makes sessions, graphs and kernels."""
        for name in decoders:
            self._alone(name, FILE)
            for encoder in {CASES[case].encoder for case in cases if case in CASES} - {""}:
                self._one(name, Case(FILE, encoder=encoder))

    def limit(self) -> dict[str, float]:
        """Measures NVDEC's limit: as many decoders as engines, which know nothing of each other."""
        with self._limit() as decoders:
            return measured(lambda: decoders.decode(LONG))

    def take(self, case: str, name: str) -> dict[str, float]:
        """Measures a case with one of `DECODERS`."""
        given = CASES[case]
        with ThreadPoolExecutor(given.at_once) as pool:
            return measured(lambda: sum(pool.map(lambda number: self._one(name, given, number), range(given.count))))

    def _alone(self, name: str, frames: int) -> int:
        module, _, attribute = IMPLEMENTATIONS["decode"][name].place.partition(":")
        info, pool = probe(str(self._clips[frames])), self._pools[name]
        kind, pix_fmt = getattr(import_module(module), attribute), working_format(info.pix_fmt, tuple(FORMATS))
        decoder = kind(info, pix_fmt, Config(batch_size=16), self._gpu, sessions=pool)
        count = sum(len(batch) for batch in decoder)
        self._gpu.stream.synchronize()
        decoder.close()
        return count

    def _one(self, name: str, case: Case, number: int = 0) -> int:
        if not case.encoder:
            return self._alone(name, case.frames)
        segmenter = self._segmenters[name, case.encoder]
        return int(segmenter.run(self._clips[case.frames], self._work / f"out{number}.mp4").frames)


def measured(work: Callable[[], int]) -> dict[str, float]:
    """Runs `work`, which returns frames: frames a second, and this process's CPU seconds and waits for 1,000 of them.

    The encoders' process has CPU seconds of its own. A wait is one for a lock, the GIL among them, or a device.
    """
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    frames = work()
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    waits = after.ru_nvcsw - before.ru_nvcsw
    thousands = frames / 1000
    return {
        "fps": round(frames / seconds),
        "cpu": round(cpu / thousands, 3),
        "waits": round(waits / thousands),
        "frames": frames,
    }


def turns(cases: list[str], decoders: list[str], rounds: int) -> Iterator[tuple[str, str]]:
    """Yields cases and decoders in the order of their turns."""
    order = [(case, name) for case in cases for name in (decoders if case != "limit" else ["nvdec"])]
    for number in range(rounds):
        yield from order[:: -1 if number % 2 else 1]


def summary(rounds: dict[str, dict[str, list[dict[str, float]]]]) -> dict[str, dict[str, Any]]:
    """Returns the medians of each case, and their part of the limit's."""
    limit = median(found["fps"] for found in rounds["limit"]["nvdec"]) if "limit" in rounds else None
    return {
        case: {
            name: {
                "fps": (fps := median(found["fps"] for found in runs)),
                **{part: median(found[part] for found in runs) for part in ("cpu", "waits")},
                **({"of_limit": round(fps / limit, 3)} if limit else {}),
            }
            for name, runs in by_decoder.items()
        }
        for case, by_decoder in rounds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares nvdec-native with nvdec, in turn, beside NVDEC's limit.")
    parser.add_argument("video")
    parser.add_argument("--work", type=Path, required=True, help="folder for clips and outputs, best in memory")
    parser.add_argument("--cases", default=",".join(["limit", *CASES]))
    parser.add_argument("--decoders", default=",".join(DECODERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=240, help="after which no case begins (default: 240)")
    parser.add_argument("--revision", help="git's, where this is no checkout")
    parser.add_argument("-o", "--output", type=Path, help="default: DIR/native-decoder.json")
    given = parser.parse_args()
    from benchmark_gpu import gpu, versions

    given.work.mkdir(exist_ok=True, parents=True)
    end, bench = time.perf_counter() + given.seconds, Bench(given.video, given.work)
    cases, decoders = given.cases.split(","), given.decoders.split(",")
    results = circumstances("lab/experiments/native_decoder.py", sys.argv[1:])
    results["hardware"] |= gpu()
    results["versions"] |= versions()
    if given.revision:
        results["versions"]["git"] = given.revision
    rounds: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(list))
    bench.warm_up(cases, decoders)
    for case, name in turns(cases, decoders, given.rounds):
        if time.perf_counter() > end:
            break
        found = bench.limit() if case == "limit" else bench.take(case, name)
        print(f"{case}, {name}: {found['fps']} fps, CPU {found['cpu']}, waits {found['waits']}", flush=True)
        rounds[case][name].append(found)
        text = json.dumps({**results, "medians": summary(rounds), "rounds": rounds}, indent=1) + "\n"
        (given.output or given.work / "native-decoder.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
