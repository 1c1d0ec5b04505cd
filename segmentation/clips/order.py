"""The order of clips in an epoch: a function of the dataset, the seed and the epoch alone."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.dataset import ClipDataset

Shuffle = Literal["pool", "full"] | bool

_RUN = 48  # frames that a run spans at least: decoding them costs little more than the frames themselves


def runs(dataset: ClipDataset, *, single: bool) -> list[tuple[int, ...]]:
    """Returns clips that are decoded together: neighbors of one video, or with `single` each clip by itself."""
    made: list[list[int]] = []
    for clip, (video, first) in enumerate(zip(dataset.video, dataset.first, strict=True)):
        begun = made[-1][0] if made else None
        near = begun is not None and dataset.video[begun] == video and first - dataset.first[begun] < _RUN
        if near and not single:
            made[-1].append(clip)
        else:
            made.append([clip])
    return [tuple(run) for run in made]


def order(
    dataset: ClipDataset, shuffle: Shuffle, window: int, seed: int, epoch: int, rank: int, world: int
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Returns the clips of an epoch for one of `world` ranks, and the runs that they belong to.

    All ranks get as many clips.
    """
    together = runs(dataset, single=shuffle == "full")
    if not shuffle or shuffle == "full":
        clips = np.arange(len(dataset))
        if shuffle:
            clips = np.random.default_rng([seed, epoch]).permutation(clips)
        count = len(clips) // world
        own = clips[rank::world][:count] if shuffle else clips[rank * count : (rank + 1) * count]
        return own.tolist(), together
    drawn = np.random.default_rng([seed, epoch]).permutation(len(together))
    shares = [[together[number] for number in drawn[other::world]] for other in range(world)]
    count = min(sum(map(len, share)) for share in shares)
    return _pooled(shares[rank], window, np.random.default_rng([seed, epoch, rank]))[:count].tolist(), together


def _pooled(share: list[tuple[int, ...]], window: int, dice: np.random.Generator) -> NDArray[np.int64]:
    """Draws clips from a pool that is filled with run after run: as much chance as `window` runs hold."""
    pool: list[int] = []
    drawn: list[int] = []
    most = window * max(map(len, share), default=1)
    left = iter(share)
    run = next(left, None)
    while pool or run is not None:
        while run is not None and len(pool) + len(run) <= most:
            pool += run
            run = next(left, None)
        place = int(dice.integers(len(pool)))
        pool[place], pool[-1] = pool[-1], pool[place]
        drawn.append(pool.pop())
    return np.array(drawn, np.int64)
