"""Computes how planes are shrunk: in steps for the CPU, in tables of weights that do all steps at once for a GPU."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]  # (places after, samples before): weights along one axis, of one step or several
Table = NDArray[np.float32]  # (places after, 1 + taps): the number of the first sample that a place reads, then weights


def shrink_steps(shape: tuple[int, int], size: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
    """Returns the steps that resample a plane (h, w) to `size` (width, height) without aliasing.

    A step is ("half" | "area" | "linear", (width, height) after it). The plane is halved as long as its size is even.
    Bilinear interpolation does the rest, which is less than a halving, so that every pixel is read. A direction in
    which the plane grows is always bilinear.
    """
    (height, width), (target_width, target_height) = shape, size
    steps = []
    while min(height / target_height, width / target_width) >= 2 and not (height % 2 or width % 2):
        height, width = height // 2, width // 2
        steps.append(("half", (width, height)))
    if (width, height) != size:
        if max(height / target_height, width / target_width) > 2:
            width, height = min(width, target_width), min(height, target_height)
            steps.append(("area", (width, height)))
        if (width, height) != size:
            steps.append(("linear", size))
    return steps


def halvings(shape: tuple[int, int], size: tuple[int, int]) -> tuple[int, bool]:
    """Returns how many of `shrink_steps` are halvings, and whether one is the mean of areas.

    That one is for the axes that become shorter. All else is interpolated.
    """
    kinds = [kind for kind, _ in shrink_steps(shape, size)]
    return kinds.count("half"), "area" in kinds


def shrinking(shape: tuple[int, int], size: tuple[int, int]) -> tuple[Table, Table]:
    """Returns two tables that do the same as `shrink_steps`: for the columns of a plane (h, w), and for its rows.

    `size` is the (width, height) after. The weights of a row belong to successive samples, from the first on. Callers
    may write to the tables: the kept ones are copied.
    """
    across, down = _kept_tables(shape, size)
    return across.copy(), down.copy()


@lru_cache(maxsize=16)  # making them takes about 10 ms, and the next file mostly has the same size
def _kept_tables(shape: tuple[int, int], size: tuple[int, int]) -> tuple[Table, Table]:
    steps = shrink_steps(shape, size)
    across, down = (_along(shape[1 - axis], [(kind, after[axis]) for kind, after in steps]) for axis in (0, 1))
    return table(across), table(down)


def _along(length: int, steps: list[tuple[str, int]]) -> Matrix:
    """Returns all steps along one axis. After the halvings, at most one step changes the length."""
    factor, matrix = 1, None
    for kind, after in steps:
        if kind == "half":
            length, factor = after, 2 * factor
        elif after != length:
            matrix = bilinear(length, after) if kind == "linear" else means(length, after)
            length = after
    matrix = np.eye(length) if matrix is None else matrix
    return np.repeat(matrix, factor, axis=1) / factor


def means(before: int, after: int) -> Matrix:
    """Returns weights by which each place is the mean of the samples that it covers, fully or in part."""
    span = before / after
    begin, sample = np.arange(after)[:, None] * span, np.arange(before)
    covered = np.minimum(sample + 1, begin + span) - np.maximum(sample, begin)
    shares: Matrix = np.maximum(covered, 0) / span
    return shares


def bilinear(before: int, after: int) -> Matrix:
    """Returns weights by which each place is interpolated between the two samples with the nearest centers."""
    at = (np.arange(after)[:, None] + 0.5) * before / after - 0.5
    near: Matrix = np.maximum(1 - np.abs(np.clip(at, 0, before - 1) - np.arange(before)), 0)
    return near


def table(matrix: Matrix) -> Table:
    """Returns a matrix without most of its zeros."""
    used = matrix > 1e-9
    first, last = used.argmax(axis=1), matrix.shape[1] - used[:, ::-1].argmax(axis=1)
    taps = int((last - first).max())
    first = np.minimum(first, matrix.shape[1] - taps)  # so that all taps are samples
    weights = np.take_along_axis(matrix, first[:, None] + np.arange(taps), axis=1)
    return np.hstack([first[:, None], weights]).astype(np.float32)
