"""The rule of `--interval auto`: how far keys are apart, and which frames between two keys become keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from segmentation.interval.key_frames import Key, Seen
from segmentation.interval.propagation import Doubt, FrameBetween, FrameMask
from segmentation.options.keywords import Interval

LONGEST = 8  # frames from key to key, at most
DISAGREEMENT = 0.12  # of two keys' masks about a frame between them, above which that frame becomes a key
UNSEEN = 0.03  # the same for the share of that frame that neither key shows

Luma = TypeVar("Luma")
Infer: TypeAlias = Callable[[list[Seen[Luma]]], dict[int, FrameMask]]  # by the frame's number
Propagate: TypeAlias = Callable[[list[FrameBetween[Luma]]], tuple[list[FrameMask], list[Doubt]]]


def longest_gap(interval: Interval) -> int:
    """Returns how many frames there are from one key to the next at most."""
    return LONGEST if interval == "auto" else interval + 1


@dataclass(frozen=True, slots=True)
class Gap(Generic[Luma]):
    """Frames between two keys, perhaps none."""

    first: Key[Luma]
    frames: list[Seen[Luma]]
    last: Key[Luma]

    def at(self, frame: Seen[Luma]) -> FrameBetween[Luma]:
        """Returns a frame with both keys."""
        (begin, found), (end, others) = self.first, self.last
        share = (end.number - frame.number) / (end.number - begin.number)
        return FrameBetween(frame.luma, (begin.luma, end.luma), (found, others), share)

    def split(self, place: int, found: FrameMask) -> list[Gap[Luma]]:
        """Returns the gaps before and behind the frame at `place`, of which `found` is known now."""
        key = (self.frames[place], found)
        return [Gap(self.first, self.frames[:place], key), Gap(key, self.frames[place + 1 :], self.last)]


def settled(gap: Gap[Luma], propagate: Propagate[Luma], infer: Infer[Luma]) -> dict[int, FrameMask]:
    """Returns what is found in each frame of a gap. Frames in doubt become keys, the one in the middle first."""
    found: dict[int, FrameMask] = {}
    gaps = [gap]
    while gaps:
        gap = gaps.pop()
        if not gap.frames:
            continue
        middle = len(gap.frames) // 2
        places = [place for place in range(len(gap.frames)) if place != middle]
        key = None
        for several in ([middle], places):
            results, doubts = propagate([gap.at(gap.frames[place]) for place in several])
            found |= {gap.frames[place].number: one for place, one in zip(several, results, strict=True)}
            greatest = max(zip(map(_measure, doubts), several, strict=True), default=(0.0, 0))
            if greatest[0] > 1:
                key = greatest[1]
                break
        if key is not None:
            found |= (inferred := infer([gap.frames[key]]))
            gaps += gap.split(key, inferred[gap.frames[key].number])
    return found


def _measure(doubt: Doubt) -> float:
    """Returns a number above 1 for a doubt with which a frame becomes a key."""
    return max(doubt.disagreement / DISAGREEMENT, doubt.unseen / UNSEEN)
