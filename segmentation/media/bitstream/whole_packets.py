"""Packets of a stream without the stump with which a file breaks off."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream


def whole_packets(packets: Iterable[Packet[VideoStream]], damaged: Callable[[], None]) -> Iterator[Packet[VideoStream]]:
    """Yields the packets that hold something, but for a last one that is cut off, for which it calls `damaged`.

    The error of a cut-off packet would end FFmpeg's decoder, with the frames that wait in its threads. NVDEC would make
    up the rest of the picture.
    """
    cut_off: Packet[VideoStream] | None = None
    first = True
    try:
        for packet in packets:
            if not packet.size:
                continue
            if cut_off is not None:
                yield cut_off
            cut_off = packet if packet.is_corrupt and not first else None
            first = False
            if cut_off is None:
                yield packet
    finally:
        if cut_off is not None:
            damaged()
