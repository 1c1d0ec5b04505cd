"""Compares the masks of two forms of a network, or of two processors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_IOU = 0.995  # of masks in another form with those of the FP32 graph on the CPU


@dataclass(frozen=True, slots=True)
class Comparison:
    """How masks of one form of a network agree with those of its FP32 graph, on real pictures."""

    pictures: int
    iou: float  # of the pixels above 1/2, over all pictures together
    largest_difference: float  # of the probabilities
    covered: float  # the part of the pictures inside the FP32 masks; at 0 the IoU is meaningless
    kept_in_fp32: tuple[str, ...] = ()  # nodes in which FP16 departs


def compare(expected: NDArray[np.float32], actual: NDArray[np.float32], kept: tuple[str, ...] = ()) -> Comparison:
    """Compares masks (N, h, w) float32. Values that are finite in `expected` alone count as a difference of 1."""
    wanted, got, known = expected > 0.5, np.nan_to_num(actual) > 0.5, np.isfinite(expected)
    union = int((wanted | got).sum())
    finite = bool(np.isfinite(actual[known]).all())
    return Comparison(
        pictures=len(expected),
        iou=round(int((wanted & got).sum()) / union if union else 1.0, 5) if finite else 0.0,
        largest_difference=round(float(np.abs(actual - expected)[known].max(initial=0)), 5) if finite else 1.0,
        covered=round(float(wanted.mean()), 4),
        kept_in_fp32=kept,
    )
