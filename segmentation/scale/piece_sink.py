"""Takes what a run makes of a span, and writes the file of each piece."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

import av
import av.error
from av.container import OutputContainer

from segmentation.errors import OutputError
from segmentation.frames import VideoInfo
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.media.containers import format_options
from segmentation.media.cuts import Cuts
from segmentation.media.muxer import Muxer
from segmentation.media.output_stream import Target
from segmentation.media.video_packet import pts_of
from segmentation.options.config import Config
from segmentation.pipeline.result_files.results import ResultLines
from segmentation.pipeline.verification.verify import KeptPixels, rounded
from segmentation.scale.piece_file import PieceIndex, PieceWriter
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.span import Span
from segmentation.stages.masks.saved import MaskEncoder

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

    Packets = Iterable[Packet[VideoStream]]


class PieceMuxer(Muxer):
    """Stands for the output: the codec is described as in that file, and the packets are handed to `take`."""

    def __init__(
        self, target: Target, info: VideoInfo, config: Config, cuts: Cuts, take: Callable[[Packets], None]
    ) -> None:
        self.cuts, self._take = cuts, take
        super().__init__(target, info, config)

    def _prepare(self, overwrite: bool, option: str) -> None: ...

    def _begin(self) -> OutputContainer:
        nothing = io.BytesIO()
        nothing.name = str(self.target)  # by which FFmpeg chooses the format
        return av.open(nothing, "w", container_options=format_options(self.target, self._info))

    def _discard(self) -> None: ...

    def copy_streams(self, *, end: Fraction | None) -> None:
        """Copies nothing: that is done once, when the pieces are joined."""

    def write(self, packets: Packets) -> None:
        self._take(packets)

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Completes nothing."""


class PieceSink(Sink):
    """Completes the file of a piece as soon as all its packets are there. Raises `OutputError`."""

    def __init__(
        self,
        span: Span,
        folder: PieceFolder,
        info: VideoInfo,
        config: Config,
        new: Callable[[int], PieceIndex],
        done: Callable[[PieceIndex], None],
    ) -> None:
        """`new` returns the index of a piece without frames. `done` is called before a file is completed."""
        self._span, self._folder, self._info = span, folder, info
        self._new, self._done = new, done
        self._lines: ResultLines | None = None
        self._keep = KeptPixels(info, config)
        self._wants_results = config.results is not None
        self._config = config
        self._open: dict[int, PieceWriter] = {}
        self._complete = span.begin  # the first piece that is not complete
        self._masks: MaskEncoder | None = None

    def add(self, output: int, packets: Packets) -> None:
        """Takes packets of an output."""
        for number, group in groupby(packets, lambda packet: self._span.piece(pts_of(packet))):
            piece, own = self._writer(number), list(group)
            places = piece.add_all([memoryview(packet) for packet in own])
            piece.index.outputs[output].packets += [
                (*place, pts_of(packet), packet.duration or 0, bool(packet.is_keyframe))
                for place, packet in zip(places, own, strict=True)
            ]

    def write(self, batch: FinishedBatch) -> None:
        """Takes the frames of a batch, which all belong to one piece."""
        frames = batch.frames.frames
        number = self._span.piece(frames[0].pts)
        piece = self._writer(number)
        first = not piece.index.frames
        piece.index.frames += [(frame.pts, frame.duration) for frame in frames]
        piece.index.found += 0 if batch.found is None else int(batch.found.sum())
        piece.index.unknown += 0 if batch.unknown is None else int(batch.unknown.sum())
        self._add_results(piece, batch)
        self._add_masks(piece, batch)
        self._add_notes(piece, batch, first=first)
        self._complete_before(number)

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Completes the last pieces."""
        self._complete_before(self._span.end)
        if self._complete < self._span.end:
            raise OutputError(f"{self._info.path}: packets of piece {self._complete} are missing")

    def discard(self) -> None:
        """Removes the files that are not complete."""
        for piece in self._open.values():
            piece.discard()

    def _add_results(self, piece: PieceWriter, batch: FinishedBatch) -> None:
        if self._wants_results:
            if self._lines is None:
                self._lines = ResultLines(self._info, piece.index.classes, self._config)
            piece.index.results += [piece.add(json.dumps(line).encode()) for line in self._lines(batch)]

    def _add_masks(self, piece: PieceWriter, batch: FinishedBatch) -> None:
        if len(batch.levels):
            height, width = batch.levels.shape[1:]
            if self._masks is None:
                self._masks = MaskEncoder(width, height, self._info)
            piece.index.masks += [piece.add(self._masks(mask)) for mask in batch.levels]
            piece.index.mask_size = width, height

    def _add_notes(self, piece: PieceWriter, batch: FinishedBatch, *, first: bool) -> None:
        """Adds what the check of the output needs: thumbnails, and of the first frame the pixels that are kept."""
        if len(batch.thumbnails):
            small = rounded(batch.thumbnails, piece.index.pix_fmt)
            piece.index.thumbnails += [piece.add(row.tobytes()) for row in small]
            if first:
                for output, masks in zip(piece.index.outputs, batch.shown, strict=True):
                    (height, width), bits = self._keep(masks[0])
                    output.kept = height, width, piece.add(bits)

    def _complete_before(self, number: int) -> None:
        """Completes the pieces before this one that have all their packets."""
        while self._complete < min(number, self._span.end):
            piece = self._writer(self._complete)
            frames = len(piece.index.frames)
            if any(len(output.packets) != frames for output in piece.index.outputs):
                return
            self._done(piece.index)
            piece.commit()
            del self._open[self._complete]
            self._complete += 1
            self._span.completed(self._complete - 1)

    def _writer(self, number: int) -> PieceWriter:
        if number not in self._open:
            self._open[number] = PieceWriter(self._folder.file(number), self._new(number))
        return self._open[number]
