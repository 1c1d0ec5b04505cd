"""Chooses the keys of a run: the frames that the network sees where there is an interval between inferences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from segmentation.frames import Array, FrameBatch
from segmentation.interval.propagation import FrameMask
from segmentation.stages.masks.smoothing import CUT

Luma = TypeVar("Luma")


@dataclass(frozen=True, slots=True)
class Seen(Generic[Luma]):
    """A frame as the network sees it."""

    number: int
    picture: Array  # (3, H, W), a row of the network's input
    luma: Luma
    batch: FrameBatch  # without its pictures: labels work on the frame


Stretch: TypeAlias = list[Seen[Luma]]  # successive frames, of which the last is a key, and no other
Key: TypeAlias = tuple[Seen[Luma], FrameMask]


class Round(Generic[Luma]):
    """Stretches whose keys go through the network together. `key` is the last key, for the next round."""

    def __init__(self, stretches: list[Stretch[Luma]], before: Future[Key[Luma]] | None) -> None:
        self.stretches = stretches
        self.before = before
        self.key: Future[Key[Luma]] = Future()


def rounds(
    batches: Iterable[list[Seen[Luma]]], changes: Callable[[list[Luma]], list[float]], longest: Callable[[], int]
) -> Iterator[Round[Luma]]:
    """Yields the rounds of a run from the frames of its batches.

    Keys are the first and the last frame, both sides of a cut, and the frame `longest()` frames behind a key, or later
    where that has fallen. So is the last frame before a pause, a batch without frames, whose round may be empty.
    `changes` returns the mean change of each luma but the first from the one before, in 0..1.
    """
    waiting: Stretch[Luma] = []  # behind the last key
    last: Seen[Luma] | None = None
    key: Future[Key[Luma]] | None = None
    for batch in batches:
        if not batch:
            yield (round := Round([waiting] if waiting else [], key))
            waiting, key = [], round.key if waiting else key
            continue
        lumas = [frame.luma for frame in batch]
        found = changes(lumas if last is None else [last.luma, *lumas])
        done: list[Stretch[Luma]] = []
        for frame, change in zip(batch, [1.0] * (last is None) + found, strict=True):
            if change > CUT:
                done += [waiting] if waiting else []
                done.append([frame])
                waiting = []
            else:
                waiting.append(frame)
                if len(waiting) >= longest():
                    done.append(waiting)
                    waiting = []
        last = batch[-1]
        if done:
            yield (round := Round(done, key))
            key = round.key
    if waiting:
        yield Round([waiting], key)
