"""Splits a component that is several tracked things, such as two people who pass each other.

Each thing keeps the shape that it had when it was last alone. The shapes are moved until together they explain the
component, and each pixel goes to the nearest, or by colors where they are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.tracking.silhouette import Silhouette

_SIDE = 48  # pixels of the longer side at which shapes are moved: every n-th pixel of larger ones is enough
_REACH = 0.15  # of a shape's longer side: how far it may be from where it is expected
_TRUST = 0.3  # share of its area that a shape loses at the end of its reach: where it is expected counts too
_ROUNDS = 2
_SHOWN = 0.12  # share of a shape that must be seen, or the thing counts as hidden
_FAR = 5.0  # how much less likely, as a logarithm, is a place beside a shape, for each root of its area

Pixels = NDArray[np.bool_]


def fit(component: Pixels, shapes: Sequence[Silhouette], own: Pixels) -> list[Silhouette]:
    """Returns the shapes moved so that together they cover the component (h, w), as large as the mask, best.

    A shape at some place scores its pixels in the component that no other shape covers, or that are its `own`
    (N, h, w) by their clear colors, minus those outside of it. Each shape in turn takes its best place, which is a
    cross-correlation.
    """
    placed = list(shapes)
    for _ in range(_ROUNDS):
        for i, shape in enumerate(shapes):
            others = [other for k, other in enumerate(placed) if k != i]
            placed[i] = _best_place(component, shape, others, own[i])
    return placed


def _best_place(component: Pixels, shape: Silhouette, others: Sequence[Silhouette], own: Pixels) -> Silhouette:
    height, width = shape.pixels.shape
    step = -(-max(height, width) // _SIDE)
    reach = max(step, round(_REACH * max(height, width)) // step * step)
    window = Silhouette(shape.left - reach, shape.top - reach, np.ones((height + 2 * reach, width + 2 * reach)) > 0, 0)
    there, here = window.within(component.shape)
    gain = np.zeros(window.pixels.shape, np.float32)  # nothing is seen beyond the picture
    gain[here] = np.where(component[there], 1, -1)
    free = np.zeros(gain.shape, bool)
    free[here] = component[there] & ~own[there]
    for other in others:
        gain[_cut(other, window) & free] = 0
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

    A pixel goes to the nearest shape. `whose` (N, h, w), mean logarithms, is how well the colors of each of the N
    things explain it; then that counts, too. Where shapes overlap and nothing else decides, the one whose lower edge
    is lowest is in front: its feet are nearest to the camera.
    """
    order = sorted(range(len(shapes)), key=lambda i: -shapes[i].edges[3])
    covers = [_cut(shape, component) for shape in shapes]
    scores = np.stack([-_FAR / shape.area**0.5 * _distance(cover) for cover, shape in zip(covers, shapes, strict=True)])
    if whose is not None:
        scores += whose
    owner = _best(scores, order)
    seen = [np.count_nonzero(component.pixels & cover & (owner == i)) for i, cover in enumerate(covers)]
    shown = [i for i in order if seen[i] >= _SHOWN * shapes[i].area] or order[:1]
    owner = _best(scores, shown)
    parts = [component.pixels & (owner == i) if i in shown else None for i in range(len(shapes))]
    return [None if part is None else Silhouette.of(part, component.left, component.top) for part in parts]


def _best(scores: NDArray[np.float32], those: list[int]) -> NDArray[np.int64]:
    """Returns which of `those` rows of scores (N, h, w) is highest at each place (h, w), the first of several."""
    best: NDArray[np.int64] = np.array(those)[scores[those].argmax(0)]
    return best


def _distance(cover: Pixels) -> NDArray[np.float32]:
    if not cover.any():
        return np.full(cover.shape, np.inf, np.float32)
    distance: NDArray[np.float32] = cv2.distanceTransform((~cover).astype(np.uint8), cv2.DIST_L2, 3).astype(np.float32)
    return distance
