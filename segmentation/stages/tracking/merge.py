"""Splits a component that is several tracked things, such as two people who pass each other.

Each thing keeps the shape that it had when it was last alone. The shapes are moved until together they explain the
component, and each pixel goes to a shape that covers it, by colors where they are known, or else to the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.stages.tracking.silhouette import Silhouette

_SIDE = 48  # pixels of the longer side at which shapes are moved: every n-th pixel of larger ones is enough
_REACH = 0.15  # of a shape's longer side: how far it may be from where it is expected
_TRUST = 0.3  # share of its area that a shape loses at the end of its reach: where it is expected counts too
_ROUNDS = 2
_SHOWN = 0.12  # share of a shape that must be seen, or the thing counts as hidden

Pixels = NDArray[np.bool_]


def fit(component: Pixels, shapes: Sequence[Silhouette]) -> list[Silhouette]:
    """Returns the shapes moved so that together they cover the component (h, w), as large as the mask, best.

    A shape at some place scores its pixels in the component that no other shape covers, minus those outside of it.
    Each shape in turn takes its best place, which is a cross-correlation.
    """
    placed = list(shapes)
    for _ in range(_ROUNDS):
        for i, shape in enumerate(shapes):
            others = [other for k, other in enumerate(placed) if k != i]
            placed[i] = _best_place(component, shape, others)
    return placed


def _best_place(component: Pixels, shape: Silhouette, others: Sequence[Silhouette]) -> Silhouette:
    height, width = shape.pixels.shape
    step = -(-max(height, width) // _SIDE)
    reach = max(step, round(_REACH * max(height, width)) // step * step)
    window = Silhouette(shape.left - reach, shape.top - reach, np.ones((height + 2 * reach, width + 2 * reach)) > 0, 0)
    there, here = window.within(component.shape)
    gain = np.zeros(window.pixels.shape, np.float32)  # nothing is seen beyond the picture
    gain[here] = np.where(component[there], 1, -1)
    for other in others:
        covered = _cut(other, window)
        gain[covered & (gain > 0)] = 0
    pattern = shape.pixels[::step, ::step].astype(np.float32)
    scores = cv2.matchTemplate(gain[::step, ::step], pattern, cv2.TM_CCORR)
    rows, columns = (np.arange(n) * step - reach for n in scores.shape)
    far = (rows[:, None] ** 2 + columns**2) / reach**2
    best = int(np.argmax(scores - _TRUST * far * pattern.sum()))
    down, right = divmod(best, scores.shape[1])
    return shape.moved(float(columns[right]), float(rows[down]))


def _cut(shape: Silhouette, window: Silhouette) -> Pixels:
    """Returns the pixels of a shape within the box of another, as large as that."""
    result = np.zeros(window.pixels.shape, bool)
    there, here = shape.moved(-window.left, -window.top).within(result.shape)
    result[there] = shape.pixels[here]
    return result


def divide(
    component: Silhouette, shapes: Sequence[Silhouette], whose: NDArray[np.float32] | None = None
) -> list[Silhouette | None]:
    """Returns the part of each shape in the component; `None` for a thing that is hidden by the others.

    Where N shapes overlap, `whose` (N, h, w) is largest for the one whose place it is, by its colors. Without it, the
    one whose lower edge is lowest is in front: its feet are nearest to the camera.
    """
    order = sorted(range(len(shapes)), key=lambda i: -shapes[i].edges[3])
    covers = [_cut(shape, component) for shape in shapes]
    owner = np.full(component.pixels.shape, -1)
    if whose is None:
        for i in order:
            owner[covers[i] & (owner < 0)] = i
    else:
        covered = np.any(covers, axis=0)
        owner[covered] = np.where(covers, whose, -np.inf).argmax(0)[covered]
    shown = [i for i in order if np.count_nonzero(component.pixels & (owner == i)) >= _SHOWN * shapes[i].area]
    shown = shown or order[:1]
    distances = np.stack([_distance(covers[i]) for i in shown])
    nearest = np.array(shown)[np.argmin(distances, 0)]
    owner = np.where(np.isin(owner, shown), owner, nearest)
    parts = [component.pixels & (owner == i) if i in shown else None for i in range(len(shapes))]
    return [None if part is None else Silhouette.of(part, component.left, component.top) for part in parts]


def _distance(cover: Pixels) -> NDArray[np.float32]:
    if not cover.any():
        return np.full(cover.shape, np.inf, np.float32)
    distance: NDArray[np.float32] = cv2.distanceTransform((~cover).astype(np.uint8), cv2.DIST_L2, 3).astype(np.float32)
    return distance
