"""Compares `nvdec-native` with `nvdec` on a GPU, in turn: decoders alone, whole pipelines, many files, clips.

    python tools/build_native.py
    python tools/lab/experiments/native_decoder.py VIDEO --work DIR --cases alone,one,files,clips --seconds 60

VIDEO is repeated to the lengths that are needed, at 1080p with a keyframe every second. Nothing is encoded. Prints each
result, and writes them to DIR/native-decoder.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[3]))  # so that a checkout works without being installed

from clips import make_clip

from segmentation import Config, Segmenter
from segmentation.frames import FORMATS
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool

DECODERS = ("nvdec", "nvdec-native")
ROUNDS = 4
LONG, FILE, CLIP = 4800, 600, 90  # frames
IMPLEMENTATIONS["encode"]["null"] = Implementation("no_encoder:NoEncoder")


class Bench:
    """What each case needs, made once."""

    def __init__(self, video: str, work: Path) -> None:
        from segmentation.gpu.context import Gpu  # --help needs no GPU

        def clip(frames: int) -> Path:
            return make_clip(video, frames, (1920, 1080), work, gop=30, rate=30, encode=min(600, frames))

        self._work, self._gpu = work, Gpu()
        self.long, self.file, self.short = clip(LONG), clip(FILE), clip(CLIP)
        self._pools = {name: NvdecSessionPool() for name in DECODERS}
        self._segmenters = {
            name: Segmenter(Config(mode="optimized", decode=name, encode="null", overwrite=True)) for name in DECODERS
        }

    def alone(self, name: str, path: Path | None = None) -> int:
        module, _, attribute = IMPLEMENTATIONS["decode"][name].place.partition(":")
        info, pool = probe(str(path or self.long)), self._pools[name]
        kind, pix_fmt = getattr(import_module(module), attribute), working_format(info.pix_fmt, tuple(FORMATS))
        decoder = kind(info, pix_fmt, Config(batch_size=16), self._gpu, sessions=pool)
        frames = sum(len(batch) for batch in decoder)
        self._gpu.stream.synchronize()
        decoder.close()
        return frames

    def one(self, name: str, path: Path | None = None, number: int = 0) -> int:
        return int(self._segmenters[name].run(path or self.long, self._work / f"out{number}.mp4").frames)

    def files(self, name: str) -> int:
        return self._many(name, self.file, 16, 16)

    def clips(self, name: str) -> int:
        return self._many(name, self.short, 60, 4)

    def _many(self, name: str, path: Path, count: int, at_once: int) -> int:
        with ThreadPoolExecutor(at_once) as pool:
            return sum(pool.map(lambda number: self.one(name, path, number), range(count)))


def measured(work: Callable[[], int]) -> dict[str, float]:
    """Runs `work`, which returns frames: frames a second, and CPU seconds for 1,000 of them."""
    before, begin = _cpu(), time.perf_counter()
    frames = work()
    seconds = time.perf_counter() - begin
    return {"fps": round(frames / seconds), "cpu": round(1000 * (_cpu() - before) / frames, 3), "frames": frames}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares nvdec-native with nvdec, in turn.")
    parser.add_argument("video")
    parser.add_argument("--work", type=Path, required=True, help="folder for clips and results, best in memory")
    parser.add_argument("--cases", default="alone,one,files,clips")
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    given.work.mkdir(exist_ok=True)
    end, bench = time.perf_counter() + given.seconds, Bench(given.video, given.work)
    rounds: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(list))
    for name in DECODERS:  # sessions, graphs and kernels are there before anything is measured
        bench.alone(name, bench.file)
        bench.one(name, bench.file)
    for _ in range(ROUNDS):
        for case in given.cases.split(","):
            for name in DECODERS:
                if time.perf_counter() > end:
                    return
                found = measured(lambda case=case, name=name: getattr(bench, case)(name))
                print(f"{case}, {name}: {found['fps']} fps, CPU {found['cpu']}", flush=True)
                rounds[case][name].append(found)
                text = json.dumps(rounds, indent=1) + "\n"
                (given.work / "native-decoder.json").write_text(text, encoding="utf-8")  # what is cut off leaves some


if __name__ == "__main__":
    main()
