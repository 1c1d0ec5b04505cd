"""Packets as decoders without a container take them: with start codes, and with all that the container stores apart."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
from typing import TYPE_CHECKING

import av.error
from av.bitstream import BitStreamFilterContext

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

log = logging.getLogger(__name__)

_REPEATED = ("h264", "hevc", "mpeg2video", "mpeg4")  # codecs whose extradata decoders must find in the stream itself


def bitstream_filter(stream: VideoStream) -> BitStreamFilterContext | None:
    """Returns the filters that put into the packets all that their container stores apart; `None` if nothing is."""
    codec, extradata = stream.codec_context.name, stream.codec_context.extradata
    if codec in ("h264", "hevc") and extradata and extradata[0] == 1:
        # The first filter puts the parameter sets before IDR pictures only, and H.264 may begin with another keyframe.
        return BitStreamFilterContext(f"{codec}_mp4toannexb,dump_extra", stream)
    return BitStreamFilterContext("dump_extra", stream) if codec in _REPEATED and extradata else None


def filtered(
    packet: Packet[VideoStream], filters: BitStreamFilterContext | None, path: str
) -> list[Packet[VideoStream]]:
    """Returns the packets that the filters make of a packet, which they empty: none if it is damaged."""
    try:
        return [packet] if filters is None else filters.filter(packet)
    except av.error.FFmpegError as exc:
        log.info("%s: packet at pts %s is damaged: %s", path, packet.pts, exc)
        return []
