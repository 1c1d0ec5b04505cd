"""Counts frames that decoders leave out, and packets that can't be decoded: after damage FFmpeg reports no error."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from typing import TYPE_CHECKING

from segmentation.frames.live_frames import LiveFrames

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

TOLERATED = 0.01  # share of damaged frames, and of a copied stream's damaged packets, in a complete output
A_FRAME_EACH = ("h264", "hevc")  # codecs whose packets are a frame each, unless that is made of two fields

_SYNC = {"mp1": 0xFFE0, "mp2": 0xFFE0, "mp3": 0xFFE0, "ac3": 0x0B77, "eac3": 0x0B77}  # ISO/IEC 11172-3; ATSC A/52


def is_whole(packet: Packet[Stream]) -> bool:
    """Returns whether a packet to copy is none of damage, as far as is seen.

    Of sound in MPEG-TS and MPEG-PS all frames of a PES are marked, a dozen, where one or two of them are damaged.
    """
    if not packet.is_corrupt:
        return True
    context = packet.stream.codec_context
    codec = context.codec.canonical_name if packet.stream.type == "audio" and context else ""
    head = bytes(memoryview(packet)[:6])
    if len(head) < 6 or packet.stream.container.format.name not in ("mpegts", "mpeg"):
        return False
    if codec == "aac":  # ADTS, whose frames state their length, ISO/IEC 13818-7, 6.2
        length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
        return head[0] == 0xFF and head[1] & 0xF6 == 0xF0 and length == packet.size
    sync = int.from_bytes(head[:2], "big")
    return codec in _SYNC and sync & _SYNC[codec] == _SYNC[codec]


class AwaitedFrames:
    """Holds the times of packets, of codecs in `A_FRAME_EACH`, whose frames have not come out."""

    def __init__(self) -> None:
        self._times: set[int] = set()  # pts
        self._first: int | None = None  # of the frames: what should have come before belongs to a group cut off
        self._fields = False

    def feed(self, packet: Packet[VideoStream]) -> None:
        """Takes a packet that was given to the decoder."""
        if packet.pts is not None and not packet.is_discard:
            self._times.add(packet.pts)

    def take(self, frame: VideoFrame) -> None:
        """Takes a frame that has come out."""
        self._fields = self._fields or frame.interlaced_frame
        if frame.pts is not None:
            self._times.discard(frame.pts)
            self._first = frame.pts if self._first is None else self._first

    def give_up(self, before: int | None = None) -> int:
        """Forgets the frames that should have come `before` a time, or all of them. Returns how many there were."""
        gone = {time for time in self._times if before is None or time < before}
        self._times -= gone
        return 0 if self._fields else len(gone)

    @property
    def lost(self) -> int:
        """Returns how many frames have not come out, once all should have."""
        if self._fields or self._first is None:
            return 0
        return sum(time > self._first for time in self._times)


class Undecodable:
    """Counts the packets of one connection that can't be decoded, and remembers those that lack a part.

    Those before its first picture, and one that the connection's end has cut off, are no damage.
    """

    def __init__(self, frames: LiveFrames) -> None:
        self._frames = frames
        self._early: list[int | None] | None = []  # pts of the packets, until the first picture has come
        self._failed = 0  # packets after that; not yet counted
        self._incomplete: set[int | None] = set()  # pts of packets that lack a part

    def feed(self, packet: Packet[Stream]) -> None:
        """Takes the next packet, before it is decoded."""
        if self._failed:
            self._frames.lose(self._failed, damaged=True)
            self._failed = 0
        if self._early is not None:
            self._early.append(packet.pts)
        if packet.is_corrupt:
            self._incomplete.add(packet.pts)

    def failed(self, packets: int = 1) -> None:
        """Says that packets can't be decoded."""
        self._failed += packets if self._early is None else 0

    def came(self, pts: int | None) -> bool:
        """Says that a picture has come. What should have come before the first one is lost.

        Returns whether its packet lacks a part, which MPEG-TS alone shows, by the numbers of its own packets.
        """
        if self._early is not None:
            early, self._early = self._early, None
            if pts is None:  # of the first packet without a time, such as the first one of RTSP
                early = early[: early.index(None)] if None in early else []
            else:
                early = [one for one in early if one is None or one < pts]
            self._frames.lose(len(early))
        incomplete = pts in self._incomplete
        if self._incomplete and pts is not None:  # those of earlier times don't come any more
            self._incomplete = {one for one in self._incomplete if one is not None and one > pts}
        return incomplete

    def ended(self) -> None:
        """Says that the connection has ended."""
        self._frames.lose(len(self._early or ()) + self._failed)
