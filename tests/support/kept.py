"""The pixels that a run keeps: which they are, and that they are those of the input."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from videos import pictures

from segmentation import segment


def kept(source: Path, folder: Path) -> list[NDArray[np.bool_]]:
    """For each frame the pixels (H, W) whose mask is full, white in a lossless mask video, and those around them too.

    At the edge itself, effects that cut the background away have other masks than those that blur it.
    """
    segment(source, folder / "mask.mkv", effect="mask", codec="ffv1")
    full = (p.planes[0] == p.planes[0].max() for p in pictures(folder / "mask.mkv"))
    return [cv2.erode(mask.astype(np.uint8), np.ones((9, 9), np.uint8)) > 0 for mask in full]


def check_kept_pixels(source: Path, target: Path, masks: list[NDArray[np.bool_]]) -> None:
    """Luma of the kept pixels, and the chroma that they share with others, are the decoded input's, bit for bit."""
    before, after = list(pictures(source)), list(pictures(target))
    assert len(before) == len(after) == len(masks) > 0
    share = []
    for one, other, mask in zip(before, after, masks, strict=True):
        share.append(mask.mean())
        for a, b in zip(one.planes, other.planes, strict=True):
            assert a.dtype == b.dtype
            down, across = (-(-m // p) for m, p in zip(mask.shape, a.shape, strict=True))
            rows, columns = np.nonzero(mask)
            rows, columns = rows // down, columns // across
            assert np.array_equal(a[rows, columns], b[rows, columns])
    assert 0.02 < np.mean(share) < 0.9  # somebody is in the picture, and something else
    assert any(not np.array_equal(a, b) for one, other in zip(before, after, strict=True)
               for a, b in zip(one.planes, other.planes, strict=True))  # fmt: skip
