"""The order of clips in an epoch: a function of the dataset, the seed and the epoch alone."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import Literal

import numpy as np

from segmentation.clips.dataset import ClipDataset
from segmentation.clips.output import Augmentation

Shuffle = Literal["pool", "full"] | bool

_RUN = 48  # frames that a run spans at least: decoding them costs little more than the frames themselves
_LONG_RUN = 300  # frames of a run's clips at most, unless clips that overlap have more within `_RUN`


def runs(dataset: ClipDataset, *, single: bool) -> list[tuple[int, ...]]:
    """Returns clips that are decoded together: neighbors of one video, or with `single` each clip by itself.

    A run ends where a group of pictures does, unless that is too long: on the way to a run that begins amid a group,
    the frames before it are decoded once more.
    """
    if single:
        return [(clip,) for clip in range(len(dataset))]
    least = shortest_run(dataset)
    most = max(least, _LONG_RUN // max(dataset.step, dataset.length))
    made: list[tuple[int, ...]] = []
    begin = 0
    for end, last in zip(*(column.tolist() for column in dataset.group_ends()), strict=True):
        count = end - begin
        if count < least and not last:
            continue
        parts = -(-count // most)
        bounds = [begin + count * part // parts for part in range(parts + 1)]
        made += [tuple(range(a, b)) for a, b in pairwise(bounds)]
        begin = end
    return made


def shortest_run(dataset: ClipDataset) -> int:
    """Returns how many clips a run has at least, where its video has so many."""
    return -(-_RUN // dataset.step)


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
    most = window * shortest_run(dataset)
    return _pooled(shares[rank], most, dice(seed, "pool", epoch, rank))[:count], together


def dice(seed: int, purpose: Literal["order", "pool", "draw"], *about: int) -> np.random.Generator:
    """Returns a generator of its own for each purpose: those of a list and of the list with a 0 behind are the same."""
    return np.random.default_rng([("order", "pool", "draw").index(purpose) + 1, seed, *about])


@lru_cache(4096)  # a generator takes long to make, and each clip's is asked for again when its batch is put together
def draw(seed: int, epoch: int, clip: int) -> Augmentation:
    """Returns what chance decides of a clip in an epoch."""
    across, down, flip = dice(seed, "draw", epoch, clip).random(3).tolist()
    return Augmentation(across, down, flip < 0.5)


def _shared(drawn: list[tuple[int, ...]], world: int) -> list[list[tuple[int, ...]]]:
    """Deals runs out to ranks, each to one of those that have the fewest clips."""
    shares: list[list[tuple[int, ...]]] = [[] for _ in range(world)]
    fewest = [(0, rank) for rank in range(world)]
    for run in drawn:
        count, rank = heappop(fewest)
        shares[rank].append(run)
        heappush(fewest, (count + len(run), rank))
    return shares


def _pooled(share: list[tuple[int, ...]], most: int, dice: np.random.Generator) -> list[int]:
    """Draws clips from a pool of up to `most`, or those of one run, that is filled with run after run."""
    pool: list[int] = []
    drawn: list[int] = []
    most = max([most, *map(len, share)])
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
