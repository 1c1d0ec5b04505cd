"""Gives instances their ids: the same thing has the same id in all frames of a run.

A frame's instances are associated with the tracks in steps, the surest first, as in ByteTrack (Zhang et al. 2022):
instances of high score, then those of low score, then tracks that were lost with what appears near where they should
be. Components of a semantic mask take two steps more. Several tracks in one component share it, see `merge.py`. A
component within the box of one track is a piece of that thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import lap
import numpy as np
from numpy.typing import NDArray

from segmentation.instances import MOST, FrameInstances, Instance
from segmentation.stages.tracking.appearance import Colors, Histogram, histogram, likeness
from segmentation.stages.tracking.components import pixels_of, shares
from segmentation.stages.tracking.merge import divide, fit
from segmentation.stages.tracking.motion import box_iou
from segmentation.stages.tracking.silhouette import Silhouette
from segmentation.stages.tracking.track import CONFIRMED, Track

LOST = 1.0  # seconds without being seen after which a track ends
HIDDEN = 2.0  # the same for one that is expected within a component of others
SURE = 0.6  # score from which an instance may begin a track
_LIKE = 0.1  # least similarity of an instance and a track, a mean of mask IoU and box IoU
_INSIDE = 0.5  # share of a track's shape in a component that makes the track a part of it
_ALONE = 0.4  # seconds that a thing must have been alone, or it is a piece of the one that it grows together with
_BESIDE = 0.3  # share of the lower thing's height that both must have beside each other, or one is a piece of the other
_PIECE = 0.7  # share of a component in a track's box that makes it a piece of that thing
_SMALL = 0.25  # share of a thing's area up to which a component beside it may be a piece of it
_NEAR = 0.6  # of the root of a thing's area: how far from its place a lost thing may appear again, at once
_SPREAD = 1.0  # the same for each second that the thing was lost
_GROWTH = 2.5  # the most by which a thing's area may differ when it appears again
_LOOK = 0.5  # weight of the colors against the place
_SAME_LOOK = 0.6  # likeness below which two things are not the same


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """An instance of the frame, with its number in the label map."""

    number: int
    instance: Instance
    shape: Silhouette
    look: Histogram | None


_Score = Callable[[Track, _Seen], float]
_Shown = tuple[Track | None, Instance, Silhouette]


class Tracker:
    """Follows the instances of one run."""

    def __init__(self, *, moving: bool, split: bool, ids: Iterator[int] | None = None) -> None:
        """`ids` are given in their order, by default from 1. `moving`: things are expected where their motion takes
        them. `split`: instances are components of a semantic mask, so that one may be several things, or a piece of
        one.
        """
        self._moving, self._split = moving, split
        self._tracks: list[Track] = []
        self._ids = count(1) if ids is None else ids
        self._begun = False

    def update(self, found: FrameInstances, time: float, colors: Colors | None = None) -> FrameInstances:
        """Returns a frame's instances with their ids. `time` is in seconds, `colors` as large as the label map.

        Without an id, which is 0, are things that were never seen before. Each has one from its second frame on.
        """
        frame = found.label_map.shape
        seen = _seen(found, colors)
        for track in self._tracks:
            track.expect(time, frame, moving=self._moving)
        owners = self._associate(seen, found.label_map, time)
        shown = self._settle(seen, owners, found.label_map, time)
        self._end_tracks(shown, found.label_map, time)
        return _with_ids(shown, frame) if self._split else _in_place(found, shown)

    def _associate(self, seen: Sequence[_Seen], label_map: NDArray[np.uint8], time: float) -> dict[int, list[Track]]:
        """Returns the tracks of each instance by its number; there may be several if components are split."""
        owners: dict[int, list[Track]] = {}
        shared = {track: track.expected.counts(label_map, len(seen)) for track in self._tracks}
        sure = [one for one in seen if one.instance.score >= SURE]
        weak = [one for one in seen if one.instance.score < SURE]
        self._match(owners, sure, lambda track, one: _similarity(track, one, int(shared[track][one.number])), _LIKE)
        self._match(owners, weak, lambda track, one: _similarity(track, one, int(shared[track][one.number])), _LIKE)
        self._match(owners, sure, lambda track, one: _return(track, one, time), 0.0)
        if self._split:
            for track in self._left(owners):
                number = 1 + int(np.argmax(shared[track][1:])) if seen else 0
                if track.id and number and shared[track][number] >= _INSIDE * track.expected.area:
                    owners.setdefault(number, []).append(track)
        return owners

    def _left(self, owners: dict[int, list[Track]]) -> list[Track]:
        """Returns the tracks that own no instance."""
        taken = {track for several in owners.values() for track in several}
        return [track for track in self._tracks if track not in taken]

    def _match(self, owners: dict[int, list[Track]], seen: Sequence[_Seen], score: _Score, least: float) -> None:
        """Associates tracks and instances that are left so that the sum of their scores is largest."""
        tracks = self._left(owners)
        free = [one for one in seen if one.number not in owners]
        if not tracks or not free:
            return
        costs = np.array([[1 - score(track, one) for one in free] for track in tracks])
        _, columns, _ = lap.lapjv(costs, extend_cost=True, cost_limit=1 - least)
        for track, column in zip(tracks, columns, strict=True):
            if column >= 0:
                owners[free[column].number] = [track]

    def _settle(
        self, seen: Sequence[_Seen], owners: dict[int, list[Track]], label_map: NDArray[np.uint8], time: float
    ) -> list[_Shown]:
        """Updates the tracks with what they own. Returns the frame's instances, of which some may have no track."""
        pieces = self._pieces(seen, owners) if self._split else {}
        shown: list[_Shown] = []
        for one in seen:
            tracks = owners.get(one.number, [])
            known = self._without_pieces(tracks)
            if len(known) > 1:
                shown += _parts(one, known, label_map, time)
            elif known:
                shape = _joined([one.shape, *pieces.get(known[0], ())])
                known[0].see(one.instance, shape, one.look, time)
                shown.append((known[0], one.instance, shape))
            elif not any(one.shape in several for several in pieces.values()):
                shown.append((None, one.instance, one.shape))
                if one.instance.score >= SURE:
                    self._tracks.append(Track(one.instance, one.shape, one.look, time))
                    shown[-1] = (self._tracks[-1], one.instance, one.shape)
        return shown

    def _without_pieces(self, tracks: list[Track]) -> list[Track]:
        """Returns those of the tracks that share a component which are things of their own. The others end."""
        if len(tracks) < 2:
            return tracks
        whole: list[Track] = []
        for track in sorted(tracks, key=lambda track: (-track.alone, track.id)):
            if not whole or (track.alone >= _ALONE and all(_beside(track.expected, other.expected) for other in whole)):
                whole.append(track)
            else:
                self._tracks.remove(track)
        return whole

    def _pieces(self, seen: Sequence[_Seen], owners: dict[int, list[Track]]) -> dict[Track, list[Silhouette]]:
        """Returns the components that nobody owns, by the track in whose box they are."""
        main = {owners[one.number][0]: one.shape for one in seen if len(owners.get(one.number, ())) == 1}
        whole = list(main)
        pieces: dict[Track, list[Silhouette]] = {}
        for one in seen:
            if one.number not in owners:
                inside, k = max(((_share_inside(one.shape, t), k) for k, t in enumerate(whole)), default=(0.0, 0))
                if inside >= _PIECE and _may_be_piece(one.shape, main[whole[k]]):
                    pieces.setdefault(whole[k], []).append(one.shape)
        return pieces

    def _end_tracks(self, shown: Sequence[_Shown], label_map: NDArray[np.uint8], time: float) -> None:
        """Forgets the tracks that were lost for too long, and gives ids to those that were seen often enough."""
        visible = {track for track, _, _ in shown}
        kept = []
        for track in self._tracks:
            if track not in visible:
                behind = track.merged and track.expected.counts(label_map, MOST)[1:].sum() > _INSIDE * track.shape.area
                if not track.id or time - track.seen > (HIDDEN if behind else LOST):
                    continue
            elif not track.id and (track.hits >= CONFIRMED or not self._begun):
                track.id = next(self._ids)
            kept.append(track)
        self._tracks = kept
        self._begun = True


