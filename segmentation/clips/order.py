"""The order of clips in an epoch: a function of the dataset, the seed and the epoch alone."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from typing import Literal

import numpy as np

from segmentation.clips.dataset import ClipDataset
from segmentation.clips.output import Draw

Shuffle = Literal["pool", "full"] | bool

_RUN = 48  # frames that a run spans at least: decoding them costs little more than the frames themselves


def runs(dataset: ClipDataset, *, single: bool) -> list[tuple[int, ...]]:
    """Returns clips that are decoded together: neighbors of one video, or with `single` each clip by itself."""
    most = 1 if single else -(-_RUN // dataset.step)
    ends = np.flatnonzero(np.diff(dataset.video, append=-1)) + 1  # of the videos' clips
    begins = [0, *ends[:-1].tolist()]
    return [
        tuple(range(at, min(at + most, end)))
        for begin, end in zip(begins, ends.tolist(), strict=True)
        for at in range(begin, end, most)
    ]


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
            clips = dice(seed, "order", epoch).permutation(clips)
        count = len(clips) // world
        own = clips[rank::world][:count] if shuffle else clips[rank * count : (rank + 1) * count]
        return own.tolist(), together
    drawn = [together[number] for number in dice(seed, "order", epoch).permutation(len(together))]
    shares = _shared(drawn, world)
    count = min(sum(map(len, share)) for share in shares)
    return _pooled(shares[rank], window, dice(seed, "pool", epoch, rank))[:count], together


def dice(seed: int, purpose: Literal["order", "pool", "draw"], *about: int) -> np.random.Generator:
    """Returns a generator of its own for each purpose: those of a list and of the list with a 0 behind are the same."""
    return np.random.default_rng([("order", "pool", "draw").index(purpose) + 1, seed, *about])


@lru_cache(4096)  # a generator takes long to make, and each clip's is asked for again when its batch is put together
def draw(seed: int, epoch: int, clip: int) -> Draw:
    """Returns what chance decides of a clip in an epoch."""
    across, down, flip = dice(seed, "draw", epoch, clip).random(3).tolist()
    return Draw(across, down, flip < 0.5)


def _shared(drawn: list[tuple[int, ...]], world: int) -> list[list[tuple[int, ...]]]:
    """Deals runs out to ranks, each to one of those that have the fewest clips."""
    shares: list[list[tuple[int, ...]]] = [[] for _ in range(world)]
    fewest = [(0, rank) for rank in range(world)]
    for run in drawn:
        count, rank = heappop(fewest)
        shares[rank].append(run)
        heappush(fewest, (count + len(run), rank))
    return shares


def _pooled(share: list[tuple[int, ...]], window: int, dice: np.random.Generator) -> list[int]:
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
    return drawn
