"""Measures whole files, from decoding to muxing, against the workflow that people usually write.

    python tools/benchmarks/benchmark.py VIDEO --frames 300,600 --model person --work DIR

Every run is a process of its own, so that its peak memory is its own; in it a few frames go first, unmeasured. The two
sides take turns on the same clips with the same models. Each stage is also measured alone, with all it needs ready in
memory: `limit_fps` is what the machine could do if its cores did the stages' work and never waited. For Linux.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from clips import make_clip
from typical_workflow import blur_background, on_cpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances
from cpu_time import cpu_seconds

from segmentation import Config, Effect, ModelError, segment
from segmentation.frames import HostTransfer, MaskedBatch
from segmentation.media.muxer import Muxer
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.models.model import load_model
from segmentation.options.config import STAGES
from segmentation.pipeline.compositor import Compositor
from segmentation.pipeline.planning.plan import make_plan

WARM_UP = 8  # frames
IN_MEMORY = 60  # frames that a stage measured alone is given again and again
STAGE_FRAMES = 300  # that it gets in total, at most
Result = dict[str, Any]  # goes into the JSON, rounded


def measured(work: Callable[[], int]) -> Result:
    """Runs `work`, which returns its number of frames: seconds, frames a second, CPU seconds per 1,000, peak MiB.

    The CPU time of processes that it has started counts; their memory does not.
    """
    before, begin = cpu_seconds(), time.perf_counter()
    frames = work()
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - before
    # Not ru_maxrss, which begins with the value of the process that started this one.
    peak = int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
    return {"frames": frames, "seconds": seconds, "fps": frames / seconds, "cpu": 1000 * cpu / frames, "peak": peak}


def steady_rate(marks: Sequence[tuple[int, float]]) -> float:
    """Frames a second from a quarter of a run to nine tenths of it, without its start and end. `marks`: how many frames
    were done at which second, so often that those two parts lie between different ones."""
    frames = marks[-1][0]
    (few, begin), (many, end) = (next(mark for mark in marks if mark[0] >= part * frames) for part in (0.25, 0.9))
    return (many - few) / (end - begin)


def run_pipeline(clip: Path, config: Config, folder: Path) -> Result:
    """Our side, as `segment()` does it."""
    segment(clip, folder / "warm.mp4", config, max_frames=WARM_UP)
    busy: dict[str, float] = {}

    def work() -> int:
        report = segment(clip, folder / "out.mp4", config)
        busy.update(report.stages)
        return report.frames

    return {**measured(work), "busy": busy}


def run_typical(clip: Path, config: Config, folder: Path) -> Result:
    """The other side, with the same model; of the options, `max_frames` counts too."""
    model = load_model(config, probe(str(clip)))
    if model.activation != "none" or len(model.labels) != 1:
        raise ModelError(f"{config.model}: the typical workflow needs a model with one channel of probabilities")
    blur_background(str(clip), str(folder / "warm.mp4"), on_cpu(model), max_frames=WARM_UP)
    target = str(folder / "out.mp4")
    return measured(lambda: blur_background(str(clip), target, on_cpu(model), max_frames=config.max_frames))


def run_stage(clip: Path, config: Config, folder: Path, stage: str) -> Result:
    """One stage alone: its inputs are made beforehand from the clip's first frames and then given again and again."""
    info = probe(str(clip))
    plan, model = make_plan(config), load_model(config, info)
    count = min(info.frames, STAGE_FRAMES)
    with Muxer(folder / "out.mp4", info, config) as muxer:
        pix_fmt = working_format(info.pix_fmt, plan.encode.implementation.formats(muxer.codec))
        decoder = plan.decode.implementation(info, pix_fmt, replace(config, batch_size=1, max_frames=count), None)
        if stage == "decode":
            return measured(lambda: sum(len(batch) for batch in decoder))
        preprocess = plan.preprocess.implementation(info, pix_fmt, model, config, None)
        infer = plan.infer.implementation(model, config, None)
        effect = Effect.parse(config.effect)
        drawn = plan.postprocess.implementation(info, pix_fmt, effect, config, None)
        compose = Compositor([(effect, drawn)], drawn.memory, info, pix_fmt, config, None, HostTransfer())
        encoder = plan.encode.implementation(muxer, info, pix_fmt, config, None)
        batches = list(islice(decoder, IN_MEMORY))
        tensors = [preprocess(batch) for batch in batches]
        masked = [
            MaskedBatch(frames=batch, masks=infer(tensor).masks) for batch, tensor in zip(batches, tensors, strict=True)
        ]
        finished = [compose(batch)[0][0] for batch in masked]

        def work() -> int:
            for i in range(count):
                k = i % len(batches)
                if stage == "preprocess":  # of frames that nobody has shrunk yet
                    preprocess(replace(batches[k], frames=tuple(replace(frame) for frame in batches[k].frames)))
                elif stage == "infer":
                    infer(tensors[k])
                elif stage == "postprocess":
                    compose(masked[k])
                else:
                    frame = replace(finished[k].frames[0], pts=round(i / info.rate / info.time_base))
                    muxer.write(encoder.encode(replace(finished[k], frames=(frame,))))
            muxer.write(encoder.flush())
            return count

        return measured(work)


