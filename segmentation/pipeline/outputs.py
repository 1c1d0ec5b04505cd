"""The videos that a run writes: each with an effect of its own, all from one decode and one inference.

Every output has its postprocess stage, encoder, container and verifier. Batches pass from one output's encoder to the
next's, each in a thread of its own, so that the encoders work at the same time, on batches that follow each other.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

from av.packet import Packet

from segmentation.config import Config
from segmentation.effect import Effect, effect_on
from segmentation.errors import ConfigError
from segmentation.frames import FrameBatch, VideoInfo
from segmentation.media.input import working_format
from segmentation.media.muxer import Muxer
from segmentation.media.png_sequence import open_output
from segmentation.pipeline.plan import Choice, Plan, choose_encoder
from segmentation.pipeline.timing import StageClock
from segmentation.pipeline.verify import OutputVerifier, Verified

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Finished:
    """A batch after postprocess, on its way through the encoders."""

    batch: FrameBatch  # without pictures
    shown: deque[FrameBatch]  # what the outputs show that have not encoded it yet, in their order
    masks: Any  # (N, h, w) float32 on the host, as composited; `None` where nobody asks
    levels: Any  # (N, h, w) uint8 on the host, as they are saved; `None` where they are not
    class_map: Any = None
    packets: list[list[Packet[Any]]] = field(default_factory=list)  # of the outputs that have


class Output:
    """One video: how its frames are made, encoded and written."""

    def __init__(self, config: Config, choice: Choice, muxer: Muxer, clock: StageClock) -> None:
        self.config, self.choice, self.muxer = config, choice, muxer
        self.postprocess: Any
        self.encoder: Any
        self.verifier: OutputVerifier | None = None
        self.failed = False  # whether a batch could not be encoded
        self._clock = clock

    def given(self, batch: FrameBatch, move: Any) -> FrameBatch:
        """The batch where the encoder wants it. The GPU may still be at work on it, see `transfer.Transfer.frames`."""
        blocks = self.encoder.blocks
        return move.frames(batch, self.encoder.memory, wait=False, blocks=blocks)  # type: ignore[no-any-return]

    def encoding(self, batches: Iterable[Finished], enter: Callable[[], None]) -> Iterator[Finished]:
        """Encodes what is next to be encoded of each batch, and passes the batches on. `enter` prepares the thread."""
        enter()
        for finished in batches:
            batch = finished.shown.popleft()
            try:
                if batch.memory == "host" and batch.ready is not None:  # the one place where the host waits for the GPU
                    self._clock.call("wait", batch, batch.ready.synchronize)
                finished.packets.append(self._clock.call("encode", batch, self.encoder.encode, batch))
            except Exception:
                self.failed = True
                raise
            yield finished

    def write(self, batch: FrameBatch, packets: list[Packet[Any]], masks: Any) -> None:
        """Muxes what a batch has become."""
        self._clock.call("mux", batch, self.muxer.write, packets)
        if self.verifier is not None:
            self.verifier.note(batch, masks)

    def finish(self, end: Fraction | None, *, flush: bool = True) -> None:
        """Encodes what the encoder still holds, if it is to, and puts the file in its place; see `Muxer.finish`."""
        if flush:
            self.muxer.write(self._clock.call("encode", None, self.encoder.flush))
        self._clock.call("mux", None, self.muxer.finish, end)


class Outputs:
    """All videos of a run, the main one first. Use as a context manager: leaving it removes those that are unfinished.

    Raises `OutputError` for whatever is wrong with any of them.
    """

    def __init__(self, target: Path, info: VideoInfo, config: Config, plan: Plan, clock: StageClock) -> None:
        self._target, self._info, self._config, self._plan, self._clock = target, info, config, plan, clock
        self._files = ExitStack()
        self._all: list[Output] = []

    def __enter__(self) -> Outputs:
        with ExitStack() as opening:
            muxer = opening.enter_context(open_output(self._target, self._info, self._config))
            self._all.append(Output(self._config, self._plan.encode, muxer, self._clock))
            for effect, path in self._config.also:
                config = _with_effect(self._config, effect)
                alike = _is_cutout(effect) == _is_cutout(self._config.effect)
                choice = self._plan.encode if alike else choose_encoder(config, self._info)
                muxer = opening.enter_context(open_output(Path(path), self._info, config, "--also"))
                self._all.append(Output(config, choice, muxer, self._clock))
            self._files = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def __iter__(self) -> Iterator[Output]:
        return iter(self._all)

    @property
    def main(self) -> Muxer:
        return self._all[0].muxer

    def choose_format(self) -> str:
        """The layout that frames have from decoder to encoders, one for all; a line says so where it is not the
        input's."""
        codecs = [output.muxer.codec for output in self._all]
        known = [output.choice.implementation.formats(output.muxer.codec) for output in self._all]
        pix_fmt = working_format(self._info.pix_fmt, tuple(f for f in known[0] if all(f in other for other in known)))
        if pix_fmt != self._info.pix_fmt.replace("yuvj", "yuv"):
            log.warning("%s: %s is converted to %s", self._info.path, self._info.pix_fmt, pix_fmt)
        elif "h264" in codecs and pix_fmt != "yuv420p":
            log.warning(
                "%s: %s is kept; some players show H.264 in 8-bit 4:2:0 only", self._info.path, self._info.pix_fmt
            )
        return pix_fmt

    def prepare(
        self, made: Callable[..., Any], plan: Plan, pix_fmt: str, end: Fraction | None, classes: tuple[str, ...]
    ) -> None:
        """Makes the stages of each output. Other streams are copied up to `end`, on the source's clock. `classes` are
        those that batches tell apart."""
        info = self._info
        for output in self._all:
            config, muxer = output.config, output.muxer
            output.postprocess = made(plan.postprocess, info, pix_fmt, effect_on(config.effect, classes), config)
            output.encoder = made(output.choice, muxer, info, pix_fmt, config)
            if plan.on_gpu:
                output.encoder.prefault()
            muxer.copy_streams(end=end)
            if config.verify:
                output.verifier = OutputVerifier(muxer, info, pix_fmt, config, plan.decode.name)

    def write(self, finished: Finished) -> None:
        """Muxes what a batch has become, in each output."""
        for output, packets in zip(self._all, finished.packets, strict=True):
            output.write(finished.batch, packets, finished.masks)

    def finish(self, end: Fraction | None) -> None:
        """Completes the files, one after the other; see `Muxer.finish`."""
        for output in self._all:
            output.finish(end)

    def finish_without_gpu(self, end: Fraction | None) -> bool:
        """The same when the GPU has failed. Returns whether every frame so far is in the files.

        An encoder on the GPU can't be asked for what it still holds. Those before the one that could not go on are
        ahead, and what they made of the last batches is lost: what they still hold does not follow what is written.
        """
        stuck = next((number for number, output in enumerate(self._all) if output.failed), 0)
        complete = [number >= stuck and output.encoder.memory == "host" for number, output in enumerate(self._all)]
        for output, flush in zip(self._all, complete, strict=True):
            output.finish(end, flush=flush)
        return all(complete)

    def check(self, end: Fraction | None) -> list[Verified]:
        """Verifies each output, where that was asked for. Raises `OutputError`."""
        return [output.verifier.check(end) for output in self._all if output.verifier is not None]


