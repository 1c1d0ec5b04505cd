"""The video outputs of a run, perhaps none: each with an effect of its own, all from one decode and one inference.

Every output has its postprocess stage, encoder, container and verifier. Batches pass from one output's encoder to the
next's, each in a thread of its own, so that the encoders work at the same time, on batches that follow each other.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from segmentation.flow.timing import StageClock
from segmentation.frames import FrameBatch, Transfer, VideoInfo
from segmentation.frames.picture_names import NUMBER, PICTURES
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.live.parts_muxer import PartsMuxer
from segmentation.live.push_muxer import PushMuxer
from segmentation.media.bitstream.sei import MessageWriter
from segmentation.media.muxer import Muxer
from segmentation.media.output_stream import OutputAddress, OutputDevice, OutputStream, Target
from segmentation.media.pictures.gif import GifMuxer
from segmentation.media.pictures.picture_sequence import PictureSequence
from segmentation.media.stream_muxer import DeviceMuxer, StreamMuxer
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.pipeline.planning.plan import OutputPlan, Plan
from segmentation.pipeline.resources import Resources
from segmentation.pipeline.verification.verify import OutputVerifier, Verified
from segmentation.stages.encode import Encoder
from segmentation.stages.postprocess import Postprocessor
from segmentation.stages.postprocess.marks import Marks

if TYPE_CHECKING:  # machines without a GPU lack its module's libraries
    from segmentation.gpu.cuda_calls import Event

OpenOutput = Callable[[Target, VideoInfo, Config, str], Muxer]  # the arguments of `open_output`


def open_output(target: Target, info: VideoInfo, config: Config, option: str = "-o") -> Muxer:
    """Opens `target` for writing: a stream, one file, several in turn, or by its suffix a picture for each frame.

    A .webp without a place for numbers is an animation.

    `option` is the one that names the target. Raises `OutputError`.
    """
    if isinstance(target, OutputAddress):
        return PushMuxer(target, info, config, option)
    if isinstance(target, OutputDevice):
        return DeviceMuxer(target, info, config, option)
    if isinstance(target, OutputStream):
        return StreamMuxer(target, info, config, option)
    if config.cut_every is not None:
        return PartsMuxer(target, info, config, option, every=config.cut_every)
    suffix = target.suffix.lower()
    several = suffix in PICTURES and (suffix != ".webp" or NUMBER.search(target.name) is not None)
    if several:
        return PictureSequence(target, info, config, option)
    return (GifMuxer if suffix == ".gif" else Muxer)(target, info, config, option)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingBatch:
    """A batch on its way through the encoders."""

    finished: FinishedBatch
    copied: Event | None = None  # its arrays are on the host once this CUDA event has passed; none if an encoder waits
    frames: deque[FrameBatch] = field(default_factory=deque)  # of the outputs that have not encoded it yet, in order


class VideoOutput(Sink):
    """One video: its muxer, and the stages that make its packets."""

    def __init__(self, number: int, plan: OutputPlan, muxer: Muxer, clock: StageClock) -> None:
        """`number` of the output in the run, from 0."""
        self.plan, self.muxer = plan, muxer
        self.postprocess: Postprocessor
        self.encoder: Encoder
        self.marks: Marks | None = None  # drawn on the frames, where that is asked for
        self.failed = False  # whether a batch could not be encoded
        self.messages: MessageWriter
        self._number, self._clock = number, clock

    @property
    def shows_cards(self) -> bool:
        """Returns whether the output is a picture, in which a card can be read; in a mask a card would be a mask."""
        return self.plan.config.effects[0].kind not in ("mask", "cutout")

    def for_encoder(self, batch: FrameBatch, transfer: Transfer) -> FrameBatch:
        """The batch in the encoder's memory. The GPU may still be copying, see `Transfer.frames`."""
        return transfer.frames(batch, self.encoder.memory, wait=False, blocks=self.encoder.blocks)

    def encoding(self, batches: Iterable[EncodingBatch], transfer: Transfer) -> Iterator[EncodingBatch]:
        """Encodes this output's frames of each batch, and passes the batches on."""
        transfer.enter()
        for batch in batches:
            frames = batch.frames.popleft()
            try:
                if (
                    frames.memory == "host" and frames.ready is not None
                ):  # the one place where the host waits for the GPU
                    self._clock.call("wait", frames, frames.ready.synchronize)
                if self.marks is not None and batch.finished.instances:
                    on_host = transfer.frames(frames, "host")
                    frames = transfer.frames(self.marks.draw(on_host, batch.finished.instances), frames.memory)
                self.messages.take(frames.frames)
                packets = self._clock.call("encode", frames, self.encoder.encode, frames)
                batch.finished.packets.append(self.messages.written(packets))
            except Exception:
                self.failed = True
                raise
            yield batch

    def write(self, batch: FinishedBatch) -> None:
        self._clock.call("mux", batch.frames, self.muxer.write, batch.packets[self._number])

    def finish(self, end: Fraction | None, *, fragment: bool = False, flush: bool = True) -> None:
        """Encodes the frames that the encoder still holds, unless `flush` is false, and completes the file."""
        if flush:
            self.muxer.write(self.messages.written(self._clock.call("encode", None, self.encoder.flush)))
        self._clock.call("mux", None, partial(self.muxer.finish, fragment=fragment), end)