def _seen(found: FrameInstances, colors: Colors | None) -> list[_Seen]:
    """Returns the instances with their pixels, or that of their box where others cover all of it."""
    seen = []
    for number, instance in enumerate(found.instances, 1):
        window = pixels_of(instance.box, found.label_map.shape)
        pixels = found.label_map[window] == number
        if not pixels.any():
            pixels = np.ones_like(pixels)
        shape = Silhouette.of(pixels, window[1].start, window[0].start)
        if shape is not None:  # the box lies in the picture
            look = None if colors is None else histogram(colors[window], pixels)
            seen.append(_Seen(number, instance, shape, look))
    return seen


def _similarity(track: Track, one: _Seen, shared: int) -> float:
    """Returns 0 to 1 for places and shapes that are alike, below 0 for two things."""
    if track.label != one.instance.label:
        return -1.0
    masks = shared / (track.expected.area + one.shape.area - shared)
    place = (masks + box_iou(track.edges, one.shape.edges)) / 2
    if track.merged and track.look is not None and one.look is not None and _distance(track, one) < 1:
        return (1 - _LOOK) * place + _LOOK * likeness(track.look, one.look)
    return place


def _return(track: Track, one: _Seen, time: float) -> float:
    """Returns the same for a track that was lost, by its distance."""
    growth = one.shape.area / track.shape.area
    if track.label != one.instance.label or not 1 / _GROWTH < growth < _GROWTH:
        return -1.0
    near = 1 - _distance(track, one) / (_NEAR + _SPREAD * (time - track.seen))
    if near > 0 and track.look is not None and one.look is not None:
        alike = likeness(track.look, one.look)
        return -1.0 if alike < _SAME_LOOK else (1 - _LOOK) * near + _LOOK * alike
    return near


