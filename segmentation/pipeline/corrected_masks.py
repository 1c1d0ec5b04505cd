"""Corrects the masks of a run by a project file: `--project`."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import chain, islice, tee

import numpy as np

from segmentation.errors import ConfigError, InputError
from segmentation.frames import Frame, MaskedBatch, Memory, Transfer, VideoInfo
from segmentation.interval.carried_corrections import FARTHEST, CorrectedFrame, PackedMap, carried, corrected, luma_of
from segmentation.options.project import MaskCorrection, Project, read_project
from segmentation.pipeline.opened_run import OpenedRun
from segmentation.pipeline.planning.plan import with_host_decoder
from segmentation.stages.mask_source import MaskStep

_BEHIND = 1.0  # seconds behind the last frame in which a time may still mean that frame


def make_correction_steps(opened: OpenedRun, pix_fmt: str, transfer: Transfer) -> list[MaskStep]:
    """Returns the step that corrects masks, the first behind the network, if the options name a project file.

    Raises `InputError` for a file that can't be used or belongs to another video, and `ConfigError` for a source that
    can be read once only.
    """
    config, info = opened.config, opened.info
    if config.project is None:
        return []
    if info.live is not None or info.source.stream is not None:
        raise ConfigError(f"project {config.project}: the input is read twice, so it must be a file")
    project = read_project(str(config.project))
    project.check(info.upright_size)
    return [CorrectedMasks(project, opened, pix_fmt, transfer)] if project.corrections else []


class CorrectedMasks:
    """A step behind smoothing. The frames around the corrections are decoded once more for it, on the CPU."""

    def __init__(self, project: Project, opened: OpenedRun, pix_fmt: str, transfer: Transfer) -> None:
        self._project, self._opened, self._pix_fmt, self._transfer = project, opened, pix_fmt, transfer
        self._step = 1 / opened.info.rate / opened.info.time_base  # ticks, nominal

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        corrections = self._project.corrections
        with closing(self._frames()) as frames:
            shown = marked(frames, corrections, self._opened.info, self._pix_fmt, self._project.name)
            coming = carried(shown, len(corrections))
            near: list[tuple[int, PackedMap]] = []  # of the frames around the batch, by their pts
            for batch in batches:
                first, last = batch.frames.frames[0].pts, batch.frames.frames[-1].pts
                near = [one for one in near if one[0] > first - self._step]
                while not near or near[-1][0] <= last:
                    if (following := next(coming, None)) is None:
                        break
                    near.append(following)
                own = [_nearest(near, frame.pts, self._step) for frame in batch.frames.frames]
                yield batch if not any(own) else self._corrected(batch, own)

    def _corrected(self, batch: MaskedBatch, own: list[PackedMap | None]) -> MaskedBatch:
        pairs = zip(batch.host_masks(self._transfer), own, strict=True)
        made = np.stack([mask if one is None else corrected(mask, one) for mask, one in pairs])
        memory: Memory = "host" if isinstance(batch.masks, np.ndarray) else "cuda"
        return replace(batch, masks=self._transfer.rows(made, memory, len(batch)))

    def _frames(self) -> Generator[Frame, None, None]:
        """Yields the frames that a correction may come from or go to, once more."""
        opened, info = self._opened, self._opened.info
        plan, corrections = opened.plan, self._project.corrections
        decode = (with_host_decoder(plan, opened.config, info) if plan.decode.on_gpu else plan).decode
        begin = max(0.0, corrections[0].time - float(FARTHEST / info.rate))
        config = replace(opened.config, start=begin, duration=None, max_frames=None)
        decoder = decode.implementation(info, self._pix_fmt, config, None)
        with closing(decoder):
            for batch in decoder:
                yield from batch.frames


def marked(
    frames: Iterator[Frame], corrections: tuple[MaskCorrection, ...], info: VideoInfo, pix_fmt: str, name: str
) -> Iterator[CorrectedFrame]:
    """Yields decoded frames with their corrections. A correction belongs to the frame that is shown at its time.

    Raises `InputError`, which begins with `name`, if two belong to one frame or one lies behind the video's end.
    """
    left = deque(corrections)
    half = 1 / (2 * info.rate)  # a frame's: times may be rounded

    def seconds(frame: Frame) -> Fraction:
        return frame.pts * info.time_base - info.start

    for frame, following in _with_next(frames):
        end = None if following is None else seconds(following) - half
        own = []
        while left and (end is None or left[0].time < end):
            own.append(left.popleft())
        if end is None and own and own[-1].time > seconds(frame) + Fraction(_BEHIND):
            raise InputError(f"{name}: its correction at {own[-1].time:g} s is behind the video's end")
        if len(own) > 1:
            raise InputError(f"{name}: corrections at {own[0].time:g} s and {own[1].time:g} s are of the same frame")
        yield CorrectedFrame(frame.pts, luma_of(frame, info, pix_fmt), own[0].signed if own else None)


def _with_next(frames: Iterator[Frame]) -> Iterator[tuple[Frame, Frame | None]]:
    these, others = tee(frames)
    return zip(these, chain(islice(others, 1, None), [None]), strict=False)


def _nearest(near: list[tuple[int, PackedMap]], pts: int, step: Fraction) -> PackedMap | None:
    """Returns the correction at a time, give or take half a frame: damage may move the times of the second decoding."""
    time, found = min(near, key=lambda one: abs(one[0] - pts), default=(pts, None))
    return found if 2 * abs(time - pts) <= step else None
