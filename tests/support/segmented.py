"""Encoding segments in tests: frames, an encoder, and whether they come out as they went in."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from videos import pictures, same_times

from segmentation import Config
from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.segments import Layout, SegmentEncoder

LENGTH = 10  # frames of a segment in most tests
Packets = list[Any]


def short(monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Short segments, the same on any machine."""
    fixed = Layout(encoders=3, threads=1, frames=LENGTH, waiting=3 * LENGTH)
    monkeypatch.setattr(Layout, "of", lambda *_: fixed)
    return fixed


def moving(count: int, info: VideoInfo, pix_fmt: str = "yuv420p", pts: Sequence[int] | None = None) -> list[Frame]:
    """Frames of a texture that wanders, with noise."""
    layout, noise = FORMATS[pix_fmt], np.random.default_rng(5)
    pts = range(count) if pts is None else pts
    ends = [*pts[1:], pts[-1] + 3]
    shapes = [(info.height, info.width)] + 2 * [(-(-info.height >> layout.shift_y), -(-info.width >> layout.shift_x))]

    def plane(shape: tuple[int, int], i: int) -> NDArray[Any]:
        y, x = np.mgrid[: shape[0], : shape[1]]
        wave = 120 + 60 * np.sin((x + 2 * i) / 5) + 30 * np.cos((y - i) / 3) + noise.integers(0, 6, shape)
        return (wave * (1 << (layout.bits - 8))).astype(layout.dtype)

    return [
        Frame(planes=tuple(plane(s, i) for s in shapes), pts=pts[i], duration=ends[i] - pts[i])  # type: ignore[arg-type]
        for i in range(count)
    ]


@contextmanager
def encoder(
    path: Path, info: VideoInfo, config: Config, pix_fmt: str = "yuv420p", kind: type[PyAVEncoder] = SegmentEncoder
) -> Iterator[tuple[Muxer, PyAVEncoder]]:
    with Muxer(path, info, config) as muxer:
        made = kind(muxer, info, pix_fmt, config)
        try:
            yield muxer, made
        finally:
            made.close()


def batches(frames: Sequence[Frame], size: int = 4) -> Iterator[FrameBatch]:
    for i in range(0, len(frames), size):
        yield FrameBatch(frames=tuple(frames[i : i + size]), index=i)


def write(
    path: Path, info: VideoInfo, frames: Sequence[Frame], config: Config, *, then: Sequence[Frame] = (), **options: Any
) -> Packets:
    """Encodes and muxes, `then` in batches of their own; returns (pts, dts, duration, keyframe, bytes) of the packets,
    as the encoder gave them."""
    seen: Packets = []
    with encoder(path, info, config, **options) as (muxer, made):
        for packets in (*map(made.encode, itertools.chain(batches(frames), batches(then))), made.flush()):
            seen += [(p.pts, p.dts, p.duration, p.is_keyframe, bytes(p)) for p in packets]
            muxer.write(packets)
        muxer.finish(None)
    return seen


def equal(path: Path, frames: Sequence[Frame], info: VideoInfo) -> bool:
    """Whether the file has these frames, bit for bit, at their times."""
    decoded = list(pictures(path))
    tick = Fraction(1, 1000) if path.suffix == ".mkv" else Fraction(0)
    start = decoded[0].time - frames[0].pts * info.time_base
    assert abs(start) <= tick
    return same_times([p.time for p in decoded], [f.pts * info.time_base for f in frames], tick) and all(
        np.array_equal(a[: b.shape[0], : b.shape[1]], b)
        for picture, frame in zip(decoded, frames, strict=True)
        for a, b in zip(picture.planes, frame.planes, strict=True)
    )


def children() -> list[int]:
    """Processes that this one has started and not forgotten, dead ones included."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
