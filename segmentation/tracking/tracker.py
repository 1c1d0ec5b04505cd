"""Gives instances their ids: the same thing has the same id in all frames of a run.

A frame's instances are associated with the tracks in steps, the surest first, as in ByteTrack (Zhang et al. 2022):
instances of high score, then those of low score, then tracks that were lost with what appears near where they should
be. Components of a semantic mask take two steps more. Several tracks in one component share it, see `merge.py`. A
component within the box of one track is a piece of that thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import lap
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import MOST, BoxMap, FrameInstances, Instance, LabelMap
from segmentation.tracking.color_histograms import Colors, Histogram, clearly_own, histogram, likeness, plausible
from segmentation.tracking.components import pixels_of, shares
from segmentation.tracking.merge import divide, fit
from segmentation.tracking.motion import box_iou
from segmentation.tracking.parting import exchange_ids
from segmentation.tracking.silhouette import Silhouette
from segmentation.tracking.track import CONFIRMED, Track

LOST = 1.0  # seconds without being seen after which a track ends
GAP = 3.0  # seconds without any frame, as of a camera that was away, after which all tracks end
HIDDEN = 2.0  # the same for one that is expected within a component of others
SURE = 0.6  # score from which an instance may begin a track
COVERED = 0.4  # score from which a track of what is to be covered is surely more than one of chance
_LIKE = 0.1  # least similarity of an instance and a track, a mean of mask IoU and box IoU
_INSIDE = 0.5  # share of a track's shape in components that makes the track a part of them
_CLAIM = 0.3  # share of a track's shape in one component that makes the track a part of that
_COVERED = 0.5  # share of a component in a track's shape that does so too
_ALONE = 0.4  # seconds that a thing must have been alone, or it is a piece of the one that it grows together with
_BESIDE = 0.3  # share of the lower thing's height that both must have beside each other, or one is a piece of the other
_PIECE = 0.7  # share of a component in a track's box that makes it a piece of that thing
_SMALL = 0.25  # share of a thing's area up to which a component beside it may be a piece of it
_NEAR = 0.6  # of the root of a thing's area: how far from its place a lost thing may appear again, at once
_SPREAD = 1.0  # the same for each second that the thing was lost or together with others
_GROWTH = 2.5  # the most by which a thing's area may differ when it appears again
_LOOK = 0.5  # weight of the colors against the place
_SAME_LOOK = 0.4  # likeness below which two things are not the same


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """An instance of the frame, with its number in the label map."""

    number: int
    instance: Instance
    shape: Silhouette
    look: Histogram | None


@dataclass(slots=True, eq=False)
class _Group:
    """Tracks, and the instances that are theirs together."""

    tracks: list[Track]
    seen: list[_Seen]


_Shared = dict[Track, NDArray[np.int64]]  # the pixels that a track's shape shares with each instance, by its number
_Scores = Callable[[Sequence[Track], Sequence[_Seen]], NDArray[np.float64]]  # (tracks, instances)
_Shown = tuple[Track | None, Instance, Silhouette]


class Tracker:
    """Follows the instances of one run."""

    def __init__(self, *, moving: bool, split: bool, ids: Iterator[int] | None = None, covering: bool = False) -> None:
        """`ids` are given in their order, by default from 1. `moving`: things are expected where their motion takes
        them. `split`: instances are components of a semantic mask, so that one may be several things, or a piece of
        one. `covering`: things are to be covered, and each may begin a track, where else only one of `SURE` does.
        """
        self._moving, self._split = moving, split
        self._sure, self._begin = (COVERED, 0.0) if covering else (SURE, SURE)
        self._tracks: list[Track] = []
        self._ids = count(1) if ids is None else ids
        self._begun = False
        self._shot = 0

    def update(self, found: FrameInstances, time: float, colors: Colors | None = None, shot: int = 0) -> FrameInstances:
        """Returns a frame's instances with their ids. `time` is in seconds, `colors` as large as the label map.

        Without an id, which is 0, are things that were never seen before. Each has one from its second frame on. All
        tracks end where another `shot` begins.
        """
        if shot != self._shot:
            self._tracks, self._begun, self._shot = [], False, shot
        if not self._split and not self._tracks and not found.instances:
            self._begun = True
            return found
        label_map = found.drawing
        frame: tuple[int, ...] = label_map.shape
        seen = _seen(found.instances, label_map, colors)
        self._tracks = [track for track in self._tracks if time - track.seen <= GAP]
        for track in self._tracks:
            track.expect(time, frame, moving=self._moving)
        shared = {track: track.expected.counts(label_map, len(found.instances)) for track in self._tracks}
        owners = self._associate(seen, shared, time)
        groups = self._groups(seen, owners, shared)
        alone = [(group.tracks[0], group.seen[0].look) for group in groups if len(group.tracks) == 1]
        exchange_ids({track: look for track, look in alone if look is not None})
        shown = self._settle(groups, shared, frame, time, colors)
        self._end_tracks(shown, label_map, time)
        return _with_ids(shown, frame) if self._split else _in_place(found, shown)

    def _associate(self, seen: Sequence[_Seen], shared: _Shared, time: float) -> dict[int, Track]:
        """Returns the track of each instance by its number, where one is clear."""
        owners: dict[int, Track] = {}
        sure = [one for one in seen if one.instance.score >= self._sure]
        weak = [one for one in seen if one.instance.score < self._sure]
        for several in (sure, weak):
            self._match(owners, several, partial(_similarities, shared), _LIKE)
        self._match(owners, sure, partial(_returns, shared, time), 0.0)
        return owners

    def _match(self, owners: dict[int, Track], seen: Sequence[_Seen], scores: _Scores, least: float) -> None:
        """Associates tracks and instances that are left so that the sum of their scores is largest."""
        taken = set(owners.values())
        tracks = [track for track in self._tracks if track not in taken]
        free = [one for one in seen if one.number not in owners]
        if not tracks or not free:
            return
        _, columns, _ = lap.lapjv(1 - scores(tracks, free), extend_cost=True, cost_limit=1 - least)
        for track, column in zip(tracks, columns, strict=True):
            if column >= 0:
                owners[free[column].number] = track

    def _groups(self, seen: Sequence[_Seen], owners: dict[int, Track], shared: _Shared) -> list[_Group]:
        """Returns the instances with their tracks: several tracks in one component, several pieces of one thing."""
        groups = {one.number: _Group([owners[one.number]] if one.number in owners else [], [one]) for one in seen}
        if self._split:
            for track in self._tracks:
                if track.id and track not in owners.values():
                    _join(groups, _claims(track, seen, shared[track]), [track])
            for one in seen:
                if not groups[one.number].tracks:
                    _join(groups, [one.number, *_pieces_of(one, groups)], [])
        unique = {id(group): group for group in groups.values()}
        return list(unique.values())

    def _settle(
        self, groups: Sequence[_Group], shared: _Shared, frame: tuple[int, ...], time: float, colors: Colors | None
    ) -> list[_Shown]:
        """Updates the tracks with what is theirs. Returns the frame's instances, of which some may have no track."""
        shown: list[_Shown] = []
        for group in groups:
            tracks, instance = self._without_pieces(group.tracks), group.seen[0].instance
            shape = _joined([one.shape for one in group.seen])
            if not tracks:
                track = None
                if instance.score >= self._begin:
                    track = Track(instance, shape, group.seen[0].look, time)
                    self._tracks.append(track)
                shown.append((track, instance, shape))
            elif len(tracks) == 1 and not (self._split and tracks[0].is_cut(shape, int(shared[tracks[0]].sum()), time)):
                tracks[0].see(instance, shape, group.seen[0].look, time)
                shown.append((tracks[0], instance, shape))
            else:
                shown += _parts(instance, shape, tracks, frame, time, colors)
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

    def _end_tracks(self, shown: Sequence[_Shown], label_map: LabelMap, time: float) -> None:
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
        for track in kept:
            track.met.intersection_update(kept)
        self._tracks = kept
        self._begun = True


