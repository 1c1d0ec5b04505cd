"""Lines about an input's clock, and about packets whose times were wrong."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmentation.media.muxer import Muxer
    from segmentation.media.source_packets import SourcePackets

log = logging.getLogger(__name__)


def retimed_packets(video: int, pictures: int, muxer: Muxer | None) -> dict[int, int]:
    """Returns the packets, by stream, that got another time than they stated: so many `pictures` of stream `video`."""
    found = Counter({video: pictures}) + (Counter() if muxer is None else muxer.retimed)
    return dict(sorted(found.items()))


def warn_of_times(path: str, source: SourcePackets | None, retimed: Mapping[int, int]) -> None:
    """Says when an input's clock has stepped, and which packets stated wrong times. `source` has been read."""
    steps = () if source is None else source.steps
    if steps:
        at, by = steps[0]
        more = f", and {len(steps) - 1} times more" if len(steps) > 1 else ""
        text = "%s: its clock steps by %+.1f s at %.1f s%s; picture and sound go on together from there"
        log.warning(text, path, float(by), float(at), more)
    for stream, count in retimed.items():
        packets = "1 packet" if count == 1 else f"{count} packets"
        log.warning(
            "%s: %s of stream %d had wrong times, and got others between their neighbors'", path, packets, stream
        )
