"""Decoders that are wrong on purpose, each in one way: whatever compares decoders must find them."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from segmentation.frames import Frame, FrameBatch
from segmentation.stages.decode.pyav import PyAVDecoder


class Wrong(PyAVDecoder):
    """Puts out what `change` makes of the right frames."""

    def _frames(self) -> Iterator[Frame]:
        yield from self.change(super()._frames())

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        return frames


class Right(Wrong):
    """Changes nothing."""


class Drops(Wrong):
    """Loses every tenth frame, as of VP9 with hidden frames."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        return (frame for number, frame in enumerate(frames) if number % 10 != 9)


class LosesPacked(Wrong):
    """Loses every fourth frame, as of packed B-frames."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        return (frame for number, frame in enumerate(frames) if number % 4 != 3)


class LosesLast(Wrong):
    """Loses the last frames, as a decoder that is not emptied."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        return iter(list(frames)[:-3])


class Doubles(Wrong):
    """Puts out each frame twice, as the two views of MV-HEVC; the second between the first and the next."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        for frame in frames:
            yield replace(frame, duration=frame.duration // 2)
            yield replace(frame, pts=frame.pts + max(1, frame.duration // 2))


class Swaps(Wrong):
    """Exchanges the pictures of two frames, each keeping its time."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        every = list(frames)
        every[3], every[9] = replace(every[3], planes=every[9].planes), replace(every[9], planes=every[3].planes)
        return iter(every)


class Shifts(Wrong):
    """Shows the frames from the sixth on one tick late."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        return (replace(frame, pts=frame.pts + (number > 5)) for number, frame in enumerate(frames))


class Flips(Wrong):
    """Changes one sample by one level."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        for number, frame in enumerate(frames):
            y = frame.planes[0].copy()
            y[5, 7] ^= number == 4
            yield replace(frame, planes=(y, *frame.planes[1:]))


class Garbage(Wrong):
    """Conceals: from the twentieth frame on, ten frames are noise, and pass for good ones."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        dice = np.random.default_rng(1)
        for number, frame in enumerate(frames):
            bad = 20 <= number < 30
            noise: Any = tuple(dice.integers(0, 256, p.shape).astype(p.dtype) for p in frame.planes)
            yield replace(frame, planes=noise) if bad else frame


class Resizes(Wrong):
    """Does not follow a change of size: from the thirtieth frame on, the corner of the picture fills the frame."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        for number, frame in enumerate(frames):
            parts: Any = frame.planes
            if number >= 30:
                parts = tuple(cv2.resize(p[: len(p) // 2, : p.shape[1] // 2], p.shape[::-1]) for p in frame.planes)
            yield replace(frame, planes=parts)


class HidesDamage(Wrong):
    """Says that nothing is damaged."""

    def __iter__(self) -> Iterator[FrameBatch]:
        yield from super().__iter__()
        self.damaged, self.cut_short = 0, False


class Hangs(Wrong):
    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        time.sleep(600)
        return frames


class Dies(Wrong):
    """Ends the process, as a fault in a library does."""

    def change(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        os.abort()
