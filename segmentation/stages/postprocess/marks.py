"""Draws who is who on finished frames: a box, an id and the way so far of each instance."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import cv2
import numpy as np

from segmentation.frames import FORMATS, Frame, FrameBatch, Plane, VideoInfo
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.stages.postprocess.legend import palette

_COLORS = 14
_UNTRACKED = (160, 160, 160)  # color of what has no id
_TRAIL = 2.0  # seconds
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_BITS = 3  # OpenCV takes places in units of 2**-_BITS samples

Point = tuple[float, float]  # shares of the upright picture


class Marks:
    """Draws on the frames of one output, in presentation order, and keeps where everybody was."""

    def __init__(self, info: VideoInfo, pix_fmt: str) -> None:
        self._info, self._format = info, FORMATS[pix_fmt]
        self._colors = [info.color.from_rgb(rgb, self._format.bits) for rgb in (*palette(_COLORS), _UNTRACKED)]
        self._line = max(1, round(min(info.width, info.height) / 360))
        self._trails: dict[int, deque[tuple[float, Point]]] = {}  # by id: seconds, and where the feet were

    def draw(self, batch: FrameBatch, instances: tuple[FrameInstances, ...]) -> FrameBatch:
        """Returns frames on the host with their marks, in planes of their own."""
        frames = tuple(self._drawn(frame, found) for frame, found in zip(batch.frames, instances, strict=True))
        return replace(batch, frames=frames, shared=None)

    def _drawn(self, frame: Frame, found: FrameInstances) -> Frame:
        self._follow(float(frame.pts * self._info.time_base), found)
        orientation = self._info.orientation
        planes = []
        for k, plane in enumerate(frame.planes):
            upright = np.array(orientation.upright(plane), order="C")
            for one in found.instances:
                self._mark(upright, one, self._colors[(one.id - 1) % _COLORS if one.id else -1][k], chroma=k > 0)
            planes.append(np.ascontiguousarray(orientation.stored(upright)))
        return replace(frame, planes=(planes[0], planes[1], planes[2]))

    def _follow(self, seconds: float, found: FrameInstances) -> None:
        """Adds where everybody is now to the trails, and forgets what is long ago."""
        for one in found.instances:
            if one.id:
                place = ((one.box[0] + one.box[2]) / 2, one.box[3])
                self._trails.setdefault(one.id, deque()).append((seconds, place))
        for trail in self._trails.values():
            while trail and trail[0][0] < seconds - _TRAIL:
                trail.popleft()
        self._trails = {id: trail for id, trail in self._trails.items() if trail}

    def _mark(self, plane: Plane, one: Instance, value: int, *, chroma: bool) -> None:
        """Draws the marks of an instance on one upright plane."""
        left, top, right, bottom = one.box
        box = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
        trail = [place for _, place in self._trails.get(one.id, ())]
        size = np.array([plane.shape[1] - 1, plane.shape[0] - 1])
        across, down = (self._format.shift_x, self._format.shift_y) if chroma else (0, 0)
        for points in (box, trail):
            places = np.rint(np.array(points, np.float64).reshape(-1, 2) * size * 2**_BITS).astype(np.int32)
            cv2.polylines(plane, [places], False, value, max(1, self._line >> across), cv2.LINE_8, _BITS)
        text, scale = f"{one.id or ''} {one.label}".strip(), 0.45 * self._line
        (width, height), below = cv2.getTextSize(text, _FONT, scale, self._line)
        x, y = round(left * size[0]), max(round(top * size[1]), (height + below) >> down)
        cv2.rectangle(plane, (x, y - ((height + below) >> down)), (x + (width >> across), y), value, cv2.FILLED)
        if not chroma:
            full = (1 << self._format.bits) - 1
            cv2.putText(plane, text, (x, y - below), _FONT, scale, 0 if value > full * 0.45 else full, self._line)
