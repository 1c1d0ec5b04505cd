"""Moving textures for encoders on a GPU, and whether a file shows them."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from videos import pictures, same_times, times

from segmentation import Config
from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.media.muxer import Muxer


def texture(i: int, info: VideoInfo, pix_fmt: str) -> list[NDArray[Any]]:
    """Returns planes of a moving picture, each with another texture."""
    layout = FORMATS[pix_fmt]
    height, width = -(-info.height >> layout.shift_y), -(-info.width >> layout.shift_x)
    planes = []
    for k, (rows, columns) in enumerate(((info.height, info.width), (height, width), (height, width))):
        y, x = np.mgrid[:rows, :columns]
        wave = 125 + 60 * np.sin((x + (3 - k) * i) / 9 + k) + 30 * np.cos((y - i) / 7)
        planes.append((wave * (1 << (layout.bits - 8))).astype(layout.dtype))
    return planes


def batches(info: VideoInfo, pix_fmt: str, pts: Sequence[int], device: Any, *, first: int = 4) -> Iterator[FrameBatch]:
    """Yields batches as GPU stages make them: tensors that may be longer than the batch. The `first` may be shorter."""
    import torch

    size = 4
    for i in (0, *range(first, len(pts), size)):
        part = [texture(k, info, pix_fmt) for k in range(i, i + size)]
        planes = tuple(torch.from_numpy(np.stack(p)).to(device) for p in zip(*part, strict=True))
        shown = pts[i : i + size] if i else pts[:first]
        frames = tuple(Frame(planes=(), pts=n, duration=2) for n in shown)  # type: ignore[arg-type]
        yield FrameBatch(frames=frames, index=i, planes=planes)


def write(nvenc: Any, path: Path, info: VideoInfo, pix_fmt: str, pts: Sequence[int], gpu: Any, config: Config) -> None:
    with Muxer(path, info, config) as muxer:
        encoder = nvenc.NvencEncoder(muxer, info, pix_fmt, config, gpu)
        for batch in batches(info, pix_fmt, pts, gpu.device, first=2):
            muxer.write(encoder.encode(batch))
            for plane in batch.planes:  # the pipeline reuses its buffers
                plane.zero_()
        muxer.write(encoder.flush())
        encoder.close()
        muxer.finish(None)


def assert_shows_texture(path: Path, info: VideoInfo, pix_fmt: str, pts: Sequence[int], most: float) -> None:
    """Checks that a file has the texture, padded, at its times. The mean difference is at most `most`."""
    assert same_times(times(path), [n * info.time_base for n in pts], Fraction(1, 1000))
    shift = FORMATS[pix_fmt].bits - 8
    for i, picture in enumerate(pictures(path)):
        for plane, expected in zip(picture.planes, texture(i, info, pix_fmt), strict=True):
            padding = [(0, a - b) for a, b in zip(plane.shape, expected.shape, strict=True)]
            assert all(0 <= after <= 1 for _, after in padding)
            expected = np.pad(expected, padding, "edge")
            assert np.abs(plane.astype(int) - expected).mean() <= most * (1 << shift)
