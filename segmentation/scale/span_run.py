"""A run over neighboring pieces of one video: decoded and smoothed without a break, handed over piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import count, groupby

from segmentation.errors import InputError
from segmentation.frames import FrameBatch, MaskedBatch, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.media.output_stream import Target
from segmentation.options.config import Config
from segmentation.options.times import exact
from segmentation.pipeline.opened_run import OpenedRun
from segmentation.pipeline.outputs import EncodingBatch, Outputs
from segmentation.pipeline.records import Records
from segmentation.pipeline.request import RunRequest
from segmentation.pipeline.resources import Resources
from segmentation.pipeline.run import Run, opened_for
from segmentation.scale.piece_file import CodedStream, PieceIndex
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.piece_sink import PieceMuxer, PieceSink
from segmentation.scale.span import Span
from segmentation.scale.storage import SharedStorage
from segmentation.stages.decode.timestamps import within_limit


def make_span(
    resources: Resources, request: RunRequest, span: Span, folder: PieceFolder, worker: dict[str, str]
) -> None:
    """Makes the pieces of a span, once. `worker` is the fingerprint of this process.

    Raises as `segment` does. The files of complete pieces stay.
    """
    with ExitStack() as exits:
        opened = opened_for(resources, request, exits)
        if span.plan.pieces[0].cuts is not None:  # the plan has found no step
            opened = replace(opened, info=replace(opened.info, may_step=False))
        SpanRun(resources, request, opened, exits, span, folder, worker).make()


class SpanRun(Run):
    """The stages of a span."""

    def __init__(
        self,
        resources: Resources,
        request: RunRequest,
        opened: OpenedRun,
        exits: ExitStack,
        span: Span,
        folder: PieceFolder,
        worker: dict[str, str],
    ) -> None:
        """`exits` empties the run in the end."""
        exits.callback(vars(self).clear)  # outputs and sink refer to it, and would keep its frames until a collection
        self._span, self._folder, self._worker = span, folder, worker
        self._numbers = count()  # of the outputs
        self._spent: dict[str, float] = {}  # seconds by stage, up to the last complete piece
        self._inferred = 0  # likewise
        super().__init__(resources, request, opened, exits, None)

    def make(self) -> None:
        """Makes all pieces."""
        self._write(self._batches())
        if self._fault is not None:
            raise self._fault
        if not self._request.stop.is_set():
            self._outputs.finish(None)
            self._pieces.finish(None)

    @property
    def _stretch(self) -> Config:
        config, info, span = self._config, self._info, self._span
        if span.plan.pieces[0].cuts is None:
            return config
        start, end = exact(config.start), None if config.duration is None else exact(config.start + config.duration)
        if span.first.decode is not None:
            start = max(Fraction(0), span.first.decode * info.time_base - info.start)
        if span.last.tail is not None:
            end = span.last.tail * info.time_base - info.start
        duration = None if end is None else end - start
        return replace(config, start=start, duration=duration, max_frames=None)  # type: ignore[arg-type]  # exact

    def _wanted(self) -> Iterator[FrameBatch]:
        """The batches without frames that nobody needs, divided where pieces begin."""
        span, latest = self._span, self._span.begin - 1
        for batch in within_limit(self._info, self._decoder):
            begin = 0
            if span.last.tail is not None and batch.frames[0].pts >= span.last.tail:
                return
            for (piece, needed), frames in groupby(batch.frames, lambda f: (span.piece(f.pts), span.needs(f.pts))):
                end = begin + len(list(frames))
                if latest < piece < span.end:
                    latest = piece
                    span.begun(piece)
                if needed:
                    yield batch.part(begin, end)
                begin = end

    def _make_outputs(self) -> Outputs:
        return Outputs(self._info, self._plan, self._clock, self._open_output, verify=False)

    def _open_output(self, target: Target, info: VideoInfo, config: Config, option: str) -> Muxer:
        number = next(self._numbers)
        return PieceMuxer(target, info, config, self._span.plan.cuts, partial(self._take, number))

    def _take(self, output: int, packets: object) -> None:
        self._pieces.add(output, packets)  # type: ignore[arg-type]

    def _make_records(self, exits: ExitStack) -> Records:
        def new(number: int) -> PieceIndex:
            return PieceIndex(
                work=self._span.plan.digest,
                number=number,
                pix_fmt=self._plan.pix_fmt,
                plan=self._plan.names(),
                worker=self._worker,
                classes=self._classes,
                model="" if self._model is None else self._model.name,
                outputs=[CodedStream() for _ in self._plan.outputs],
            )

        self._pieces = PieceSink(self._span, self._folder, self._info, self._config, new, self._measure)
        exits.callback(self._pieces.discard)
        return Records(sinks=[self._pieces])

    def _processed(self) -> Iterator[EncodingBatch]:
        def finish(batch: MaskedBatch) -> EncodingBatch | None:
            return self._composite(batch) if self._span.has(batch.frames.frames[0].pts) else None

        made = self._masks.finished(self._decoded, finish, self._overlap)
        return (batch for batch in made if batch is not None)

    def _measure(self, index: PieceIndex) -> None:
        """Fills in the figures of a piece that is complete. Raises `InputError` if reading has failed in it."""
        plan = self._span.plan
        planned = plan.pieces[index.number].frames
        # All packets of planned frames could be read when the plan was made. Others may end early in the file, too.
        if self._decoder.cut_short and (len(index.frames) < planned or SharedStorage(plan.source).fault()):
            raise InputError(f"{plan.source}: reading ended early at piece {index.number}; run the same command again")
        index.damaged = max(0, planned - len(index.frames)) if planned else self._decoder.damaged
        index.cut_short = self._decoder.cut_short
        if self._decoder.source is not None and not planned:  # what is cut has no such packets
            index.retimed = self._decoder.source.retimed(self._info.stream_index)
        spent, inferred = self._clock.totals(), self._masks.inferred
        index.stages = {stage: seconds - self._spent.get(stage, 0.0) for stage, seconds in spent.items()}
        index.inferred = inferred - self._inferred
        self._spent, self._inferred = spent, inferred
        for output, stream in zip(self._outputs, index.outputs, strict=True):
            context = output.muxer.container.streams.video[0].codec_context
            stream.extradata = (context.extradata or b"").hex()
