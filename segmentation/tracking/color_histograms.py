"""Histograms of the colors of instances, by which a thing is known again."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Colors = NDArray[np.uint8]  # (h, w): the bin of the color at each place of the mask
Samples = NDArray[np.uint8]  # (3, N, h, w): Y, U and V at each place of the masks of a batch, in 8 bits
Histogram = NDArray[np.float64]  # (BINS,), sums to 1

_LUMA, _CHROMA = 4, 8  # levels: luma changes with the light, so it counts less
_CHROMA_LEVELS = np.clip((np.arange(256) - 128) // 8 + _CHROMA // 2, 0, _CHROMA - 1)
_PARTS = tuple(  # of a bin, for each value of Y, U and V
    part.astype(np.uint8)
    for part in (np.arange(256) // (256 // _LUMA) * _CHROMA * _CHROMA, _CHROMA_LEVELS * _CHROMA, _CHROMA_LEVELS)
)
BINS = _LUMA * _CHROMA * _CHROMA
_NEW = 0.1  # share of the newest frame in a track's histogram
_UNSEEN = 0.01  # added to the share of each color: one that was never seen is unlikely, not impossible
_CLEAR = 0.4  # by how much, as a logarithm, one thing's colors must explain a place better than all others' do
_AROUND = 11  # side of the square around a place whose colors say whose it is, in pixels of the mask


def color_bins(samples: NDArray[np.uint8]) -> Colors:
    """Returns the bin of each color of one frame (3, h, w): (h, w).

    Most chroma is near its zero: steps of 8 levels around it leave no bin empty.
    """
    bins = np.zeros(samples.shape[1:], np.uint8)
    for plane, part in zip(samples, _PARTS, strict=True):  # `part[plane]` takes five times as long
        bins += np.asarray(cv2.LUT(np.ascontiguousarray(plane), part), np.uint8)
    return bins


def histogram(colors: Colors, pixels: NDArray[np.bool_]) -> Histogram:
    """Returns the shares of the bins among the set `pixels` (h, w) of `colors` (h, w)."""
    bins = colors[pixels]
    return np.bincount(bins, minlength=BINS).astype(np.float64) / max(1, bins.size)


def mixed(known: Histogram | None, new: Histogram, share: float = _NEW) -> Histogram:
    """Returns a track's histogram with that of one more frame, which has this `share` of it."""
    return new if known is None else (1 - share) * known + share * new


def likeness(one: Histogram, other: Histogram) -> float:
    """Returns the Bhattacharyya coefficient of two histograms, 0 for no common color to 1 for the same."""
    return float(np.sqrt(one * other).sum())


def plausible(look: Histogram, colors: Colors) -> NDArray[np.float32]:
    """Returns how well a thing's colors explain those around each place of `colors` (h, w): mean logarithms, (h, w)."""
    return np.asarray(cv2.blur(np.log(look + _UNSEEN).astype(np.float32)[colors], (_AROUND, _AROUND)), np.float32)


def clearly_own(whose: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns the places (N, h, w) that each of N things explains clearly better than the others, by `plausible`."""
    others = (np.delete(whose, i, 0).max(0, initial=-np.inf) for i in range(len(whose)))
    return np.stack([one > other + _CLEAR for one, other in zip(whose, others, strict=True)])
