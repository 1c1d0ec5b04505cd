"""Reads a source's other streams for an output, which copies their packets as they are."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import av.error

from segmentation.errors import one_line
from segmentation.frames import VideoInfo
from segmentation.media.bitstream.losses import TOLERATED, is_whole
from segmentation.media.source_packets import SourcePackets, leads_there

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

log = logging.getLogger(__name__)

_ADTS = 7  # bytes of the header of AAC in MPEG-TS
_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)  # Hz


class SourceCopy:
    """Iterates over the packets of some streams of a source, but for damaged ones, each with its dts in seconds.

    The dts rise in each stream.
    """

    def __init__(
        self,
        source: InputContainer,
        streams: Sequence[Stream],
        info: VideoInfo,
        *,
        start: Fraction | None,
        end: Fraction | None,
        together: bool,
    ) -> None:
        """Packets in [`start`, `end`) are wanted, in seconds on the source's clock.

        `together`: the output takes packets of sound with equal dts, as Matroska does, whose ticks are coarse.
        """
        self._source, self._info = source, info
        self._start, self._end, self._together = start, end, together
        self._last: dict[int, int] = {}  # dts by stream
        self._behind: dict[int, int] = {}  # the end of the last packet by stream, likewise in ticks
        self._moved: Counter[int] = Counter()  # packets by stream whose dts did not rise
        self.left_out: Counter[int] = Counter()  # packets by stream that are damaged
        self._whole: Counter[int] = Counter()  # the others, likewise
        self.cut_short = False  # reading ended with an error
        # A seek would lose subtitles that begin before `start` and are shown after it.
        if (
            start is not None
            and not info.source.is_read_once
            and not any(s.type == "subtitle" for s in streams)
            and leads_there(info)
        ):
            self._seek(start)
        self.packets = SourcePackets(source, *streams)

    def __iter__(self) -> Iterator[tuple[Fraction, Packet[Stream]]]:
        """Yields the packets; those of the main video, if that is one of the streams, as they are."""
        try:
            for packet in self.packets:
                if packet.stream_index == self._info.stream_index:
                    if packet.dts is not None:
                        yield packet.dts * packet.time_base, packet
                elif packet.size and self._is_whole(packet):
                    dts = self._fit(packet, self._settle(packet))
                    if dts is not None:
                        yield dts * packet.time_base, packet
        except av.error.FFmpegError as exc:
            self.cut_short = True
            log.warning("%s: its other streams can't be read to the end (%s)", self._info.path, one_line(exc))
        if damaged := self.left_out.total():
            log.warning("%s: damaged packets of its other streams are left out: %d", self._info.path, damaged)

    @property
    def is_lossy(self) -> bool:
        """Whether more packets of a stream are damaged than a complete output may lack."""
        return any(lost > TOLERATED * (lost + self._whole[stream]) for stream, lost in self.left_out.items())

    @property
    def retimed(self) -> Counter[int]:
        """Packets by stream whose time did not fit those before and after."""
        return self._moved + Counter({stream: self.packets.retimed(stream) for stream in self._last})

    def _is_whole(self, packet: Packet[Stream]) -> bool:
        whole = is_whole(packet)
        (self._whole if whole else self.left_out)[packet.stream_index] += 1
        return whole

    def _settle(self, packet: Packet[Stream]) -> int:
        """Sets the dts of a packet without one, or with one that does not rise: the next that does, as FFmpeg does.

        Returns the dts.
        """
        stream = packet.stream_index
        stated = packet.pts if packet.dts is None else packet.dts
        if stated is None:
            begin = round(self._info.start / packet.time_base)
            stated = packet.pts = self._behind.get(stream, begin)
            self._moved[stream] += 1
        # Subtitles that begin together have equal dts.
        apart = packet.stream.type == "audio" and not self._together
        least = self._last.get(stream, stated - apart) + apart
        packet.dts = dts = max(stated, least)
        if stated < least:
            packet.pts = dts if packet.pts is None else max(packet.pts, dts)
            self._moved[stream] += not packet.is_discard  # which an edit list has the decoder read before others
        self._last[stream], self._behind[stream] = dts, dts + (packet.duration or 0)
        return dts

    def _fit(self, packet: Packet[Stream], dts: int) -> int | None:
        """Returns the dts of a packet that is wanted. One of subtitles that are shown already is cut to begin at
        `start`."""
        start, unit = self._start, packet.time_base
        begin = (dts if packet.pts is None else packet.pts) * unit
        if start is not None and begin + (packet.duration or 0) * unit <= start:
            return None
        if self._end is not None and begin >= self._end:
            return None
        if start is not None and begin < start and packet.stream.type == "subtitle":
            packet.dts = packet.pts = dts = round(start / unit)
            packet.duration = (packet.duration or 0) - round((start - begin) / unit)
        return dts

    def _seek(self, seconds: Fraction) -> None:
        """Seeks to a keyframe before `seconds`, where the container can be sought."""
        try:
            self._source.seek(int(seconds * 1_000_000))
        except av.error.FFmpegError:
            log.debug("%s: can't seek; reading from the beginning", self._source.name)


def adts_of(packet: Packet[Stream]) -> tuple[int, int] | None:
    """Returns the rate, in Hz, and the number of channels that a packet of AAC states itself, ISO/IEC 13818-7, 6.2.

    `None` for packets without such a header.
    """
    if packet.stream.type != "audio" or packet.stream.codec_context.name != "aac" or packet.size < _ADTS:
        return None
    head = bytes(memoryview(packet)[:_ADTS])
    if head[0] != 0xFF or head[1] & 0xF6 != 0xF0 or head[2] >> 2 & 15 >= len(_RATES):
        return None
    configuration = (head[2] & 1) << 2 | head[3] >> 6
    return _RATES[head[2] >> 2 & 15], 8 if configuration == 7 else configuration
