"""Counts the ends of limbs that a mask holds: the joints that BlazePose heavy sees and that lie on the true person."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from teachers import ENDS

SEEN = 0.5  # of a joint that can be seen: the least that BlazePose says of it

Joints = NDArray[np.float32]  # (people, 33, 3): x and y as parts of width and height, how surely it can be seen
Mask = NDArray[np.bool_]  # (h, w)
Ends = dict[str, tuple[int, int]]  # by the name of a joint: how many are in the mask, and of how many


def ends_found(found: Mask, person: Mask, joints: Joints) -> Ends:
    """Returns the joints on the true `person` that can be seen, and those of them that are in the mask `found`."""
    height, width = person.shape
    ends = {}
    for name, numbers in ENDS.items():
        x, y, seen = joints[:, list(numbers)].reshape(-1, 3).T
        inside = (seen > SEEN) & (x >= 0) & (x < 1) & (y >= 0) & (y < 1)
        place = (y[inside] * height).astype(int), (x[inside] * width).astype(int)
        ends[name] = int((found & person)[place].sum()), int(person[place].sum())
    return ends


def shares(pictures: Sequence[Ends]) -> dict[str, dict[str, float]]:
    """Returns by the name of a joint the number of `joints` in all pictures, and the share of them `in_mask`."""
    sums = {name: [sum(counts) for counts in zip(*(ends[name] for ends in pictures), strict=True)] for name in ENDS}
    return {
        name: {"joints": joints, "in_mask": round(found / joints, 5)}
        for name, (found, joints) in sums.items()
        if joints
    }
