"""Corrections of single frames for the page, carried from the nearest corrected frames alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from segmentation.frames import FORMATS, Frame, VideoInfo
from segmentation.interval.carried_corrections import PackedMap, carried
from segmentation.media.opening.stream_properties import working_format
from segmentation.media.pictures.still import gray_png
from segmentation.options.config import Config
from segmentation.options.project import MaskCorrection, Project
from segmentation.pipeline.corrected_masks import marked
from segmentation.stages.decode.pyav import PyAVDecoder

FARTHEST = 600  # frames from a correction, beyond which a preview is without it: they are decoded for it
_BEYOND = 0.25  # seconds behind the wanted frame that are carried along
_KEPT = 8  # stretches


class PreviewCorrections:
    """Finds the correction of any frame. One thread at a time may call."""

    def __init__(self) -> None:
        self._stretches: OrderedDict[object, tuple[float, float, dict[float, PackedMap]]] = OrderedDict()

    def at(self, info: VideoInfo, state: object, project: Project, seconds: float) -> PackedMap | None:
        """Returns the correction of the frame at a time. `state` is that of the file.

        Raises `InputError` for a project of a video of another size.
        """
        project.check(info.upright_size)
        half = float(1 / (2 * info.rate))
        before = [one for one in project.corrections if one.time <= seconds + half][-1:]
        after = [one for one in project.corrections if one.time > seconds + half][:1]
        if before and before[0].time > seconds - half:
            return PackedMap.of(before[0].signed)
        farthest = FARTHEST * 2 * half
        near = tuple(one for one in (*before, *after) if abs(one.time - seconds) <= farthest)
        if not near:
            return None
        key = (state, near)
        begin, end, found = self._stretches.get(key, (0.0, 0.0, {}))
        if not begin < seconds < end - half:  # of a frame at an end its rounded time decides whether it is there
            begin = min(seconds - _BEYOND, near[0].time) - half
            end = max(seconds + _BEYOND, near[-1].time) + half
            found = _carried(info, near, max(0.0, begin), end)
            self._stretches[key] = begin, end, found
        self._stretches.move_to_end(key)
        while len(self._stretches) > _KEPT:
            self._stretches.popitem(last=False)
        return next((one for time, one in found.items() if abs(time - seconds) < half), None)


def _carried(
    info: VideoInfo, corrections: tuple[MaskCorrection, ...], begin: float, end: float
) -> dict[float, PackedMap]:
    """Returns the corrections of a stretch's frames, by their times in seconds."""
    pix_fmt = working_format(info.pix_fmt, tuple(FORMATS))
    decoder = PyAVDecoder(info, pix_fmt, Config(start=begin, duration=end - begin))

    def frames() -> Iterator[Frame]:
        for batch in decoder:
            yield from batch.frames

    with closing(decoder):
        shown = marked(frames(), corrections, info, pix_fmt, "project")
        found = carried(shown, len(corrections))
        return {float(pts * info.time_base - info.start): one for pts, one in found}


def as_png(correction: PackedMap | None) -> bytes:
    """Returns a correction as a gray PNG: 255 where the mask is to be 1, 0 where it is to be 0, 128 where it stays."""
    signed = np.zeros((1, 1), np.float32) if correction is None else correction.values
    levels = np.where(signed > 0.5, 255, np.where(signed < -0.5, 0, 128)).astype(np.uint8)
    return gray_png(levels)