def in_process(run: Callable[..., Result], clip: Path, model: str, effect: str, *arguments: str) -> Result:
    """What `run` measures in a fresh process."""
    config = Config(model=model, effect=effect, overwrite=True)
    with tempfile.TemporaryDirectory(dir=clip.parent) as folder, get_context("spawn").Pool(1) as pool:
        result = pool.apply(run, (clip, config, Path(folder), *arguments))
    print(f"  {clip.name}: {run.__name__} {' '.join(arguments)} {result['fps']:.1f} fps", file=sys.stderr)
    return result


def spread(values: Iterable[float]) -> dict[str, float]:
    """The median of repeated figures, the least and the largest, rounded."""
    several = list(values)
    kinds: dict[str, Callable[[list[float]], float]] = {"median": median, "min": min, "max": max}
    return {name: round(kind(several), 2) for name, kind in kinds.items()}


def summary(runs: list[Result]) -> Result:
    """Repeated runs in one, rounded."""
    return {
        "frames": runs[0]["frames"],
        "fps": spread(run["fps"] for run in runs),
        "cpu_seconds_per_1000_frames": round(median(run["cpu"] for run in runs), 2),
        "peak_memory_mib": round(max(run["peak"] for run in runs), 1),
        **({"stage_busy_seconds": runs[-1]["busy"]} if "busy" in runs[-1] else {}),
    }


def compare(clip: Path, model: str, effect: str, repeats: int) -> Result:
    """Both sides on one clip, each going first in turn."""
    runs: dict[Callable[..., Result], list[Result]] = {run_pipeline: [], run_typical: []}
    for i in range(repeats):
        for run in list(runs)[:: -1 if i % 2 else 1]:
            runs[run].append(in_process(run, clip, model, effect))
    ours, typical = (summary(several) for several in runs.values())
    ratio = round(ours["fps"]["median"] / typical["fps"]["median"], 2)
    return {"model": Path(model).name, "pipeline": ours, "typical": typical, "speed_ratio": ratio}


def limits(clip: Path, model: str, effect: str, repeats: int) -> Result:
    """Each stage alone, and what follows for all of them on these cores."""
    alone = {s: summary([in_process(run_stage, clip, model, effect, s) for _ in range(repeats)]) for s in STAGES}
    cpu = sum(stage["cpu_seconds_per_1000_frames"] for stage in alone.values())
    return {"model": Path(model).name, "alone": alone, "limit_fps": round(1000 * len(os.sched_getaffinity(0)) / cpu, 2)}


def table(results: Result) -> Iterator[str]:
    for row, side in product(results["throughput"], ("pipeline", "typical")):
        fps, cpu, peak = (row[side][key] for key in ("fps", "cpu_seconds_per_1000_frames", "peak_memory_mib"))
        speed = "{median:.1f} fps ({min:.1f} to {max:.1f})".format(**fps)
        yield f"{row['model']}, {row[side]['frames']} frames, {side}: {speed}, {cpu:.1f} CPU s/1000, {peak:.0f} MiB"
    for row in results["stages"]:
        alone = ", ".join(f"{stage} {value['fps']['median']:.0f}" for stage, value in row["alone"].items())
        yield f"{row['model']}, fps of each stage alone: {alone}; limit of the cores: {row['limit_fps']}"
    for row in results["memory"]:
        yield f"{row['model']}, {row['frames']} frames: peak memory {row['peak_memory_mib']} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the pipeline against the workflow people usually write.")
    add = parser.add_argument
    numbers = {"type": lambda text: [int(n) for n in text.split(",")], "metavar": "N,..."}
    add("video", help="what the clips are made from")
    add("--frames", **numbers, default=[300], help="clip lengths for speed (default: 300)")
    add("--lengths", **numbers, default=[300, 9300], help="clip lengths for memory (default: 300,9300)")
    add("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(1920, 1080), metavar="WxH")
    add("--model", action="append", metavar="NAME|FILE.onnx", help="may be repeated (default: person)")
    add("--effect", default="blur:25")
    add("--repeats", type=int, default=3)
    add("--work", type=Path, metavar="DIR", help="keeps the clips there (default: a temporary folder)")
    add("-o", "--output", type=Path, help="default: tools/lab/results/cpu-DATE.json")
    options = parser.parse_args()
    models = options.model or ["person"]
    results = circumstances("benchmarks/benchmark.py", sys.argv[1:])
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        clips = {n: make_clip(options.video, n, options.size, folder) for n in {*options.frames, *options.lengths}}
        results["clip"] = {"source": Path(options.video).name, "width": options.size[0], "height": options.size[1]}
        results["effect"], results["repeats"] = how = (options.effect, options.repeats)
        results["throughput"] = [compare(clips[n], model, *how) for model in models for n in options.frames]
        results["stages"] = [limits(clips[options.frames[0]], model, *how) for model in models]
        runs = [in_process(run_pipeline, clips[n], models[0], options.effect) for n in options.lengths]
        results["memory"] = [{"model": Path(models[0]).name, **summary([run])} for run in runs]
    output = options.output or ROOT / "tools" / "lab" / "results" / f"cpu-{results['date'][:10]}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
