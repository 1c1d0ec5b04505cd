"""Joins pieces into the output: packets, results and masks in order, and the source's other streams once."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from av.packet import Packet

from segmentation.errors import ConfigError, InputError, OutputError
from segmentation.frames import VideoInfo
from segmentation.media.bitstream.losses import TOLERATED
from segmentation.media.containers import of_pictures
from segmentation.media.muxer import Muxer
from segmentation.media.opening.probe import probe
from segmentation.media.source_packets import late_in
from segmentation.options.access import access_of
from segmentation.options.config import Config
from segmentation.pipeline.found import covered_frames, no_numbers, nothing_found
from segmentation.pipeline.opened_run import end_of
from segmentation.pipeline.outputs import open_output
from segmentation.pipeline.planning.plan import OutputPlan, plan_outputs
from segmentation.pipeline.report import Report
from segmentation.pipeline.result_files.results import Results
from segmentation.pipeline.time_report import (
    missing_streams,
    report_damage,
    report_late,
    retimed_packets,
    warn_of_times,
)
from segmentation.pipeline.verification.verify import OutputVerifier
from segmentation.scale.fingerprint import differences
from segmentation.scale.piece_file import PieceFile, PieceIndex
from segmentation.scale.plan import VideoPlan
from segmentation.scale.storage import SharedStorage, StorageLost
from segmentation.stages.encode.segments import JoinedStream
from segmentation.stages.masks.saved import MaskWriter
from segmentation.system.atomic_file import PendingFile

if TYPE_CHECKING:
    from segmentation.media.video_packet import VideoPacket


log = logging.getLogger(__name__)

_ENCODER = "x264-segments"


class Joiner:
    """Writes one output of the pieces that it is given in order. Use as a context manager.

    Leaving it without `finish` removes the files that are not complete. Raises `OutputError` and `InputError`.
    """

    def __init__(
        self, plan: VideoPlan, target: Path, info: VideoInfo | None = None, *, overwrite: bool, exact: bool = False
    ) -> None:
        """`target` is the plan's, as the user wrote it, and `info` describes its source, if that is known already.

        `exact` refuses pieces of workers that differ.
        """
        self._exact = exact
        self._differ: set[str] = set()  # differences between workers that were said
        self._plan, self._target = plan, target
        # Frames are on the CPU when they are joined, and no stage but the encoder is asked for anything.
        self._config = replace(plan.config, device="cpu", mode="auto", overwrite=overwrite)
        self._info = info or probe(plan.source, access_of(self._config))
        self._exits = ExitStack()
        self._begin = time.perf_counter()
        self._first: PieceIndex | None = None
        self._last = (0, 0)  # pts and duration of the latest frame
        self._frames = self._damaged = self._retimed = self._inferred = self._found = self._unknown = 0
        self._cut_short = False
        self._late: dict[int, str] = {}
        self._stages: dict[str, float] = {}

    def __enter__(self) -> Joiner:
        config = self._config
        for option, path in (("--results", config.results), ("--save-masks", config.save_masks)):
            if path is not None:  # written when the first piece is there, and tested before
                PendingFile(Path(str(path)), overwrite=config.overwrite).check(option)
        with ExitStack() as opening:
            outputs, self._pix_fmt = plan_outputs(self._config, self._info, self._target)
            self._outputs = [
                opening.enter_context(_JoinedOutput(self._info, one, self._pix_fmt, self._plan)) for one in outputs
            ]
            self._exits = opening.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def add(self, piece: PieceFile) -> None:
        """Takes the next piece."""
        index = piece.index
        if self._first is None:
            self._first = index
            self._open_records(index)
        self._compare(piece, self._first.worker)
        if index.pix_fmt != self._pix_fmt:
            raise OutputError(f"{piece.path}: was made as {index.pix_fmt}, and the output is {self._pix_fmt}")
        streams = range(len(index.outputs))
        for output, stream in zip(self._outputs, streams, strict=True):
            output.add(piece, stream)
        self._add_records(piece)
        for output, stream in zip(self._outputs, streams, strict=True):
            output.note(piece, stream)
        self._frames += len(index.frames)
        self._last = index.frames[-1] if index.frames else self._last
        self._damaged += index.damaged
        self._retimed += index.retimed
        self._inferred += index.inferred
        self._found += index.found
        self._unknown += index.unknown
        self._cut_short = self._cut_short or index.cut_short
        for stage, seconds in index.stages.items():
            self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    @property
    def _begun(self) -> PieceIndex:
        """The index of the first piece. Raises `InputError` if there is no frame."""
        if self._first is None or not self._frames:
            raise InputError(f"{self._info.path}: no frame was found in the wanted stretch; nothing was written")
        return self._first

    def finish(self) -> None:
        """Completes all files. Raises `InputError` if there is no frame."""
        info, config = self._info, self._config
        first = self._begun
        if info.may_step:
            self._late = missing_streams(late_in(info), config)
            report_late(info.path, self._late, config, self._outputs[0].muxer.other_videos)
        report_damage(info.path, self._damaged, self._frames, config)
        self._end = end_of(info, config)
        if self._frames == config.max_frames:
            self._end = sum(self._last) * info.time_base
        for output in self._outputs:
            output.muxer.copy_rest(self._end)
        if any(output.muxer.cut_short for output in self._outputs) and (
            fault := SharedStorage(self._plan.source).fault()
        ):
            raise StorageLost(fault)
        for output in self._outputs:
            output.muxer.finish(self._end)
        for record in self._records:
            record.finish(self._end)
        warn_of_times(info.path, self._outputs[0].muxer.source_packets, self._times_set)
        if self._unknown:
            covered = covered_frames(self._unknown, self._frames)
            log.warning("%s: %s", info.path, no_numbers(first.model, covered))
        if not self._found and self._unknown < self._frames:
            log.warning("%s: %s", info.path, nothing_found(first.classes, self._frames))

    def report(self) -> Report:
        """Checks the files if that is wanted, and returns the report. Raises as `finish`."""
        info, first = self._info, self._begun
        checks = [
            output.verifier.check(self._end, self._damaged, stopped=False)
            for output in self._outputs
            if output.verifier
        ]
        damaged = self._damaged + self._unknown
        lossy = damaged > TOLERATED * (self._frames + damaged)
        cut_short = self._cut_short or any(output.muxer.is_incomplete for output in self._outputs)
        seconds = time.perf_counter() - self._begin
        files = [str(output.muxer.target) for output in self._outputs]
        return Report(
            input=info.path,
            output=files[0],
            also=tuple(files[1:]),
            frames=self._frames,
            damaged=self._damaged,
            retimed=self._times_set,
            left_out=dict(+self._outputs[0].muxer.left_out),
            late=self._late,
            inferred=self._inferred,
            found=self._found,
            unknown=self._unknown,
            received=self._frames,
            complete=not (lossy or cut_short or self._late),
            seconds=round(seconds, 3),
            fps=round(self._frames / seconds, 2),
            plan=first.plan,
            stages={stage: round(spent, 3) for stage, spent in self._stages.items()},
            verified=checks[0] if checks else None,
        )

    @property
    def _times_set(self) -> dict[int, int]:
        return retimed_packets(self._info.stream_index, self._retimed, self._outputs[0].muxer)

    def _compare(self, piece: PieceFile, first: dict[str, str]) -> None:
        """Compares the worker of a piece with that of the first piece."""
        found = differences(first, piece.index.worker)
        if found and self._exact:
            raise OutputError(f"{piece.path}: its worker differs from the first one's ({found}); remove it (--exact)")
        if found and found not in self._differ:
            self._differ.add(found)
            log.warning("%s: workers differ (%s): packets may be others in another run", self._target, found)

    def _open_records(self, index: PieceIndex) -> None:
        info, config = self._info, self._config
        self._results = self._masks = None
        if config.results is not None:
            seconds = self._outputs[0].muxer.seconds
            self._results = self._exits.enter_context(Results(seconds, info, index.classes, config))
        if config.save_masks is not None:
            writer = MaskWriter(config.save_masks, info, index.model, index.classes, overwrite=config.overwrite)
            self._masks = self._exits.enter_context(writer)
        self._records = [record for record in (self._results, self._masks) if record is not None]

    def _add_records(self, piece: PieceFile) -> None:
        """Writes the results and the masks of a piece, a few frames at a time."""
        index = piece.index
        if self._results is not None:
            for number, place in enumerate(index.results, self._frames):
                self._results.write_lines([json.loads(piece.blob(place)) | {"index": number}])
        if self._masks is not None:
            for (pts, _), place in zip(index.frames, index.masks, strict=True):
                self._masks.write_coded([pts], [piece.blob(place)], index.mask_size)


class _JoinedOutput:
    """One video of the output, with its check."""

    def __init__(self, info: VideoInfo, plan: OutputPlan, pix_fmt: str, video: VideoPlan) -> None:
        self._info, self._plan, self._pix_fmt, self._video = info, plan, pix_fmt, video
        self.verifier: OutputVerifier | None = None

    def __enter__(self) -> _JoinedOutput:
        info, config = self._info, self._plan.config
        self.muxer: Muxer = open_output(self._plan.path, info, config, self._plan.option)
        with ExitStack() as opening:
            opening.enter_context(self.muxer)
            self.muxer.cuts = self._video.cuts
            self._stream = JoinedStream(self.muxer, info, self._pix_fmt, config)
            self.muxer.copy_streams(end=end_of(info, config))
            self._opened = opening.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def add(self, piece: PieceFile, stream: int) -> None:
        """Muxes the packets of a piece."""
        coded = piece.index.outputs[stream]
        if coded.packets and bytes.fromhex(coded.extradata) != self._stream.extradata:
            raise OutputError(
                f"{piece.path}: its encoder has other parameters than this process's; use the same build everywhere"
            )
        for group in _groups(piece, stream):
            self.muxer.write(self._stream.joined(group))

    def note(self, piece: PieceFile, stream: int) -> None:
        """Notes the frames of a piece for the check."""
        index, config, coded = piece.index, self._plan.config, piece.index.outputs[stream]
        if not config.verify:
            return
        if self.verifier is None:
            self.verifier = OutputVerifier(self.muxer, self._info, self._pix_fmt, config, index.plan["decode"])
        for number, ((pts, _), place) in enumerate(zip(index.frames, index.thumbnails, strict=True)):
            small = np.frombuffer(piece.blob(place), np.uint8)
            kept = None
            if not number and coded.kept is not None:
                height, width, bits = coded.kept
                kept = (height, width), piece.blob(bits)
            self.verifier.note(pts, small, kept)


def _groups(piece: PieceFile, stream: int) -> Iterator[list[VideoPacket]]:
    """Yields the packets from each keyframe to the next: whole segments, or parts that can be decoded alone."""
    group: list[VideoPacket] = []
    for offset, size, pts, duration, is_keyframe in piece.index.outputs[stream].packets:
        if is_keyframe and group:
            yield group
            group = []
        packet: VideoPacket = Packet(piece.blob((offset, size)))  # type: ignore[assignment]
        packet.pts, packet.duration, packet.is_keyframe = pts, duration, is_keyframe
        group.append(packet)
    if group:
        yield group


def join(plan: VideoPlan, pieces: Iterable[Path], target: Path, *, overwrite: bool, exact: bool = False) -> Report:
    """Joins the pieces, in order, into the output, see `Joiner`. Raises `OutputError` and `InputError`."""
    with Joiner(plan, target, overwrite=overwrite, exact=exact) as joiner:
        for number, path in enumerate(pieces):
            with PieceFile(path, plan.digest, number) as piece:
                joiner.add(piece)
        joiner.finish()
        return joiner.report()


class NoPieces(ConfigError):
    """An output can't be joined of pieces. The text is the reason."""


def for_pieces(config: Config, info: VideoInfo, target: Path) -> Config:
    """Returns the options with the encoder of pieces. Raises `NoPieces`, `ConfigError` and `OutputError`."""
    if config.tracker is not None or config.anonymize is not None:
        raise NoPieces("ids go on from frame to frame")
    if config.project is not None:
        raise NoPieces("corrections are carried from frame to frame")
    pictures = any(of_pictures(path) for path in (target, *(Path(path) for _, path in config.also)))
    if pictures or config.encode not in (None, _ENCODER) or config.effects[0].kind == "cutout":
        raise NoPieces("its encoder makes no pieces")
    config = replace(config, encode=_ENCODER)
    outputs, _ = plan_outputs(replace(config, device="cpu", mode="auto"), info, target)
    if any(output.encode.name != _ENCODER for output in outputs):
        raise NoPieces("its encoder makes no pieces")
    return config
