"""Neighboring pieces of one video that a worker makes in one run."""

from bisect import bisect_right
from collections.abc import Callable

from segmentation.scale.plan import Piece, VideoPlan


class Span:
    """The pieces from `begin` to before `end`. The end may come nearer during the run, but for pieces that are begun.

    `begun` is called with the number of each piece when its first frame is decoded, `completed` when its file is
    complete.
    """

    def __init__(
        self,
        plan: VideoPlan,
        begin: int,
        end: int,
        completed: Callable[[int], None],
        begun: Callable[[int], None] = lambda piece: None,
    ) -> None:
        self.plan, self.begin, self.end = plan, begin, end
        self.completed, self.begun = completed, begun
        self._begins = plan.begins()

    @property
    def first(self) -> Piece:
        return self.plan.pieces[self.begin]

    @property
    def last(self) -> Piece:
        return self.plan.pieces[self.end - 1]

    def piece(self, pts: int) -> int:
        """Returns the number of the piece that a frame belongs to."""
        return bisect_right(self._begins, pts)

    def has(self, pts: int) -> bool:
        """Returns whether the frame belongs to the span."""
        return self.begin <= self.piece(pts) < self.end

    def needs(self, pts: int) -> bool:
        """Returns whether the frame is of the span, or so near that smoothing needs its mask."""
        lead, tail = self.first.lead, self.last.tail
        return (lead is None or pts >= lead) and (tail is None or pts < tail)