def _is_cutout(effect: str) -> bool:
    return Effect.parse(effect).kind == "cutout"


def _with_effect(config: Config, effect: str) -> Config:
    """The options of another output. Those of codecs are not for cut-outs, nor a cut-out's for other outputs."""
    if _is_cutout(effect) and not _is_cutout(config.effect):
        return replace(config, effect=effect, codec=None, preset=None, encode=None, quality=None, verify=False)
    if _is_cutout(config.effect) and not _is_cutout(effect):
        return replace(config, effect=effect, encode=None, quality=None)
    return replace(config, effect=effect)


def default_output(input: str, config: Config | None = None) -> Path:
    """`<stem>.segmented.mp4` beside the input, `.mkv` for ffv1, `.mov` for cut-outs; for an address, in the current
    folder."""
    config = config or Config()
    suffix = ".mkv" if config.codec == "ffv1" else ".mp4"
    if Effect.parse(config.effect).kind == "cutout":
        suffix = ".mov"
    if input.startswith(("http://", "https://")):
        input = Path(input.partition("?")[0].rstrip("/")).name
    return Path(input).parent / f"{Path(input).stem or 'video'}.segmented{suffix}"


def check_names(source: str, target: Path, config: Config) -> None:
    """Raises `ConfigError` if two of the files to be written are one, or one of them is read."""
    named = [("-o", target), *(("--also", Path(path)) for _, path in config.also)]
    others = {"--results": config.results, "--save-masks": config.save_masks, "--trace": config.trace}
    named += [(option, Path(path)) for option, path in others.items() if path is not None]
    reads = [(source, "the input itself"), (config.masks, "what --masks reads")]
    reads.append((Effect.parse(config.effect).file, "what --effect reads"))
    reads += [(Effect.parse(effect).file, "what --also reads") for effect, _ in config.also]
    seen: dict[Path, str] = {}
    for option, path in named:
        for read, what in reads:
            if read is not None and os.path.exists(path) and os.path.exists(read) and os.path.samefile(path, read):
                raise ConfigError(f"{option} {path}: is {what}; name another file")
        try:
            own = path.resolve()
        except (OSError, RuntimeError, ValueError) as exc:  # a symlink that leads to itself, a name that can't be
            raise ConfigError(f"{option} {path}: cannot be written ({exc})") from exc
        if (other := seen.get(own)) is not None:
            what = "the output" if other == "-o" else f"the file of {other}"
            raise ConfigError(f"{option} {path}: is {what} too; name another file")
        seen[own] = option
