"""Finds the doubtful spans of a run that covers boxes: where a person should look before the video is handed on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from segmentation.frames.instances import Box, FrameInstances, Instance
from segmentation.options.anonymize import LOOK_AHEAD
from segmentation.tracking.anonymize.cover import BEYOND, iou
from segmentation.tracking.tracker import COVERED, SURE

_EDGE = 0.02  # share of the picture's side: what comes and goes there was outside before and is outside behind
_SAME = 0.2  # IoU of the boxes of a head in two frames
_LARGE = 0.3  # share of the picture's height, from which on a thing counts as large


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulSpan:
    """A span of a track to look at. Times are seconds of the output."""

    kind: str  # "appears", "vanishes", "gap", "weak" or "bare"
    id: int  # 0 of a bare head
    begin: float
    end: float
    look: float  # the time of the picture that shows it best
    box: Box  # where to look
    doubt: float  # 0..1


@dataclass(frozen=True, slots=True)
class Sight:
    """A thing in one frame, found or supposed."""

    time: float
    one: Instance

    @property
    def found(self) -> bool:
        return self.one.score > 0


@dataclass(slots=True)
class TrackLog:
    """All that is covered of one thing, in the order of time."""

    label: str
    shot: int
    sights: list[Sight] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Returns the highest score."""
        return max(sight.one.score for sight in self.sights)


class DoubtFinder:
    """Collects the covered things of a run."""

    def __init__(self) -> None:
        self.tracks: dict[int, TrackLog] = {}  # by id; things without a track are left out
        self._times: list[float] = []
        self._shots: list[int] = []  # of each time
        self._bare: list[TrackLog] = []  # heads that nothing covers

    def add(self, time: float, frame: FrameInstances, shot: int = 0, bare: Sequence[Box] = ()) -> None:
        """Adds the next frame, which the output shows at `time` in seconds, and the number of its shot.

        `bare` are the heads that nothing covers.
        """
        self._times.append(time)
        self._shots.append(shot)
        for one in frame.instances:
            if one.id:
                self.tracks.setdefault(one.id, TrackLog(one.label, shot)).sights.append(Sight(time, one))
        for box in bare:
            self._add_bare(Sight(time, Instance(label="head", score=SURE, box=box)), shot)

    def _add_bare(self, sight: Sight, shot: int) -> None:
        """Adds a head to the one that was there just before, or begins another."""
        near = [
            one
            for one in self._bare
            if one.shot == shot
            and 0 < sight.time - one.sights[-1].time <= BEYOND
            and iou(one.sights[-1].one.box, sight.one.box) > _SAME
        ]
        if near:
            near[-1].sights.append(sight)
        else:
            self._bare.append(TrackLog("head", shot, [sight]))

    def doubts(self) -> list[DoubtfulSpan]:
        """Returns all doubtful spans, the most doubtful first."""
        found = [doubt for id, track in self.tracks.items() for doubt in self._of(id, track)]
        for track in self._bare:
            if track.sights[-1].time - track.sights[0].time >= BEYOND:
                middle = track.sights[len(track.sights) // 2]
                found.append(_doubt("bare", 0, track.sights, middle, _by_size(middle.one)))
        return sorted(found, key=lambda one: (-one.doubt, one.begin))

    def is_left(self, doubt: DoubtfulSpan) -> bool:
        """Returns whether all of a span's track is left uncovered, as somebody has asked."""
        sights = self.tracks[doubt.id].sights if doubt.id else []
        within = [sight.one.kept for sight in sights if doubt.begin <= sight.time <= doubt.end]
        return bool(within) and not any(within)

    def _of(self, id: int, track: TrackLog) -> Iterator[DoubtfulSpan]:
        seen = [sight for sight in track.sights if sight.found]
        if not seen or not any(sight.one.kept for sight in track.sights):
            return
        if track.best < COVERED:
            return  # most of these are nothing
        if track.best < SURE:
            yield _doubt("weak", id, track.sights, track.sights[len(track.sights) // 2], 0.2)
        first, last = seen[0], seen[-1]
        times = self._times[bisect_left(self._shots, track.shot) : bisect_right(self._shots, track.shot)]
        if first.time - times[0] > BEYOND and not _at_edge(first.one.box):
            before = [time for time in times if time < track.sights[0].time][-1:] or [first.time]
            sight = Sight(before[0], first.one)
            yield _doubt("appears", id, [sight, first], sight, _by_size(first.one))
        if times[-1] - last.time > BEYOND and not _at_edge(last.one.box):
            behind = next((time for time in times if time > track.sights[-1].time), last.time)
            sight = Sight(behind, last.one)
            yield _doubt("vanishes", id, [last, sight], sight, _by_size(last.one))
        yield from _gaps(id, track.sights, seen)


def _gaps(id: int, sights: Sequence[Sight], seen: Sequence[Sight]) -> Iterator[DoubtfulSpan]:
    """Yields the spans between two found boxes that are too long for the way between them to be sure."""
    for before, after in pairwise(seen):
        if (length := after.time - before.time) > BEYOND:
            between = [sight for sight in sights if before.time < sight.time < after.time] or [before]
            yield _doubt("gap", id, [before, after], between[len(between) // 2], min(1.0, length / LOOK_AHEAD))


def _doubt(kind: str, id: int, span: Sequence[Sight], look: Sight, doubt: float) -> DoubtfulSpan:
    box = look.one.box
    return DoubtfulSpan(kind=kind, id=id, begin=span[0].time, end=span[-1].time, look=look.time, box=box, doubt=doubt)


def _by_size(one: Instance) -> float:
    """Returns the doubt of a bare head, or of what comes or goes amid the picture: the larger, the surer."""
    return 0.5 + 0.5 * min(1.0, (one.box[3] - one.box[1]) / _LARGE)


def _at_edge(box: Box) -> bool:
    return min(box[:2]) < _EDGE or max(box[2:]) > 1 - _EDGE
