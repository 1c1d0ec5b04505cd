"""Cutting a video's packets into chunks that decoders can decode independently of each other, at the same time.

A chunk begins at a keyframe from which decoding gives exact pictures. Frames that come after that keyframe in the file
but are shown before it (those of an open group of pictures) may refer to what lies before it; so the chunk before gets
them, with the keyframe, and each chunk's frames are those within its own times.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import av.error
from av.bitstream import BitStreamFilterContext
from av.packet import Packet
from av.video.stream import VideoStream

from segmentation.frames import VideoInfo
from segmentation.media.input import open_input

log = logging.getLogger(__name__)

LONGEST = 600  # packets of one chunk that wait for its decoder: reading stops there until some are taken
_POLL = 0.05  # seconds between looks at whether all is over
_H264_IDR = 5  # nal_unit_type, H.264 table 7-1
_HEVC_IRAP, _HEVC_IDR = range(16, 24), range(19, 21)  # nal_unit_type, H.265 table 7-1
_REPEATED = ("h264", "hevc", "mpeg2video", "mpeg4")  # decoders learn from the stream alone what its extradata says


class Chunk:
    """Packets for one decoder, which may take them while others are still being read.

    Frames belong to it whose pts is `first` or more, and less than `until` (`None`: no such limit).
    """

    def __init__(self, first: int | None, stop: threading.Event) -> None:
        self.first = first
        self.until: int | None = None
        self.joined = False  # whether time has stepped back before it, so that its pts don't tell when it is shown
        self.passed: int | None = None  # the pts of the last of its frames that was left out before the wanted stretch
        self.head: Packet[Any] | None = None  # its first packet
        self.length = 0  # packets so far
        self.ended = False  # whether all of them are there
        self.begun = 0  # batches that its decoder has begun to fill with what it makes of them
        self.decoded: deque[Any] = deque()  # what its decoder has made of them and nobody has taken yet
        self.done = False  # whether nothing is to follow there
        self.lost = 0  # frames after the last one that came out
        self._packets: queue.Queue[Packet[Any] | None] = queue.Queue(LONGEST)
        self._stop = stop

    def put(self, packet: Packet[Any] | None) -> None:
        """Adds a packet; `None` ends the chunk. Waits while too many are there, unless all is over."""
        if self.head is None:
            self.head = packet
        self.length += packet is not None
        while not self._stop.is_set():
            try:
                self._packets.put(packet, timeout=_POLL)
            except queue.Full:
                continue
            self.ended = packet is None
            return

    def packets(self) -> Iterator[Packet[Any]]:
        """Its packets, as they come; ends early when all is over."""
        while not self._stop.is_set():
            try:
                packet = self._packets.get(timeout=_POLL)
            except queue.Empty:
                continue
            if packet is None:
                return
            yield packet

    def shows(self, pts: int | None) -> bool:
        """Whether a frame of this pts belongs to this chunk."""
        if pts is None:
            return True
        return (self.first is None or pts >= self.first) and (self.until is None or pts < self.until)


def chunks(
    packets: Iterable[Packet[Any]], cuttable: Callable[[Packet[Any]], bool], least: int, stop: threading.Event
) -> Iterator[Chunk]:
    """Cuts at keyframes, so that each chunk has `least` packets or more. A chunk is given out when its first packet has
    come, and filled while the next one is asked for.

    Where time steps back, as at the seam of joined recordings or between the entries of an edit list, pts don't tell
    whose frames are whose: there a chunk ends whatever its length, and neither of the two has a limit at the seam. Nor do
    they where packets have none, so from the first such packet on there are no cuts but those.
    """
    chunk: Chunk | None = None
    before: Chunk | None = None  # the chunk that ends at the beginning of this one, while it may still get frames
    latest: int | None = None  # the highest pts since time stepped back
    seam = joined = False  # whether it has, since the last cut; and at all
    timed = True  # whether all packets have a pts
    for packet in packets:
        if packet.pts is None:
            timed = False
        else:
            if latest is not None and packet.is_keyframe and packet.pts <= latest:
                latest, seam, joined = packet.pts, True, True
            latest = packet.pts if latest is None else max(latest, packet.pts)
        if chunk is None or (cuttable(packet) and (seam or (before is None and timed and chunk.length >= least))):
            _end(before)
            before, chunk = chunk, Chunk(packet.pts if packet.is_keyframe and not seam else None, stop)
            chunk.joined = joined
            chunk.put(packet)
            key = packet
            if before is not None and not seam:
                before.until = packet.pts
                bridged = False
            else:
                _end(before)
                before = None
            seam = False
            yield chunk
            continue
        if seam:
            chunk.first, chunk.joined = None, True
        if before is not None and packet.pts is not None and chunk.first is not None and packet.pts < chunk.first:
            if not bridged:
                before.put(key)
                bridged = True
            before.put(packet)
            continue
        _end(before)
        before = None
        chunk.put(packet)
    _end(before)
    _end(chunk)


def _end(chunk: Chunk | None) -> None:
    if chunk is not None:
        chunk.put(None)


def whole(packets: Iterable[Packet[Any]], stop: threading.Event) -> Iterator[Chunk]:
    """All packets as one chunk, whatever their times."""
    chunk = Chunk(None, stop)
    yield chunk
    for packet in packets:
        chunk.put(packet)
    chunk.put(None)


def read(info: VideoInfo, first: int | None) -> Iterator[Packet[Any]]:
    """The video's packets from the keyframe before the pts `first` on, as a decoder without a container wants them;
    all of them, if a seek does not lead there."""
    sought = first if first is not None and _leads_before(info, first) else None
    with open_input(info.path) as container:
        stream = container.streams[info.stream_index]
        assert isinstance(stream, VideoStream)
        if sought is not None:
            container.seek(sought, stream=stream)
        filters = _filter(stream)
        try:
            for packet in container.demux(stream):
                if packet.size:
                    yield from _filtered(packet, filters, info.path)
        except av.error.FFmpegError as exc:
            log.info("%s: reading ended early: %s", info.path, exc)


def _leads_before(info: VideoInfo, first: int) -> bool:
    """Whether a seek to the pts `first` leads to a keyframe that is shown then or before. Not every container that
    can't seek can go back to its beginning, so this opens it apart."""
    with open_input(info.path) as container:
        stream = container.streams[info.stream_index]
        try:
            container.seek(first, stream=stream)
            found = next((p for p in container.demux(stream) if p.pts is not None), None)
        except av.error.FFmpegError as exc:
            log.info("%s: can't seek: %s", info.path, exc)
            return False
    if found is None or found.pts is None or found.is_discard:  # those of another entry of the edit list are not shown
        return False
    return found.is_keyframe and found.pts <= first


