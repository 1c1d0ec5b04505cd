"""The path of a frame, top to bottom: open, plan, loop, close."""

import gc
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from segmentation.config import Config
from segmentation.errors import DeviceError, DeviceMemoryError, InputError, UnknownOperator
from segmentation.frames import FrameBatch, MaskedBatch, VideoInfo
from segmentation.gpu.errors import translate_gpu_error
from segmentation.media.input import probe
from segmentation.models.model import load_model
from segmentation.pipeline.outputs import Finished, Outputs, check_names, default_output
from segmentation.pipeline.placement import (
    Compositor,
    ModelPreloader,
    batch_size,
    make_smoother,
    moves,
    open_gpu,
    release_cached_memory,
    with_half_the_batch,
)
from segmentation.pipeline.plan import Choice, make_plan, with_stage
from segmentation.pipeline.results import Results
from segmentation.pipeline.threads import Overlap, opencv_threads, until
from segmentation.pipeline.timing import StageClock
from segmentation.pipeline.trace import Trace, tracing
from segmentation.pipeline.verify import Verified
from segmentation.stages.decode.timestamps import expected
from segmentation.stages.masks.quantize import quantize
from segmentation.stages.masks.saved import MaskReader, MaskWriter
from segmentation.stages.masks.smoothing import smooth_masks

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]  # (frames done, frames expected or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did. `seconds` is the whole run; `stages` are the seconds that each stage's threads were busy, or the
    GPU with what the stage queued."""

    input: str
    output: str
    also: tuple[str, ...]  # the further outputs
    frames: int
    damaged: int  # frames of the input that were lost or are known to be broken
    seconds: float
    fps: float
    plan: dict[str, str]
    stages: dict[str, float]
    verified: Verified | None = None  # with `Config.verify`: the output


def segment(
    input: str | Path,
    output: str | Path | None = None,
    config: Config | None = None,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Segments one video and writes the result, or several with `Config.also`.

    `input` is a file or an http(s) address, `output` defaults to `default_output(input)`. Options are the fields of
    `Config`, given as one object or as keywords (keywords win). Setting `stop` ends the run early with playable
    files of the frames so far; before the first one that is an `InputError`. `progress` is called after each batch, in
    this thread; what it raises ends the run and leaves nothing.

    Raises `ConfigError`, `InputError`, `ModelError`, `EngineError`, `BackendError` or `OutputError`; then nothing is
    left behind but outputs that are complete. Raises `DeviceError` if the GPU fails on the way; what was finished
    before is then in playable files.
    """
    config = replace(config or Config(), **options)
    source = str(input)
    target = Path(output) if output is not None else default_output(source, config)
    check_names(source, target, config)
    tell = _Teller(progress)
    while True:
        try:
            with tracing(config, source) as trace:
                return _segment(source, target, config, stop or threading.Event(), tell, trace)
        except Exception as exc:
            fault = None if tell.failed else translate_gpu_error(exc)
            if fault is None:
                raise
            config = with_half_the_batch(config, source, fault, exc)
        finally:
            fault = None  # which knows this frame
            release_cached_memory()
        gc.collect()  # what the exception has seen refers to itself, and to all memory of the first attempt
        release_cached_memory()


