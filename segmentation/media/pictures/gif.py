"""GIF files, whose last frame is shown for as long as its packet says."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import io
from collections.abc import Sequence
from fractions import Fraction

from av.packet import Packet
from av.video.stream import VideoStream

from segmentation.media.muxer import Muxer
from segmentation.media.output_clock import shown_at
from segmentation.media.video_packet import base_of, pts_of

TICK = Fraction(1, 100)  # seconds, GIF's unit
LEAST = 2  # ticks; players show a frame of less for ten
_MOST = 0xFFFF  # ticks
_CONTROL = b"!\xf9\x04"  # begins a graphic control extension, GIF89a clause 23
_HEADER = 13  # bytes, with the logical screen descriptor


class GifMuxer(Muxer):
    """Writes a GIF. FFmpeg's muxer would give the last frame the delay of the one before."""

    _last: bytes | None = None  # the last packet
    _delay = LEAST  # of the last frame, in ticks

    def write(self, packets: Sequence[Packet[VideoStream]]) -> None:
        if packets:
            last, pts = packets[-1], pts_of(packets[-1])
            times = pts, pts + (last.duration or 0)
            begin, end = (shown_at(time, base_of(last), self.shift, TICK) for time in times)
            self._last, self._delay = bytes(last), min(max(LEAST, int((end - begin) / TICK)), _MOST)
        super().write(packets)

    def _commit(self, *, fragment: bool) -> None:
        if self._last is not None:
            with open(self._file.address, "r+b") as file:
                file.seek(_delay_at(self._last) - len(self._last) - 1, io.SEEK_END)  # a trailer of one byte follows
                file.write(self._delay.to_bytes(2, "little"))
        super()._commit(fragment=fragment)


def _delay_at(packet: bytes) -> int:
    """Returns where a frame's packet has its delay. The first one has the file's header and palette before."""
    begin = 0
    if packet.startswith(b"GIF"):
        begin = _HEADER + (3 << (packet[10] & 7) + 1 if packet[10] & 0x80 else 0)
    return packet.index(_CONTROL, begin) + len(_CONTROL) + 1
