"""Reads the packets of a container, also of one whose streams are not all there from its beginning on."""

from __future__ import annotations  # PyAV's types are generic for type checkers only

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

import av.logging

from segmentation.system.interrupts import interrupts

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

    StreamT = TypeVar("StreamT", bound=Stream)

_STREAM = re.compile(r"^ *Stream #\d+:(\d+)\S*: (\w+)(?:: (\w+))?", re.MULTILINE)  # as FFmpeg describes an input
_describing = threading.Lock()  # of FFmpeg's log level, which is one for all threads


def demuxed(container: InputContainer, *streams: StreamT) -> Iterator[Packet[StreamT]]:
    """Yields the packets of some streams, or of all, and in the end an empty one of each, as `container.demux` does.

    That leaves out the `late_streams`, as FFmpeg's own program does, and often fails over them when all packets have
    come (PyAV 18.1 and 19.0). Raises FFmpeg's errors.
    """
    with suppress(IndexError), interrupts():
        yield from cast("Iterator[Packet[StreamT]]", container.demux(*streams))


def late_streams(container: InputContainer) -> dict[int, str]:
    """Returns the streams, such as "audio aac" by number, that have begun since an open container was opened.

    PyAV passes on none of their packets, and describes them nowhere else.
    """
    with _describing:
        before = av.logging.get_level()
        try:
            av.logging.set_level(av.logging.INFO)
            described: str = container.dumps_format()  # type: ignore[attr-defined]
        finally:
            av.logging.set_level(before)
    found = {int(number): f"{kind} {codec}".lower().strip() for number, kind, codec in _STREAM.findall(described)}
    metadata = "subtitle text" if container.format.name == "flv" else None  # which FFmpeg takes for subtitles
    known = len(container.streams)
    return {number: found[number] for number in sorted(found) if number >= known and found[number] != metadata}
