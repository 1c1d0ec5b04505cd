"""Which packets' frames have come out of FFmpeg's decoders: after damage these leave frames out without an error."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

A_FRAME_EACH = ("h264", "hevc")  # codecs whose packets are a frame each, unless that is made of two fields


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
