"""Measures whole pipelines with each decoder in turn: one file, 16 files in one process, 60 clips."""

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import native
from common import WORK, Results, Watch, chosen, clip, measured, way

from segmentation import Config, Segmenter
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation

IMPLEMENTATIONS["encode"]["null"] = Implementation("no_encoder:NoEncoder")
native_way = chosen()
DECODERS = {"today": "nvdec", f"native ({native_way})": "native"}


def made(decode: str, **options: Any) -> Segmenter:
    return Segmenter(Config(mode="optimized", decode=decode, encode="null", overwrite=True, **options))


def run(segmenter: Segmenter, path: Path, number: int = 0) -> Any:
    return segmenter.run(path, WORK / f"out{number}.mp4")


def many(segmenter: Segmenter, paths: list[Path], at_a_time: int) -> int:
    with ThreadPoolExecutor(at_a_time) as pool:
        return sum(report.frames for report in pool.map(lambda p: run(segmenter, p[1], p[0]), enumerate(paths)))


def copies(path: Path, number: int) -> list[Path]:
    paths = [WORK / f"copy{i}-{path.name}" for i in range(number)]
    for copy in paths:
        if not copy.exists():
            copy.hardlink_to(path)
    return paths


def command(decode: str, folder: Path, frames: int) -> int:
    from segmentation.cli.main import main

    out = WORK / "outputs"
    shutil.rmtree(out, ignore_errors=True)
    code = main([str(folder), "--jobs", "4", "-q", "-y", "-o", f"{out}/", "--decode", decode, "--encode", "null"])
    if code:
        raise RuntimeError(f"exit code {code}")
    return frames


def main() -> None:
    part, until = sys.argv[1], time.perf_counter() + float(sys.argv[2])
    results = Results(part)
    long, file, short = clip(4800), clip(600), clip(90)
    files, clips = copies(file, 16), copies(short, 60)
    folder = WORK / "clips"
    folder.mkdir(exist_ok=True)
    for path in clips:
        if not (folder / path.name).exists():
            (folder / path.name).hardlink_to(path)
    segmenters = {}
    for name, decode in DECODERS.items():
        with way(native_way):
            segmenters[name] = made(decode)
            results.attempt(f"(first) {name}", lambda s=segmenters[name]: measured(lambda: run(s, file).frames))
    stages: dict[str, float] = {}

    def one(segmenter: Segmenter, _: str) -> int:
        report = run(segmenter, long)
        stages.update({name: round(seconds, 2) for name, seconds in report.stages.items()})
        return report.frames

    cases: dict[str, Any] = {
        "one": one,
        "files": lambda s, d: many(s, files, 16),
        "clips": lambda s, d: many(s, clips, 4),
        "command": lambda s, d: command(d, folder, 5400),
    }
    for _ in range(4):
        for case in part.split(","):
            for name, decode in DECODERS.items():
                if time.perf_counter() > until:
                    break
                with way(native_way):
                    before = list(native.NativeDecoder.totals)
                    label = f"{case}, {name}"
                    watch = Watch()
                    with watch:
                        results.attempt(
                            label, lambda c=case, n=name, d=decode: measured(lambda: cases[c](segmenters[n], d))
                        )
                    results.all[label][-1] |= watch.found()
                    spent = [a - b for a, b in zip(native.NativeDecoder.totals, before, strict=True)]
                    if case == "one":
                        results.all[label][-1]["stages"] = dict(stages)
                    results.all[label][-1]["ms_in"] = [spent[0], *(round(v / 1e6) for v in spent[1:])]


main()