def _seen(instances: Sequence[Instance], label_map: LabelMap, colors: Colors | None) -> list[_Seen]:
    """Returns the instances with their pixels, or that of their box where others cover all of it."""
    seen = []
    for number, instance in enumerate(instances, 1):
        window = pixels_of(instance.box, label_map.shape)
        if isinstance(label_map, BoxMap):
            shape = Silhouette.box(label_map.windows[number - 1])
        else:
            shape = Silhouette.of(label_map[window] == number, window[1].start, window[0].start)
        shape = shape or Silhouette.box(window)
        if shape is not None:  # the box lies in the picture
            there, here = shape.within(label_map.shape)
            look = None if colors is None else histogram(colors[there], shape.pixels[here])
            seen.append(_Seen(number, instance, shape, look))
    return seen


def _similarities(shared: _Shared, tracks: Sequence[Track], seen: Sequence[_Seen]) -> NDArray[np.float64]:
    """Returns 0 to 1 for places and shapes that are alike, below 0 for two things: (tracks, instances)."""
    counts = np.stack([shared[track] for track in tracks])
    both = counts[:, [one.number for one in seen]]
    areas = np.array([track.expected.area for track in tracks])[:, None]
    others = np.array([one.shape.area for one in seen])
    edges = np.array([track.edges for track in tracks])[:, None]
    boxes = box_iou(edges, np.array([one.shape.edges for one in seen]))
    similar: NDArray[np.float64] = (both / (areas + others - both) + boxes) / 2
    elsewhere = counts[:, 1:].sum(axis=1)[:, None] - both
    similar[(others < areas / _GROWTH) & (elsewhere >= _CLAIM * areas)] = -1.0  # a piece: much of it is elsewhere
    labels = [[track.label != one.instance.label for one in seen] for track in tracks]
    similar[np.array(labels)] = -1.0
    return similar