def _segment(
    source: str, target: Path, config: Config, stop: threading.Event, tell: "_Teller", trace: Trace | None
) -> Report:
    begin = time.perf_counter()
    also = tuple(str(path) for _, path in config.also)
    info = probe(source)
    saved = MaskReader(info, config) if config.masks is not None else None  # in place of a network
    model: Any = load_model(config, info) if saved is None else None
    loading = ModelPreloader(model, config)
    plan = make_plan(config, info, loading.begin, model=model)
    log.info("plan:\n%s", plan)
    gpu = open_gpu(config) if plan.on_gpu else None
    config = replace(config, batch_size=batch_size(config, model, on_gpu=plan.on_gpu))
    clock = StageClock(gpu, trace)
    overlap = Overlap(watch=None if trace is None else trace.depth)

    with Outputs(target, info, config, plan, clock) as outputs, overlap as overlapped, ExitStack() as ending:
        classes = model.kept if saved is None else saved.about.classes
        results = ending.enter_context(Results(outputs.main, info, classes, config)) if config.results else None
        track = ending.enter_context(MaskWriter(info, model, config)) if config.save_masks else None
        pix_fmt = outputs.choose_format()

        def made(choice: Choice, *arguments: Any, **options: Any) -> Any:
            stage = choice.implementation(*arguments, *[gpu] * choice.on_gpu, **options)
            if hasattr(stage, "close"):
                ending.callback(stage.close)
            return stage

        if plan.decode.on_gpu and pix_fmt != info.pix_fmt.replace("yuvj", "yuv"):
            log.warning("%s: pyav decodes it, because NVDEC converts nothing", source)
            plan = with_stage(plan, "decode", "pyav", config, info)
        decoder = made(plan.decode, info, pix_fmt, config)
        batches = until(stop, clock.steps("decode", decoder))
        decoded = overlapped(batches, "decoded")  # from here on, while the rest gets ready
        outputs.prepare(made, plan, pix_fmt, _end(info, config), classes if saved is None else ())
        if saved is None:  # last, for the network is being loaded meanwhile
            preprocess = made(plan.preprocess, info, pix_fmt, model, config)
            try:
                infer = made(plan.infer, model, config, **loading.options())
            except UnknownOperator as exc:
                if config.infer is not None or config.mode == "optimized":
                    raise
                log.warning("infer: onnxruntime on the CPU (%s)", exc)
                plan = with_stage(plan, "infer", "onnxruntime", config, info)
                infer = made(plan.infer, model, config)
        move = moves(gpu, info, pix_fmt, config)
        backend = make_smoother(infer.memory, model, config, gpu) if saved is None else None
        compose = Compositor([output.postprocess for output in outputs], info, pix_fmt, config, gpu)

        turn = threading.Lock()

        def alone(stage: Any) -> AbstractContextManager[Any]:
            """A stage on the GPU has its buffers once: what it queues for one batch must not mix with another's."""
            return turn if stage.memory == "cuda" else nullcontext()

        def find(batch: FrameBatch) -> tuple[MaskedBatch, Any]:
            move.enter()
            with alone(preprocess):
                given = move.frames(batch, preprocess.memory)
                tensor = move.rows(clock.call("preprocess", batch, preprocess, given), infer.memory, len(batch))
            found = clock.call("infer", batch, infer, tensor)
            masks, class_map = found
            history = backend.keep(tensor, masks, len(batch)) if backend is not None else None
            frames = batch if compose.memory == batch.memory else given
            return MaskedBatch(frames=frames, masks=masks, class_map=class_map), history

        def finish(masked: MaskedBatch) -> Finished:
            move.enter()
            levels = None
            if track is not None:  # what is composited is what was saved
                levels, masks = (
                    quantize(masked.masks) if isinstance(masked.masks, np.ndarray) else __import__("segmentation.stages.masks.cuda").CudaQuantizer(gpu)(masked.masks)
                )
                masked = replace(masked, masks=masks)
            with alone(compose):
                batch = masked.frames
                masked = masked.to(compose.memory, move)
                composed, masks = clock.call("postprocess", batch, compose, masked)
                pairs = zip(composed, outputs, strict=True)
                shown = deque(output.given(made, move) for made, output in pairs)
                noted = move.rows(masks, "host", len(batch)) if config.results or config.verify else None
                class_map = masked.to("host", move).class_map if config.results else None
                levels = None if levels is None else move.rows(levels, "host", len(batch))
                return Finished(batch.without_pictures(), shown, noted, levels, class_map)

        workers = infer.workers if saved is None else 1 if plan.postprocess.on_gpu else saved.workers
        ending.enter_context(opencv_threads.one_a_frame(workers))
        if saved is not None:
            read = (MaskedBatch(frames=b, masks=m) for b in decoded for m in [clock.call("infer", b, saved, b)])
            finishing = overlapped.map(finish, read, workers)
        elif backend is not None:  # between the two, masks wait for those of later frames
            found = overlapped.map(find, decoded, workers)
            finishing = overlapped.map(finish, smooth_masks(found, backend), workers)
        else:
            finishing = overlapped.map(lambda batch: finish(find(batch)[0]), decoded, workers)
        encoded = overlapped(finishing, "processed")
        for number, output in enumerate(outputs, 1):
            name = "encoded" if number == 1 else f"encoded {number}"
            encoded = overlapped(output.encoding(encoded, move.enter), name)

        frames = 0
        last = None
        fault = None
        while True:
            try:
                finished = next(encoded, None)
            except Exception as exc:
                fault = translate_gpu_error(exc)
                fewer = config.batch_size != 1 and (model is None or model.batch is None)
                if last is None or fault is None or (isinstance(fault, DeviceMemoryError) and fewer):
                    fault = None  # or it, who knows this frame, would refer to itself, and to all of the run
                    raise
                break
            if finished is None:
                break
            outputs.write(finished)
            if results is not None:
                results.note(finished.batch, finished.masks, finished.class_map)
            if track is not None:
                track.note(finished.batch, finished.levels)
            frames += len(finished.batch)
            last = finished.batch.frames[-1]
            tell(frames, expected(info, config))
        damaged: int = decoder.damaged
        if last is None:
            raise InputError(f"{source}: {_why_nothing(info, config, stop)}; nothing was written")
        if damaged:
            text = f"{source}: {damaged} frames are damaged or missing, {frames} were written"
            if config.strict:
                raise InputError(f"{text[: text.rindex(',')]}; without --strict, what can be decoded is written")
            log.warning(text)
        stopped = fault is not None or stop.is_set() or frames == config.max_frames
        if saved is not None and not stopped and config.duration is None:
            saved.check_end()
        end = (last.pts + last.duration) * info.time_base if stopped else _end(info, config)
        if fault is None:
            outputs.finish(end)
            clock.totals()  # so that the trace has all of it
        else:
            complete = outputs.finish_without_gpu(end)
        for record in (results, track, trace):
            if record is not None:
                record.finish()
        if fault is not None:
            names = ", ".join([str(target), *also])
            before = f"the {frames} frames before are" if complete else "what was finished before is"
            try:
                raise DeviceError(f"{source}: {fault}; {before} in {names}") from fault
            finally:
                fault = None  # which knows this frame
    verified = outputs.check(end)

    seconds = time.perf_counter() - begin
    return Report(
        input=source,
        output=str(target),
        also=also,
        frames=frames,
        damaged=damaged,
        seconds=round(seconds, 3),
        fps=round(frames / seconds, 2),
        plan=plan.names(),
        stages={stage: round(spent, 3) for stage, spent in clock.totals().items()},
        verified=verified[0] if verified else None,
    )


class _Teller:
    """Tells of progress, if anybody wants to know. What they raise is not ours to explain."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.failed = False

    def __call__(self, done: int, total: int) -> None:
        if self._progress is None:
            return
        try:
            self._progress(done, total)
        except Exception:
            self.failed = True
            raise


def _end(info: VideoInfo, config: Config) -> Fraction | None:
    """Where the wanted stretch ends, in seconds on the source's clock."""
    if config.duration is None:
        return None
    return info.start + Fraction(config.start) + Fraction(config.duration)


def _why_nothing(info: VideoInfo, config: Config, stop: threading.Event) -> str:
    if stop.is_set():
        return "stopped before the first frame"
    length = f" of {float(info.end - info.start):.1f} s" if info.end is not None else ""
    return f"no frame at --start {config.start:g} s or later in this video{length}"
