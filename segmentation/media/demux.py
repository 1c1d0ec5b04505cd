"""Reads the packets of a container, also of one whose streams are not all there from its beginning on."""

from __future__ import annotations  # PyAV's types are generic for type checkers only

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

    StreamT = TypeVar("StreamT", bound=Stream)

log = logging.getLogger(__name__)


def demuxed(container: InputContainer, *streams: StreamT) -> Iterator[Packet[StreamT]]:
    """Yields the packets of some streams, or of all, and in the end an empty one of each, as `container.demux` does.

    That leaves out streams that begin seconds after the others without being announced, as FFmpeg's own program does,
    and often fails over them when all packets have come (PyAV 18.1 and 19.0). Raises FFmpeg's errors.
    """
    try:
        yield from cast("Iterator[Packet[StreamT]]", container.demux(*streams))
    except IndexError:
        log.warning("%s: a stream that begins on the way is left out", container.name)
