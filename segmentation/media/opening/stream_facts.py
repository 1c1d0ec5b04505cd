"""Finds properties of a stream that PyAV has no names for, in the header that FFmpeg writes for it in Matroska."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

import av
import av.error
from av.video.stream import VideoStream

# Element IDs, RFC 9559, section 5.1
_MASTERS = {0x18538067, 0x1654AE6B, 0xAE, 0xE0, 0x55B0, 0x7670, 0x41E4}  # that hold those below, and each other
_SITING_ACROSS, _SITING_DOWN, _PROJECTION, _STEREO, _DOLBY = 0x55B7, 0x55B8, 0x7671, 0x53B8, 0x41ED
_LOCATIONS = {(1, 2): "left", (2, 2): "center", (1, 1): "topleft", (2, 1): "top"}  # FFmpeg's names, by siting


class StreamFacts(NamedTuple):
    """Properties of a video stream."""

    chroma_location: str = ""  # FFmpeg's name; empty where the stream states none
    spherical: bool = False  # a picture of 360 degrees
    stereo: bool = False  # two views in one picture
    dolby_vision: tuple[int, int] | None = None  # profile, and with what the base layer is compatible, 0 for nothing


def stream_facts(stream: VideoStream) -> StreamFacts:
    """Returns what is known of a stream; nothing of codecs that Matroska does not hold."""
    header = io.BytesIO()
    try:
        with av.open(header, "w", format="matroska") as container:
            container.add_stream_from_template(stream)
            container.start_encoding()
    except (av.error.FFmpegError, ValueError):
        return StreamFacts()
    found = dict(_elements(header.getvalue()))
    siting = tuple(found.get(key, b"\0")[-1] for key in (_SITING_ACROSS, _SITING_DOWN))
    record = found.get(_DOLBY, b"")
    return StreamFacts(
        _LOCATIONS.get((siting[0], siting[1]), ""),
        any(found.get(_PROJECTION, b"")),
        any(found.get(_STEREO, b"")),
        (record[2] >> 1, record[4] >> 4) if len(record) > 4 else None,
    )


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields ID and content of the elements within `_MASTERS`."""
    at = 0
    while at < len(data):
        key, at = number(data, at, marked=True)
        size, at = number(data, at, marked=False)
        content = data[at : at + size]
        if key in _MASTERS:
            yield from _elements(content)
        else:
            yield key, content
        at += size


def number(data: bytes, at: int, *, marked: bool) -> tuple[int, int]:
    """Returns a number of variable length, with the bits that mark its length or without, and the place behind it."""
    length = 9 - max(1, data[at].bit_length())
    number = int.from_bytes(data[at : at + length])
    return (number if marked else number & (1 << 7 * length) - 1), at + length
