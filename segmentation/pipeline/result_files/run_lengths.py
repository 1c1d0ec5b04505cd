"""Masks as run lengths, also as COCO writes them."""

import numpy as np
from numpy.typing import NDArray


def runs(flat: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns the lengths of the runs in a flat mask, first that of 0, which may be 0."""
    borders = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    start = [0, 0] if flat[:1].any() else [0]
    return np.diff(np.concatenate([start, borders, [flat.size]]))


def rle(found: NDArray[np.bool_]) -> str:
    """Returns COCO's compressed run lengths of a mask (h, w): what `counts` is in its files and in pycocotools.

    Lengths of the runs column by column, first that of 0; from the fourth on, each as its difference from the last but
    one; in groups of five bits, the lowest first, each group a character from "0" on, with 32 added where more follow
    (cocoapi, common/maskApi.c, rleToString).
    """
    lengths = runs(found.ravel(order="F"))
    values = lengths.copy()
    values[3:] -= lengths[1:-2]
    groups = values[:, None] >> (5 * np.arange(13))  # arithmetic shifts: 13 groups hold 64 bits and their sign
    rest = groups >> 5
    groups &= 31
    more = np.where(groups & 16, rest != -1, rest != 0)
    written = np.cumprod(np.hstack([np.ones((len(values), 1), np.int64), more[:, :-1]]), axis=1) > 0
    characters: NDArray[np.uint8] = (groups + 32 * more + 48).astype(np.uint8)
    return bytes(characters[written]).decode("ascii")
