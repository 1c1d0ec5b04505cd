"""What `ladder.py` measures, each function in a fresh process; each returns one result or more, by name.

`options` are fields of `Config`. Runs are whole ones, with models loaded, decoders made and graphs captured, after a
short one that fills the caches of the system and of the GPU's driver.
"""

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmark import Result, measured, run_stage, run_typical

from segmentation import Config, Effect, segment
from segmentation.flow.timing import StageClock
from segmentation.frames import MaskedBatch
from segmentation.gpu.discovery import find_gpu
from segmentation.media.muxer import Muxer
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.models.model import load_model
from segmentation.pipeline.compositor import Compositor
from segmentation.pipeline.mask_stages import make_transfer
from segmentation.pipeline.planning.plan import make_plan
from segmentation.pipeline.resources import Resources

WARM_UP = 64  # frames
BATCHES = 8  # that a stage on a GPU gets again and again when it is measured alone: more than its cache holds
TRACED = 10  # batches of a trace that are kept
Options = dict[str, Any]


def watched(work: str, *arguments: Any) -> dict[str, Result]:
    """What a function of this module or of `gpu_runs` returns; with a GPU, also the memory that was taken there."""
    if find_gpu() is None:
        results: dict[str, Result] = globals()[work](*arguments)
        return results
    import gpu_runs  # needs PyTorch

    function = globals().get(work) or getattr(gpu_runs, work)
    with gpu_runs.GpuMemory() as memory:
        results = function(*arguments)
    return {name: {**result, "gpu": memory.peak} for name, result in results.items()}


def plans() -> dict[str, Any]:
    """What serves the stages here, by name: in the baseline, and at best. And whether there is a GPU."""
    names = {mode: make_plan(Config(mode=mode)).names() for mode in ("baseline", "auto")}
    return {"baseline": names["baseline"], "best": names["auto"], "gpu": find_gpu() is not None}


def pipeline(folder: Path, clip: Path, name: str, options: Options, frames: int) -> dict[str, Result]:
    """`segment()`."""
    config, target = Config(**options, overwrite=True), folder / f"out{_suffix(options)}"
    segment(clip, target, config, max_frames=WARM_UP)
    reports = []

    def work() -> int:
        reports.append(segment(clip, target, config, max_frames=frames))
        return reports[-1].frames

    return {name: {**measured(work), "busy": reports[-1].stages, "plan": reports[-1].plan}}


def in_turn(folder: Path, clip: Path, name: str, options: Options, frames: int) -> dict[str, Result]:
    """The pipeline's stages, on the host, one after the other in one thread, as simple programs have them.

    The threads of libraries are left to them, as in such programs.
    """
    config = Config(**options, batch_size=1, overwrite=True)
    info, plan = probe(str(clip)), make_plan(config)
    model = load_model(config, info)
    clocks = []

    def run(count: int) -> int:
        limited, clock, done = replace(config, max_frames=count), StageClock(), 0
        clocks.append(clock)
        with Muxer(folder / "out.mp4", info, limited) as muxer, ExitStack() as ending:
            pix_fmt = working_format(info.pix_fmt, plan.encode.implementation.formats(muxer.codec))
            decoder = plan.decode.implementation(info, pix_fmt, limited, None)
            preprocess = plan.preprocess.implementation(info, pix_fmt, model, limited, None)
            infer = plan.infer.implementation(model, limited, None)
            postprocess = plan.postprocess.implementation(info, pix_fmt, Effect.parse(limited.effect), limited, None)
            encoder = plan.encode.implementation(muxer, info, pix_fmt, limited, None)
            ending.callback(encoder.close)
            for batch in clock.steps("decode", decoder):
                tensor = clock.call("preprocess", batch, preprocess, batch)
                masked = MaskedBatch(frames=batch, masks=clock.call("infer", batch, infer, tensor).masks)
                finished = clock.call("postprocess", batch, postprocess, masked)
                muxer.write(clock.call("encode", batch, encoder.encode, finished))
                done += len(batch)
            muxer.write(clock.call("encode", None, encoder.flush))
            muxer.finish(None)
        return done

    run(WARM_UP)
    result = measured(lambda: run(frames))
    busy = {stage: round(seconds, 3) for stage, seconds in clocks[-1].totals().items()}
    return {name: {**result, "busy": busy, "plan": plan.names()}}


def typical_on_cpu(folder: Path, clip: Path, name: str, frames: int) -> dict[str, Result]:
    """The workflow that people usually write, without a GPU."""
    return {name: run_typical(clip, Config(max_frames=frames), folder)}


