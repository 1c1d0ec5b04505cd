"""Draws a refined mask's edge by color where the background is cut away, so that the edge keeps nothing of it.

Around a pixel at the edge, what is surely in front has a mean color F, and what is surely behind a mean color B. How
far the pixel's own color lies from B to F is its opacity (the idea of color-line matting, as in Levin, Lischinski and
Weiss, "A Closed Form Solution to Natural Image Matting", CVPR 2006, with one line for a box). It counts as far as the
two colors differ by more than the colors around each of them do.

Each step is elementwise or a mean over a box, so that `cuda.py` gets the same result on a GPU.
"""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

NEAR = 5  # side of the box that is all in front or all behind around a pixel that is surely so
SURE = 0.05  # how far the mean of that box may be from 1 or 0; from twice as far it is not sure at all
COLORS = 11  # side of the box over which colors are averaged, in pixels of the refined mask
FLOOR = 1.5e-3  # added to the variance of colors (in 0..1), so that noise is no difference
ENOUGH = 0.02  # of the box in front, and behind: with less, a color counts less
_TINY = 1e-6

Map = NDArray[np.float32]  # (h, w), if nothing else is said


def draw_by_color(mask: Map, colors: Sequence[Map], share: float) -> Map:
    """Returns the mask (h, w) in 0..1, drawn by `colors`: the planes of the same picture at its size, in 0..1.

    `share` in 0..1 is how far it is drawn. With E the mean over a box with the border repeated, I the colors:

        e = E_NEAR(m),  f = clip(2 - (1 - e) / SURE, 0, 1),  b = clip(2 - e / SURE, 0, 1)
        F = E(f I) / E(f),  vf = E(f |I|^2) / E(f) - |F|^2,  and B, vb likewise
        d = |F - B|^2,  drawn = clip((I - B) (F - B) / d, 0, 1)
        trust = share * (1 - f) (1 - b) * clip(2 d / (d + vf + vb + FLOOR) - 1, 0, 1)
                * min(E(f) / ENOUGH, 1) * min(E(b) / ENOUGH, 1)
        result = m + trust * (drawn - m)
    """
    near = _mean(mask, NEAR)
    front, behind = _side(1 - near), _side(near)
    edge = (front < 1) & (behind < 1)
    squares = np.asarray(sum(color * color for color in colors), np.float32)
    fore, back = _color(front, colors, squares, edge), _color(behind, colors, squares, edge)
    apart = fore.mean - back.mean
    distance = (apart * apart).sum(0)
    own = np.stack([color[edge] for color in colors])
    drawn = np.clip(((own - back.mean) * apart).sum(0) / (distance + np.float32(_TINY)), 0, 1)
    trust = np.clip(2 * distance / (distance + fore.variance + back.variance + np.float32(FLOOR)) - 1, 0, 1)
    trust *= np.float32(share) * (1 - front[edge]) * (1 - behind[edge]) * fore.enough * back.enough
    result = mask.copy()
    result[edge] += trust * (drawn - result[edge])
    return result


def _side(other: Map) -> Map:
    """Returns how surely a place is on one side, of the other side's share around it."""
    other *= np.float32(-1 / SURE)
    other += 2
    return np.clip(other, 0, 1, out=other)


class _Color(NamedTuple):
    """At n places the mean color of one side around them, its variance, and how far there is enough of that side."""

    mean: Map  # (3, n)
    variance: Map  # (n,)
    enough: Map  # (n,)


def _color(side: Map, colors: Sequence[Map], squares: Map, places: NDArray[np.bool_]) -> _Color:
    """Returns the color of a side (h, w) at places (h, w)."""

    def mean(layer: Map) -> Map:
        return _mean(layer, COLORS)[places]

    share: Map = mean(side)
    scale = np.float32(1) / (share + np.float32(_TINY))
    means = np.stack([mean(side * color) for color in colors]) * scale
    variance: Map = np.maximum(mean(side * squares) * scale - (means * means).sum(0), 0)
    return _Color(means, variance, np.minimum(share / np.float32(ENOUGH), 1))


def _mean(layer: Map, side: int) -> Map:
    """Returns the mean over the box around each place."""
    shares = np.full(side, 1 / side, np.float32)
    return np.asarray(cv2.sepFilter2D(layer, -1, shares, shares, borderType=cv2.BORDER_REPLICATE), np.float32)
