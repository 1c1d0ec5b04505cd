"""Exchanges ids where colors say that things were confused while they were together."""

from __future__ import annotations

from collections.abc import Mapping

from segmentation.tracking.color_histograms import Histogram, likeness
from segmentation.tracking.track import Track

_LEAD = 0.15  # by how much colors must speak for an exchange


def exchange_ids(alone: Mapping[Track, Histogram]) -> None:
    """Exchanges the ids of two tracks that were together, if each looks more like the other did before.

    `alone` are the tracks that are seen alone, with their colors in this frame. The other track may still be a part of
    a component, whose colors say nothing: then those of the one that has left decide.
    """
    looks = {track: track.since_parting(look) for track, look in alone.items() if track.id and track.met}
    for track, look in looks.items():
        best = max(track.met, key=lambda other: _lead(track, look, other, looks), default=None)
        if best is not None and _lead(track, look, best, looks) > _LEAD:
            track.id, best.id = best.id, track.id
            track.look, best.look = best.look, track.look


def _lead(track: Track, look: Histogram, other: Track, looks: Mapping[Track, Histogram]) -> float:
    """Returns by how much colors speak for an exchange of two ids; 0 where they don't say anything."""
    if track.look is None or other.look is None or not other.id or other.label != track.label:
        return 0.0
    lead = likeness(other.look, look) - likeness(track.look, look)
    if (others_look := looks.get(other)) is not None:
        return lead + likeness(track.look, others_look) - likeness(other.look, others_look)
    return lead if other.merged else 0.0