def alone_on_cpu(folder: Path, clip: Path, options: Options, stage: str) -> dict[str, Result]:
    """One stage alone, with what it needs ready in memory."""
    return {f"{stage} alone": run_stage(clip, Config(**options, overwrite=True), folder, stage)}


def alone_on_gpu(folder: Path, clip: Path, options: Options, frames: int) -> dict[str, Result]:
    """The three stages in the middle, each alone, with what it needs ready in the GPU's memory.

    And a copy of the frames there, which reads each sample once and writes it once: who makes new frames does no less.
    """
    import torch  # only here: elsewhere it need not be installed

    config, info = Config(**options, overwrite=True), probe(str(clip))
    plan, model, resources = make_plan(config, info), load_model(config, info), Resources(config)
    batch = resources.batch_size(config, model, on_gpu=True, live=False)
    config, gpu = replace(config, batch_size=batch), resources.gpu
    few = replace(config, max_frames=BATCHES * (config.batch_size or 1))
    with ExitStack() as ending:
        decoder = plan.decode.implementation(info, info.pix_fmt, few, gpu)
        ending.callback(decoder.close)
        preprocess = plan.preprocess.implementation(info, info.pix_fmt, model, config, gpu)
        infer = plan.infer.implementation(model, config, gpu)
        effect = Effect.parse(config.effect)
        drawn = plan.postprocess.implementation(info, info.pix_fmt, effect, config, gpu)
        transfer = make_transfer(gpu, info, info.pix_fmt, batch)
        compose = Compositor([(effect, drawn)], drawn.memory, info, info.pix_fmt, config, gpu, transfer)
        batches = list(decoder)
        tensor = preprocess(batches[0])
        masks = infer(tensor).masks
        copies = [torch.empty_like(plane) for plane in batches[0].planes]

        def copy(batch: Any) -> None:
            with torch.cuda.stream(gpu.stream):
                for target, plane in zip(copies, batch.planes, strict=True):
                    target[: len(batch)].copy_(plane[: len(batch)])

        works = {
            "preprocess": preprocess,
            "infer": lambda batch: infer(tensor),
            "postprocess": lambda batch: compose(MaskedBatch(frames=batch, masks=masks)),
            "copy": copy,
        }

        def repeated(work: Any) -> int:
            done = 0
            for batch in cycle(batches):  # where a run of packets ends, a batch may be short
                work(batch)
                done += len(batch)
                if done >= frames:
                    gpu.stream.synchronize()
                    return done
            raise AssertionError("the clip has frames")

        results: dict[str, Result] = {}
        for name, work in works.items():
            repeated(work)
            results[f"{name} alone"] = measured(lambda work=work: repeated(work))
        return results


def traced(folder: Path, clip: Path, name: str, options: Options, frames: int) -> dict[str, Result]:
    """A run with `--trace`, of which a stretch after the middle is kept, see `shortened`."""
    config, trace = Config(**options, overwrite=True, trace=folder / "trace.json"), folder / "trace.json"
    target = folder / f"out{_suffix(options)}"
    segment(clip, target, config, max_frames=WARM_UP)
    result = measured(lambda: segment(clip, target, config, max_frames=frames).frames)
    return {name: {**result, "timeline": shortened(json.loads(trace.read_text()))}}


def shortened(trace: Result) -> list[dict[str, Any]]:
    """The time after a trace's middle in which `TRACED` batches pass, by track: each slice's name, its batch, and when
    it begins and ends, in milliseconds."""
    events = trace["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    slices = sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"])
    first, last = slices[0]["ts"], max(e["ts"] + e["dur"] for e in slices)
    batches = 1 + max(e["args"].get("batch", 0) for e in slices)
    begin = (first + last) / 2
    end = min(last, begin + (last - first) * TRACED / batches)
    tracks: dict[int, list[list[Any]]] = {}
    for e in slices:
        if e["ts"] + e["dur"] > begin and e["ts"] < end:
            times = (round((min(max(t, begin), end) - begin) / 1000, 3) for t in (e["ts"], e["ts"] + e["dur"]))
            tracks.setdefault(e["tid"], []).append([e["name"], e["args"].get("batch"), *times])
    return [{"track": names[tid], "slices": tracks[tid]} for tid in sorted(tracks)]


def _suffix(options: Options) -> str:
    """MP4's index goes to the front in the end, which would copy gigabytes of JPEG."""
    return ".mkv" if options.get("encode") == "jpeg" else ".mp4"