class Outputs:
    """All videos of a run, the main one first. Use as a context manager: leaving it removes those that are unfinished.

    Raises `OutputError` for whatever is wrong with any of them.
    """

    def __init__(
        self, info: VideoInfo, plan: Plan, clock: StageClock, opened: OpenOutput = open_output, *, verify: bool = True
    ) -> None:
        """`opened` opens a file for writing. Without `verify`, no output is checked here."""
        self._info, self._plan, self._clock = info, plan, clock
        self._opened, self._verify = opened, verify
        self._files = ExitStack()
        self._all: list[VideoOutput] = []
        self._verifiers: list[OutputVerifier] = []

    def __enter__(self) -> Outputs:
        with ExitStack() as opening:
            for number, plan in enumerate(self._plan.outputs):
                muxer = opening.enter_context(self._opened(plan.path, self._info, plan.config, plan.option))
                self._all.append(VideoOutput(number, plan, muxer, self._clock))
            self._files = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def __iter__(self) -> Iterator[VideoOutput]:
        return iter(self._all)

    @property
    def made_by(self) -> list[tuple[Effect, Postprocessor | None]]:
        """Returns what makes the frames of each output, with its effect."""
        return [(output.plan.config.effects[0], output.postprocess) for output in self]

    @property
    def main(self) -> Muxer | None:
        """The first output's muxer, `None` without a video."""
        return self._all[0].muxer if self._all else None

    @property
    def sinks(self) -> list[Sink]:
        """The outputs and their verifiers."""
        return [*self._all, *self._verifiers]

    def build(self, resources: Resources, exits: ExitStack, end: Fraction | None, classes: tuple[str, ...]) -> None:
        """Builds the stages of each output; `exits` closes them.

        Other streams are copied up to `end`, in seconds on the source's clock. `classes` are those of a class
        map.
        """
        info, plan = self._info, self._plan
        gpu = resources.gpu if plan.on_gpu else None
        if plan.postprocess is None:  # without a video there are no outputs
            return
        for output in self._all:
            config, muxer = output.plan.config, output.muxer
            effect = config.effects[0].on(classes)
            output.postprocess = plan.postprocess.implementation(info, plan.pix_fmt, effect, config, gpu)
            exits.callback(output.postprocess.close)
            if effect.kind == "overlay" and config.tracker is not None:
                output.marks = Marks(info, plan.pix_fmt)
            encoder = output.plan.encode.implementation
            output.encoder = encoder(muxer, info, plan.pix_fmt, config, gpu, service=resources.encoders)
            exits.callback(output.encoder.close)
            discreet = config.anonymize is not None and not config.keep_metadata
            output.messages = MessageWriter(muxer.codec, info, takes=not discreet)
            if plan.on_gpu:
                output.encoder.prefault()
            muxer.copy_streams(end=end)
            if config.verify and self._verify:
                decoder = plan.decode.name
                verifier = OutputVerifier(muxer, info, plan.pix_fmt, config, decoder, len(self._verifiers))
                self._verifiers.append(verifier)

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Completes the files, one after the other."""
        for output in self._all:
            output.finish(end, fragment=fragment)

    def finish_without_gpu(self, end: Fraction | None) -> bool:
        """Completes the files after the GPU has failed. Returns whether every frame so far is in them.

        An encoder on the GPU can't be flushed then. Encoders before the one that has failed are ahead of it: their
        packets of the last batches are lost, and the frames that they hold don't follow the last frame written.
        """
        stuck = next((number for number, output in enumerate(self._all) if output.failed), 0)
        complete = [number >= stuck and output.encoder.memory == "host" for number, output in enumerate(self._all)]
        for output, flush in zip(self._all, complete, strict=True):
            output.finish(end, fragment=True, flush=flush)
        return all(complete)

    def check(self, end: Fraction | None, damaged: int, *, stopped: bool) -> list[Verified]:
        """Verifies each output for which that was asked, see `OutputVerifier.check`. Raises `OutputError`."""
        return [verifier.check(end, damaged, stopped=stopped) for verifier in self._verifiers]
