"""Helpers for tests of encoding in segments: frames, encoders, and comparisons of files with frames."""

import gc
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from videos import pictures, same_times

from segmentation import Config
from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.segments import Layout, SegmentEncoder
from segmentation.stages.encode.worker_process import EncoderService

LENGTH = 10  # frames of a segment in most tests
PacketRow = tuple[int | None, int | None, int, bool, bytes]  # pts, dts, duration, whether a keyframe, content


def short(monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Sets a layout with short segments, the same on any machine, and returns it."""
    fixed = Layout(encoders=3, threads=1, frames=LENGTH, waiting=3 * LENGTH)
    monkeypatch.setattr(Layout, "of", lambda *_: fixed)
    return fixed


def moving(count: int, info: VideoInfo, pix_fmt: str = "yuv420p", pts: Sequence[int] | None = None) -> list[Frame]:
    """Returns frames of a moving texture with noise."""
    layout, noise = FORMATS[pix_fmt], np.random.default_rng(5)
    pts = range(count) if pts is None else pts
    ends = [*pts[1:], pts[-1] + 3]
    shapes = [(info.height, info.width)] + 2 * [(-(-info.height >> layout.shift_y), -(-info.width >> layout.shift_x))]

    def plane(shape: tuple[int, int], i: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
        y, x = np.mgrid[: shape[0], : shape[1]]
        wave = 120 + 60 * np.sin((x + 2 * i) / 5) + 30 * np.cos((y - i) / 3) + noise.integers(0, 6, shape)
        samples: NDArray[np.uint8] | NDArray[np.uint16] = (wave * (1 << (layout.bits - 8))).astype(layout.dtype)
        return samples

    return [
        Frame(planes=tuple(plane(s, i) for s in shapes), pts=pts[i], duration=ends[i] - pts[i])  # type: ignore[arg-type]
        for i in range(count)
    ]


@contextmanager
def open_encoder(
    path: Path,
    info: VideoInfo,
    config: Config,
    pix_fmt: str = "yuv420p",
    kind: type[PyAVEncoder] = SegmentEncoder,
    service: EncoderService | None = None,
) -> Iterator[tuple[Muxer, PyAVEncoder]]:
    """Opens an encoder and its muxer, and closes them."""
    with Muxer(path, info, config) as muxer:
        encoder = kind(muxer, info, pix_fmt, config, service=service)
        try:
            yield muxer, encoder
        finally:
            encoder.close()


def batches(frames: Sequence[Frame], size: int = 4) -> Iterator[FrameBatch]:
    """Yields the frames in batches."""
    for i in range(0, len(frames), size):
        yield FrameBatch(frames=tuple(frames[i : i + size]), index=i)


def write(
    path: Path,
    info: VideoInfo,
    frames: Sequence[Frame],
    config: Config,
    *,
    then: Sequence[Frame] = (),
    pix_fmt: str = "yuv420p",
    kind: type[PyAVEncoder] = SegmentEncoder,
    service: EncoderService | None = None,
) -> list[PacketRow]:
    """Encodes and muxes frames, `then` in batches of their own. Returns the packets as the encoder made them."""
    seen: list[PacketRow] = []
    with open_encoder(path, info, config, pix_fmt, kind, service) as (muxer, encoder):
        for packets in (*map(encoder.encode, itertools.chain(batches(frames), batches(then))), encoder.flush()):
            seen += [(p.pts, p.dts, p.duration or 0, p.is_keyframe, bytes(p)) for p in packets]
            muxer.write(packets)
        muxer.finish(None)
    return seen


def equal(path: Path, frames: Sequence[Frame], info: VideoInfo) -> bool:
    """Returns whether the file has these frames, bit for bit, at their times."""
    decoded = list(pictures(path))
    tick = Fraction(1, 1000) if path.suffix == ".mkv" else Fraction(0)
    start = decoded[0].time - frames[0].pts * info.time_base
    assert abs(start) <= tick
    return same_times([p.time for p in decoded], [f.pts * info.time_base for f in frames], tick) and all(
        np.array_equal(a[: b.shape[0], : b.shape[1]], b)
        for picture, frame in zip(decoded, frames, strict=True)
        for a, b in zip(picture.planes, frame.planes, strict=True)
    )


def descriptors() -> int:
    """Returns the number of this process's open files."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def frames_mapped() -> bool:
    """Returns whether this process still maps frame memory."""
    gc.collect()
    return "segmentation frames" in Path("/proc/self/maps").read_text()


def process(encoder: PyAVEncoder) -> int:
    """Returns the id of an encoder's process."""
    assert isinstance(encoder, SegmentEncoder) and encoder._lease is not None
    return encoder._lease.pid