def _returns(shared: _Shared, time: float, tracks: Sequence[Track], seen: Sequence[_Seen]) -> NDArray[np.float64]:
    """Returns the same for tracks that were lost, by their distance."""
    return np.array([[_return(track, one, shared[track], time) for one in seen] for track in tracks])


def _return(track: Track, one: _Seen, shared: NDArray[np.int64], time: float) -> float:
    """Returns the score of a track that was lost, by its distance. Its place among others was a guess."""
    growth = one.shape.area / max(1, int(shared.sum()))
    if track.label != one.instance.label or not 1 / _GROWTH < growth < _GROWTH:
        return -1.0
    near = 1 - _distance(track, one) / (_NEAR + _SPREAD * (time - track.whole))
    if near > 0 and track.look is not None and one.look is not None:
        alike = likeness(track.look, one.look)
        return -1.0 if alike < _SAME_LOOK else (1 - _LOOK) * near + _LOOK * alike
    return near


def _distance(track: Track, one: _Seen) -> float:
    """Returns how far an instance is from a track's expected place, in roots of the track's box."""
    edges, others = track.edges, one.shape.edges
    apart = float(np.linalg.norm((edges[:2] + edges[2:] - others[:2] - others[2:]) / 2))
    return apart / float(np.sqrt(np.prod(edges[2:] - edges[:2])))


def _claims(track: Track, seen: Sequence[_Seen], shared: NDArray[np.int64]) -> list[int]:
    """Returns the numbers of the components in which a track is that owns none."""
    area = track.expected.area
    if shared[1:].sum() < _INSIDE * area:
        return []
    return [
        one.number
        for one in seen
        if one.instance.label == track.label
        and (shared[one.number] >= _CLAIM * area or shared[one.number] >= _COVERED * one.shape.area)
    ]


def _join(groups: dict[int, _Group], numbers: Sequence[int], tracks: Sequence[Track]) -> None:
    """Makes one group of those of several instances, and adds tracks to it."""
    several = list({id(groups[number]): groups[number] for number in numbers}.values())
    if not several:
        return
    joined = _Group(
        [*(track for group in several for track in group.tracks), *tracks],
        sorted((one for group in several for one in group.seen), key=lambda one: -one.shape.area),
    )
    for one in joined.seen:
        groups[one.number] = joined


def _pieces_of(one: _Seen, groups: dict[int, _Group]) -> list[int]:
    """Returns the number of a component to whose thing another one belongs, as it lies in the thing's box; or none."""
    whole = [group for group in groups.values() if len(group.tracks) == 1]
    inside, k = max(((_share_inside(one.shape, g.tracks[0]), k) for k, g in enumerate(whole)), default=(0.0, 0))
    if inside < _PIECE or one.instance.label != whole[k].tracks[0].label:
        return []
    main = whole[k].seen[0].shape
    may_be = one.shape.area <= _SMALL * main.area or not _beside(one.shape, main)
    return [whole[k].seen[0].number] if may_be else []


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


def _parts(
    instance: Instance,
    shape: Silhouette,
    tracks: Sequence[Track],
    frame: tuple[int, ...],
    time: float,
    colors: Colors | None,
) -> list[_Shown]:
    """Updates the tracks that share a shape, and returns the part of each that is not hidden."""
    place = np.zeros(frame, bool)
    there, here = shape.within(frame)
    place[there] = shape.pixels[here]
    looks = [track.look for track in tracks if track.look is not None]
    whose, own = None, np.zeros((len(tracks), *frame), bool)
    if colors is not None and len(looks) == len(tracks):
        whose = np.stack([plausible(look, colors[there]) for look in looks])
        own[:, *there] = clearly_own(whose)
    placed = fit(place, [track.expected for track in tracks], own)
    parts: list[_Shown] = []
    for track, moved, part in zip(tracks, placed, divide(shape, placed, whose), strict=True):
        track.met.update(other for other in tracks if other is not track)
        if part is None:
            track.hide(time)
        else:
            track.see_part(instance, moved, frame, time)
            parts.append((track, instance, part))
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
    return replace(found, instances=tuple(_named(one, ids.get(id(one), 0)) for one in found.instances))


def _named(one: Instance, id: int) -> Instance:
    return one if one.id == id else replace(one, id=id)


def _with_ids(shown: Sequence[_Shown], frame: tuple[int, ...]) -> FrameInstances:
    """Returns the instances with the ids of their tracks, and their label map (h, w)."""
    label_map = np.zeros(frame, np.uint8)
    instances = []
    for track, instance, shape in shown[:MOST]:
        there, here = shape.within(frame)
        instances.append(replace(instance, id=0 if track is None else track.id, box=shares(there, frame)))
        label_map[there][shape.pixels[here]] = len(instances)
    return FrameInstances(instances=tuple(instances), first_map=label_map)