def _distance(track: Track, one: _Seen) -> float:
    """Returns how far an instance is from a track's expected place, in roots of the track's box."""
    edges, others = track.edges, one.shape.edges
    apart = float(np.linalg.norm((edges[:2] + edges[2:] - others[:2] - others[2:]) / 2))
    return apart / float(np.sqrt(np.prod(edges[2:] - edges[:2])))


def _may_be_piece(shape: Silhouette, main: Silhouette) -> bool:
    return shape.area <= _SMALL * main.area or not _beside(shape, main)


def _beside(one: Silhouette, other: Silhouette) -> bool:
    """Returns whether two things have enough rows in common to stand beside each other, not on each other."""
    (_, top, _, bottom), (_, others_top, _, others_bottom) = one.edges, other.edges
    common = min(bottom, others_bottom) - max(top, others_top)
    return bool(common >= _BESIDE * min(bottom - top, others_bottom - others_top))


def _share_inside(shape: Silhouette, track: Track) -> float:
    """Returns the share of a shape's box in the box of a track."""
    edges, box = shape.edges, track.edges
    sides = np.minimum(edges[2:], box[2:]) - np.maximum(edges[:2], box[:2])
    return float(np.prod(np.maximum(sides, 0)) / np.prod(edges[2:] - edges[:2]))


def _parts(one: _Seen, tracks: Sequence[Track], label_map: NDArray[np.uint8], time: float) -> list[_Shown]:
    """Updates the tracks that share a component, and returns the part of each that is not hidden."""
    placed = fit(label_map == one.number, [track.expected for track in tracks])
    parts: list[_Shown] = []
    for track, shape, part in zip(tracks, placed, divide(one.shape, placed), strict=True):
        if part is None:
            track.merged = True
        else:
            track.see_part(one.instance, shape, label_map.shape, time)
            parts.append((track, one.instance, part))
    return parts


def _joined(shapes: Sequence[Silhouette]) -> Silhouette:
    """Returns several shapes as one."""
    if len(shapes) == 1:
        return shapes[0]
    edges = np.array([shape.edges for shape in shapes])
    left, top = (int(v) for v in edges[:, :2].min(0))
    right, bottom = (int(v) for v in edges[:, 2:].max(0))
    pixels = np.zeros((bottom - top, right - left), bool)
    for shape in shapes:
        there, here = shape.moved(-left, -top).within(pixels.shape)
        pixels[there] |= shape.pixels[here]
    return Silhouette(left, top, pixels, int(np.count_nonzero(pixels)))


def _in_place(found: FrameInstances, shown: Sequence[_Shown]) -> FrameInstances:
    """Returns the instances of a network, whose boxes are more exact than the label map's, with their ids."""
    ids = {id(instance): track.id for track, instance, _ in shown if track is not None}
    return replace(found, instances=tuple(replace(one, id=ids.get(id(one), 0)) for one in found.instances))


def _with_ids(shown: Sequence[_Shown], frame: tuple[int, ...]) -> FrameInstances:
    """Returns the instances with the ids of their tracks, and their label map (h, w)."""
    label_map = np.zeros(frame, np.uint8)
    instances = []
    for track, instance, shape in shown[:MOST]:
        there, here = shape.within(frame)
        instances.append(replace(instance, id=0 if track is None else track.id, box=shares(there, frame)))
        label_map[there][shape.pixels[here]] = len(instances)
    return FrameInstances(instances=tuple(instances), label_map=label_map)
