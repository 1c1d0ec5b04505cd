"""The path of a frame, top to bottom: open, plan, loop, close."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from av.packet import Packet

from segmentation.clock import StageClock
from segmentation.config import Config, Effect
from segmentation.errors import DeviceError, DeviceMemoryError, InputError, UnknownOperator
from segmentation.faults import explain
from segmentation.frames import FrameBatch, VideoInfo
from segmentation.model import load_model
from segmentation.mux import Muxer
from segmentation.overlap import Overlap
from segmentation.placement import GPU_BATCH, Refined, batch_size, moves, open_gpu, steadying
from segmentation.plan import Choice, make_plan
from segmentation.results import Results
from segmentation.source import probe, working_format
from segmentation.temporal import steadied
from segmentation.trace import Trace, tracing
from segmentation.verify import Verified, Witness

log = logging.getLogger(__name__)

T = TypeVar("T")
Progress = Callable[[int, int], None]  # (frames done, frames expected or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did. `seconds` is the whole run; `stages` are the seconds that each stage's threads were busy, or the
    GPU with what the stage queued."""

    input: str
    output: str
    frames: int
    damaged: int  # frames of the input that were lost or are known to be broken
    seconds: float
    fps: float
    plan: dict[str, str]
    stages: dict[str, float]
    verified: Verified | None = None  # with `Config.verify`


