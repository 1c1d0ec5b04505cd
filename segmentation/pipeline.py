"""The path of a frame, top to bottom: open, plan, loop, close."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from segmentation.config import STAGES, Config, Effect
from segmentation.errors import InputError
from segmentation.frames import FrameBatch, VideoInfo
from segmentation.inference import on_host
from segmentation.model import load_model
from segmentation.mux import Muxer
from segmentation.overlap import Overlap
from segmentation.plan import make_plan
from segmentation.refine import Refiner
from segmentation.results import Results
from segmentation.source import probe, working_format
from segmentation.temporal import small_lumas, steadied
from segmentation.verify import Verified, Witness

log = logging.getLogger(__name__)

T = TypeVar("T")
Progress = Callable[[int, int], None]  # (frames done, frames expected or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did. `seconds` is the whole run; `stages` are the seconds that each stage's threads were busy."""

    input: str
    output: str
    frames: int
    damaged: int  # frames of the input that were lost or are known to be broken
    seconds: float
    fps: float
    plan: dict[str, str]
    stages: dict[str, float]
    verified: Verified | None = None  # with `Config.verify`


class StageClock:
    """Measures stages from outside: how long each call, or each step of an iterator, keeps its thread."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._lock = threading.Lock()

    def call(self, stage: str, function: Callable[..., T], *arguments: Any) -> T:
        """Calls `function`, on `stage`'s account."""
        begin = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            with self._lock:
                self.seconds[stage] += time.perf_counter() - begin

    def steps(self, stage: str, source: Iterable[T]) -> Generator[T, None, None]:
        """The items of `source`, each fetched on `stage`'s account."""
        iterator = iter(source)
        end = object()
        while (item := self.call(stage, next, iterator, end)) is not end:
            yield item


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
    left behind.
    """
    begin = time.perf_counter()
    config = replace(config or Config(), **options)
    source = str(input)
    target = Path(output) if output is not None else default_output(source, config)
    stop = stop or threading.Event()
    clock = StageClock()

    plan = make_plan(config)
    log.info("plan:\n%s", plan)
    model = load_model(config)
    info = probe(source)

    with Muxer(target, info, config) as muxer, ExitStack() as files, Overlap() as overlapped:
        pix_fmt = _choose_format(info, plan.encode.implementation.formats(muxer.codec), muxer.codec)
        decoder = plan.decode.implementation(info, pix_fmt, config)
        preprocess = plan.preprocess.implementation(info, pix_fmt, model)
        infer = plan.infer.implementation(model, config)
        refine = Refiner(info, pix_fmt) if config.refine else None
        postprocess = plan.postprocess.implementation(info, pix_fmt, Effect.parse(config.effect))
        encoder = plan.encode.implementation(muxer, info, pix_fmt, config)
        muxer.copy_streams(end=_end(info, config))
        results = files.enter_context(Results(muxer, info, model, config)) if config.results else None
        witness = Witness(muxer, info, pix_fmt, config) if config.verify else None
        observers = [observer for observer in (results, witness) if observer is not None]

        def find(batch: FrameBatch) -> tuple[FrameBatch, Any, Any]:
            tensor = clock.call("preprocess", preprocess, batch)
            masks = clock.call("infer", infer, tensor)
            return batch, masks, small_lumas(tensor, model, masks.shape[1:]) if config.smooth else None

        def finish(found: tuple[FrameBatch, Any]) -> tuple[FrameBatch, Any]:
            batch, masks = found
            if refine is not None:
                masks = clock.call("postprocess", refine, batch, masks)
            return clock.call("postprocess", postprocess, batch, masks), masks

        decoded = overlapped(until(stop, clock.steps("decode", decoder)))
        found = overlapped.map(find, decoded, workers=infer.workers)
        processed = overlapped(overlapped.map(finish, steadied(found, config.smooth), workers=infer.workers))

        frames = 0
        last = None
        for batch, masks in processed:
            muxer.write(clock.call("encode", encoder.encode, batch))
            for observer in observers:
                observer.note(batch, on_host(masks))
            frames += len(batch)
            last = batch.frames[-1]
            if progress is not None:
                progress(frames, _expected(info, config))
        damaged: int = decoder.damaged
        if last is None:
            raise InputError(f"{source}: {_why_nothing(info, config, stop)}; nothing was written")
        if damaged:
            text = f"{source}: {damaged} frames are damaged or missing, {frames} were written"
            if config.strict:
                raise InputError(f"{text[: text.rindex(',')]}; without --strict, what can be decoded is written")
            log.warning(text)
        muxer.write(clock.call("encode", encoder.flush))
        cut = stop.is_set() or frames == config.max_frames or config.duration is not None
        end = (last.pts + last.duration) * info.time_base if cut else None
        muxer.finish(end)
        if results is not None:
            results.finish()
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
        stages={stage: round(spent, 3) for stage, spent in clock.seconds.items()},
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
