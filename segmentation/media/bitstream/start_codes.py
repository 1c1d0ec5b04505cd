"""Packets as decoders without a container take them: with start codes, and with all that the container stores apart."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
from typing import TYPE_CHECKING

import av.error
from av.bitstream import BitStreamFilterContext

from segmentation.errors import InputError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

log = logging.getLogger(__name__)

_START_CODE = b"\0\0\0\1"
# Where extradata state the bytes of a NAL unit's length, less one (ISO/IEC 14496-15, 5.3.3.1 and 8.3.3.1)
_LENGTH_SIZE = {"h264": 4, "hevc": 21}
_REPEATED = ("h264", "hevc", "mpeg2video", "mpeg4")  # codecs whose extradata decoders must find in the stream itself


def parameter_sets(codec: str, extradata: bytes | None) -> bytes:
    """Returns the parameter sets of H.264 or HEVC in an MP4's extradata, with start codes. ISO/IEC 14496-15.

    Raises `ValueError` where the extradata are of another form, or NAL units don't begin with a length in four bytes.
    """
    data = extradata or b""
    if codec not in _LENGTH_SIZE or data[:1] != b"\1" or data[_LENGTH_SIZE[codec] :][:1][0] & 3 != 3:
        raise ValueError("no extradata of an MP4 with lengths in four bytes")
    found, at = b"", _LENGTH_SIZE[codec] + 1
    arrays = 2 if codec == "h264" else data[at]  # H.264 has an array of SPS, and one of PPS
    at += codec == "hevc"
    for array in range(arrays):
        if codec == "h264":
            count, at = data[at] & (255 if array else 31), at + 1
        else:
            count, at = int.from_bytes(data[at + 1 : at + 3]), at + 3
        for _ in range(count):
            size = int.from_bytes(data[at : at + 2])
            found += _START_CODE + data[at + 2 : at + 2 + size]
            at += 2 + size
    if at > len(data):
        raise ValueError("the extradata are cut off")
    return found


class PacketFilter:
    """Puts into the packets of a stream all that their container stores apart. Packets come in decoding order."""

    def __init__(self, stream: VideoStream, path: str) -> None:
        """`path` is for messages. Raises `InputError` if what the container stores apart can't be read."""
        self._path = path
        self._filters: BitStreamFilterContext | None = None
        self._lengths = False  # whether NAL units begin with their length in four bytes
        self._keyframes_alone = False  # whether the filters leave all other packets as they are
        codec, extradata = stream.codec_context.name, stream.codec_context.extradata
        try:
            if codec in _LENGTH_SIZE and extradata and extradata[0] == 1:
                # The first puts the parameter sets before IDR pictures only; H.264 may begin with another keyframe.
                self._filters = BitStreamFilterContext(f"{codec}_mp4toannexb,dump_extra", stream)
                self._lengths = extradata[_LENGTH_SIZE[codec]] & 3 == 3
            elif codec in _REPEATED and extradata:
                self._filters = BitStreamFilterContext("dump_extra", stream)
                self._keyframes_alone = True
        except (av.error.FFmpegError, IndexError) as exc:
            size = len(extradata or b"")
            raise InputError(
                f"{path}: the parameters of its {codec} video ({size} bytes) are damaged or cut off"
            ) from exc

    def __call__(self, packet: Packet[VideoStream]) -> list[Packet[VideoStream]]:
        """Returns the packets that the filters make of a packet, which they empty: none if it is damaged."""
        if self._filters is None:
            return [packet]
        if not packet.is_keyframe and (self._keyframes_alone or (self._lengths and _write_start_codes(packet))):
            return [packet]
        try:
            return self._filters.filter(packet)
        except av.error.FFmpegError as exc:
            log.info("%s: packet at pts %s is damaged: %s", self._path, packet.pts, exc)
            return []


def _write_start_codes(packet: Packet[VideoStream]) -> bool:
    """Replaces the lengths of NAL units by start codes, in place; returns `False`, all being as before, if they differ.

    FFmpeg's filter gives the GIL up several times for each packet, and waits for it as often.
    """
    data = memoryview(packet)
    at, places = 0, []
    while at + 4 < len(data):
        places.append(at)
        at += 4 + int.from_bytes(data[at : at + 4])
    if at != len(data):
        return False
    for place in places:
        data[place : place + 4] = _START_CODE
    return True