def segment(
    input: str | Path,
    output: str | Path | None = None,
    config: Config | None = None,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Segments one video and writes the result.

    `input` is a file or an http(s) address, `output` defaults to `default_output(input)`. Options are the fields of
    `Config`, given as one object or as keywords (keywords win). Setting `stop` ends the run early with a playable
    file of the frames so far. `progress` is called after each batch, in this thread.

    Raises `ConfigError`, `InputError`, `ModelError`, `EngineError`, `BackendError` or `OutputError`; then nothing is
    left behind. Raises `DeviceError` if the GPU fails on the way; what was finished before is then a playable file.
    """
    config = replace(config or Config(), **options)
    source = str(input)
    target = Path(output) if output is not None else default_output(source, config)
    while True:
        try:
            with tracing(config, source, target) as trace:
                return _segment(source, target, config, stop or threading.Event(), progress, trace)
        except Exception as exc:
            fault = explain(exc)
            if fault is None:
                raise
            half = (config.batch_size or GPU_BATCH) // 2
            if not isinstance(fault, DeviceMemoryError) or not half:
                raise fault from exc
            log.warning("%s: %s; starting again with --batch-size %d", source, fault, half)
            config = replace(config, batch_size=half)


def _segment(
    source: str, target: Path, config: Config, stop: threading.Event, progress: Progress | None, trace: Trace | None
) -> Report:
    begin = time.perf_counter()
    info = probe(source)
    plan = make_plan(config, info)
    log.info("plan:\n%s", plan)
    model = load_model(config)
    gpu = open_gpu(config) if plan.on_gpu else None
    config = replace(config, batch_size=batch_size(config, model, gpu))
    clock = StageClock(gpu, trace)
    overlap = Overlap(watch=None if trace is None else trace.depth)

    with Muxer(target, info, config) as muxer, overlap as overlapped, ExitStack() as ending:
        results = ending.enter_context(Results(muxer, info, model, config)) if config.results else None
        pix_fmt = _choose_format(info, plan.encode.implementation.formats(muxer.codec), muxer.codec)

        def made(choice: Choice, *arguments: Any) -> Any:
            stage = choice.implementation(*arguments, gpu) if choice.on_gpu else choice.implementation(*arguments)
            if hasattr(stage, "close"):
                ending.callback(stage.close)
            return stage

        if plan.decode.on_gpu and pix_fmt != info.pix_fmt.replace("yuvj", "yuv"):
            log.warning("%s: pyav decodes it, because NVDEC converts nothing", source)
            plan = make_plan(replace(config, decode="pyav"), info)
        decoder = made(plan.decode, info, pix_fmt, config)
        batches = until(stop, clock.steps("decode", decoder))
        decoded = overlapped(batches, "decoded")  # from here on, while the rest gets ready
        preprocess = made(plan.preprocess, info, pix_fmt, model, config)
        try:
            infer = made(plan.infer, model, config)
        except UnknownOperator as exc:
            if config.infer is not None or config.mode == "optimized":
                raise
            log.warning("infer: onnxruntime on the CPU (%s)", exc)
            plan = make_plan(replace(config, infer="onnxruntime"), info)
            infer = made(plan.infer, model, config)
        postprocess = made(plan.postprocess, info, pix_fmt, Effect.parse(config.effect), config)
        encoder = made(plan.encode, muxer, info, pix_fmt, config)
        muxer.copy_streams(end=_end(info, config))
        move = moves(gpu, info, pix_fmt, config)
        averaging = steadying(infer.memory, model, config, gpu)
        refined = Refined(postprocess, info, pix_fmt, config, gpu)
        witness = Witness(muxer, info, pix_fmt, config, plan.decode.name) if config.verify else None
        observers = [observer for observer in (results, witness) if observer is not None]

        turn = threading.Lock()

        def alone(stage: Any) -> AbstractContextManager[Any]:
            """A stage on the GPU has its buffers once: what it queues for one batch must not mix with another's."""
            return turn if stage.memory == "cuda" else nullcontext()

        def find(batch: FrameBatch) -> tuple[FrameBatch, Any, Any]:
            move.enter()
            with alone(preprocess):
                given = move.frames(batch, preprocess.memory)
                tensor = move.rows(clock.call("preprocess", batch, preprocess, given), infer.memory, len(batch))
            masks = clock.call("infer", batch, infer, tensor)
            kept = averaging.kept(tensor, masks, len(batch)) if averaging is not None else None
            return batch if postprocess.memory == batch.memory else given, masks, kept

        def finish(found: tuple[FrameBatch, Any]) -> tuple[FrameBatch, Any]:
            move.enter()
            batch, masks = found
            with alone(postprocess):
                batch, masks = move.frames(batch, postprocess.memory), move.rows(masks, postprocess.memory, len(batch))
                finished, masks = clock.call("postprocess", batch, refined, batch, masks)
                noted = move.rows(masks, "host", len(batch)) if observers else None
                return move.frames(finished, encoder.memory, wait=False), noted

        if averaging is not None:  # between the two, masks wait for those of later frames
            found = overlapped.map(find, decoded, workers=infer.workers)
            finishing = overlapped.map(finish, steadied(found, averaging), workers=infer.workers)
        else:
            finishing = overlapped.map(lambda batch: finish(find(batch)[:2]), decoded, workers=infer.workers)
        processed = overlapped(finishing, "processed")

        def encode() -> Iterator[tuple[list[Packet[Any]], FrameBatch, Any]]:
            move.enter()
            for batch, masks in processed:
                if batch.ready is not None:
                    clock.call("wait", batch, batch.ready.synchronize)  # the one place where the host waits for the GPU
                yield clock.call("encode", batch, encoder.encode, batch), batch, masks

        frames = 0
        last = None
        fault = None
        try:
            for packets, batch, masks in overlapped(encode(), "encoded"):
                clock.call("mux", batch, muxer.write, packets)
                for observer in observers:
                    observer.note(batch, masks)
                frames += len(batch)
                last = batch.frames[-1]
                if progress is not None:
                    progress(frames, _expected(info, config))
        except Exception as exc:
            fault = explain(exc)
            if last is None or fault is None or (isinstance(fault, DeviceMemoryError) and config.batch_size != 1):
                raise
        damaged: int = decoder.damaged
        if last is None:
            raise InputError(f"{source}: {_why_nothing(info, config, stop)}; nothing was written")
        if damaged:
            text = f"{source}: {damaged} frames are damaged or missing, {frames} were written"
            if config.strict:
                raise InputError(f"{text[: text.rindex(',')]}; without --strict, what can be decoded is written")
            log.warning(text)
        muxer.write(clock.call("encode", None, encoder.flush))
        cut = fault is not None or stop.is_set() or frames == config.max_frames or config.duration is not None
        end = (last.pts + last.duration) * info.time_base if cut else None
        clock.call("mux", None, muxer.finish, end)
        if fault is None:
            clock.totals()  # so that the trace has all of it
        if trace is not None:
            trace.finish()
        if results is not None:
            results.finish()
        if fault is not None:
            raise DeviceError(f"{source}: {fault}; the {frames} frames before are in {target}") from fault
    verified = witness.check(end) if witness is not None else None

    seconds = time.perf_counter() - begin
    return Report(
        input=source,
        output=str(target),
        frames=frames,
        damaged=damaged,
        seconds=round(seconds, 3),
        fps=round(frames / seconds, 2),
        plan=plan.names(),
        stages={stage: round(spent, 3) for stage, spent in clock.totals().items()},
        verified=verified,
    )


def default_output(input: str, config: Config | None = None) -> Path:
    """`<stem>.segmented.mp4` beside the input (`.mkv` for ffv1); for an address, in the current folder."""
    suffix = ".mkv" if config is not None and config.codec == "ffv1" else ".mp4"
    if input.startswith(("http://", "https://")):
        name = Path(input.partition("?")[0].rstrip("/")).stem
        return Path(f"{name or 'video'}.segmented{suffix}")
    return Path(input).with_name(f"{Path(input).stem}.segmented{suffix}")


def until(stop: threading.Event, source: Iterable[T]) -> Generator[T, None, None]:
    """The items of `source` until `stop` is set."""
    for item in source:
        if stop.is_set():
            return
        yield item


def _choose_format(info: VideoInfo, formats: tuple[str, ...], codec: str) -> str:
    """The layout that frames have from decoder to encoder; a line says so where it is not the input's."""
    pix_fmt = working_format(info.pix_fmt, formats)
    if pix_fmt != info.pix_fmt.replace("yuvj", "yuv"):
        log.warning("%s: %s is converted to %s", info.path, info.pix_fmt, pix_fmt)
    elif codec == "h264" and pix_fmt != "yuv420p":
        log.warning("%s: %s is kept; some players show H.264 in 8-bit 4:2:0 only", info.path, pix_fmt)
    return pix_fmt


def _end(info: VideoInfo, config: Config) -> Fraction | None:
    """Where the wanted stretch ends, in seconds on the source's clock."""
    if config.duration is None:
        return None
    return info.start + Fraction(config.start) + Fraction(config.duration)


def _expected(info: VideoInfo, config: Config) -> int:
    """How many frames will come out, as far as the container says; 0 if it says nothing."""
    frames = max(0, info.frames - round(config.start * info.rate))
    if config.duration is not None:
        frames = min(frames, round(config.duration * info.rate))
    return min(frames, config.max_frames or frames)


def _why_nothing(info: VideoInfo, config: Config, stop: threading.Event) -> str:
    if stop.is_set():
        return "stopped before the first frame"
    length = f" of {float(info.end - info.start):.1f} s" if info.end is not None else ""
    return f"no frame at --start {config.start:g} s or later in this video{length}"