def _filtered(packet: Packet[Any], filters: BitStreamFilterContext | None, path: str) -> list[Packet[Any]]:
    try:
        return [packet] if filters is None else filters.filter(packet)
    except av.error.FFmpegError as exc:
        log.info("%s: packet at pts %s is damaged: %s", path, packet.pts, exc)
        return []


def exact_keyframe(codec: str) -> Callable[[Packet[Any]], bool]:
    """Tells packets at which decoding can begin and every frame shown from then on is exact.

    In H.264 other keyframes than IDR pictures may begin a gradual refresh, and later frames may refer back past them.
    """
    if codec == "h264":
        return lambda packet: _is_key(packet) and any(nal & 31 == _H264_IDR for nal in _nal_bytes(packet))
    if codec == "hevc":
        return lambda packet: _is_key(packet) and any(nal >> 1 & 63 in _HEVC_IRAP for nal in _nal_bytes(packet))
    return _is_key


def begins_anew(codec: str, chunk: Chunk) -> bool:
    """Whether a decoder can go on with this chunk after any other without being emptied: it begins with an IDR picture,
    before which all that is held is shown, and after which nothing refers back.

    All of it has to be there, for what the decoder holds may be what those wait for who keep the reader waiting.
    """
    if chunk.head is None or not chunk.ended:
        return False
    if codec == "hevc":
        return any(nal >> 1 & 63 in _HEVC_IDR for nal in _nal_bytes(chunk.head))
    return codec == "h264" and any(nal & 31 == _H264_IDR for nal in _nal_bytes(chunk.head))


def is_hidden(codec: str, packet: Packet[Any]) -> bool:
    """Whether a packet's frame is there for others to refer to, and never shown: VP8 stores such in packets of their
    own (`show_frame`, RFC 6386, 9.1)."""
    return codec == "vp8" and not memoryview(packet)[0] & 16


def _is_key(packet: Packet[Any]) -> bool:
    return packet.is_keyframe and packet.pts is not None


def _nal_bytes(packet: Packet[Any]) -> Iterator[int]:
    """The first byte of each NAL unit in a packet with start codes (H.264 annex B)."""
    data = bytes(packet)
    at = data.find(b"\0\0\1")
    while 0 <= at < len(data) - 3:
        yield data[at + 3]
        at = data.find(b"\0\0\1", at + 3)


def _filter(stream: VideoStream) -> BitStreamFilterContext | None:
    """What makes the packets of a container understandable without it."""
    codec, extradata = stream.codec_context.name, stream.codec_context.extradata
    if codec in ("h264", "hevc") and extradata and extradata[0] == 1:
        # The first one puts the parameter sets before IDR pictures only, and H.264 may begin with another keyframe.
        return BitStreamFilterContext(f"{codec}_mp4toannexb,dump_extra", stream)
    return BitStreamFilterContext("dump_extra", stream) if codec in _REPEATED and extradata else None
