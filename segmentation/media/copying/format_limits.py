"""Packets that meet what an output's format can state, and lines where players play them otherwise."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import re
from fractions import Fraction

from av.audio.stream import AudioStream
from av.packet import Packet
from av.stream import Stream
from av.video.stream import VideoStream

from segmentation.errors import OutputError
from segmentation.media.containers import LIP_SYNC
from segmentation.media.copying.source_copy import adts_of
from segmentation.media.copying.tags import MP4, kind_of
from segmentation.media.output_stream import Target

log = logging.getLogger(__name__)

TOGETHER = ("matroska", "webm")  # formats that take packets of sound with equal dts
_LONGEST_MP4 = (1 << 31) - 1  # ticks from one packet to the next, in FFmpeg's movenc.c


class FormatLimits:
    """The limits of one output's format, with what its packets have stated so far."""

    def __init__(self, form: str, target: Target, source: str) -> None:
        """`form` is FFmpeg's name of the format, `source` the input's in messages."""
        self.wrong_sound = False  # the format moves sound, or plays it otherwise
        self._form, self._target, self._source = form, target, source
        self._last_ticks: dict[int, int] = {}  # dts by stream
        self._ticks: dict[int, Ticks] = {}  # by stream
        self._stated: dict[int, tuple[int, int]] = {}  # by stream, what its packets state, see `adts_of`
        self._heard: dict[int, Fraction] = {}  # seconds of sound by stream, in AVI, whose sound has no times

    def follow(self, packet: Packet[Stream], at: Fraction, copy: Stream) -> None:
        """Says once where a packet for the stream `copy`, at `at` seconds of the output, is played otherwise."""
        if self._form == "avi" and isinstance(packet.stream, AudioStream):
            self._follow_sound(packet, at, _length_in_avi(packet, packet.stream, copy.time_base or Fraction(0)))
        self._follow_header(packet, at)

    def _follow_sound(self, packet: Packet[Stream], at: Fraction, length: Fraction) -> None:
        """Says once where sound in AVI is heard early: it follows the sound before it, or begins at once."""
        heard = self._heard.get(packet.stream_index, Fraction(0))
        self._heard[packet.stream_index] = heard + length if length else at
        if length and at - heard > LIP_SYNC + length and not self.wrong_sound:
            self.wrong_sound = True
            text = "%s: from %.2f s on the sound is heard %.2f s early, since .avi states no times of it; name a .mkv"
            log.warning(text, self._target, float(at), float(at - heard))

    def _follow_header(self, packet: Packet[Stream], at: Fraction) -> None:
        """Says once where AAC changes its rate or channels, and the format states them once for all of the stream."""
        stated = None if self._form == "mpegts" else adts_of(packet)
        first = stated and self._stated.setdefault(packet.stream_index, stated)
        if stated != first and not self.wrong_sound:
            self.wrong_sound = True
            (rate, channels), (other, others) = first or (0, 0), stated or (0, 0)
            change = f"from {rate} Hz (channels: {channels}) to {other} Hz ({others})"
            text = "%s: at %.2f s its sound goes %s, and %s files state that once: it is played wrongly; name a .ts"
            log.warning(text, self._source, float(at), change, self._target.suffix)

    def meet(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        """Moves a packet to the next tick of the output if the one before has its tick, as FFmpeg does.

        Most formats refuse equal dts, of sound at least. Raises `OutputError` for a gap that an MP4 can't state.
        """
        form, base, stream, dts, pts = self._form, packet.time_base, packet.stream_index, packet.dts, packet.pts
        ticks = self._ticks.get(stream)
        if ticks is None or ticks.base != base:
            if not base or not packet.stream.time_base:
                return
            ticks = Ticks(base, packet.stream.time_base)
            if stream in self._last_ticks:  # the header is written, which settles the output's tick
                self._ticks[stream] = ticks
        if dts is None:
            return
        tick = ticks(dts)
        last = self._last_ticks.get(stream, tick - 1)
        if tick <= last and (form == "avi" or (packet.stream.type == "audio" and form not in TOGETHER)):
            pts = packet.pts = last + 1 if pts is None else max(last + 1, ticks(pts))
            tick = dts = packet.dts = last + 1
            packet.time_base = ticks.unit
            ticks = Ticks(ticks.unit, ticks.unit)
        if form in MP4:
            later = 0 if pts is None else pts - dts  # than it is decoded
            gap = max(tick - last, ticks(max(later, packet.duration or 0)))
            if gap > _LONGEST_MP4:
                hours, at = float(gap * ticks.unit / 3600), float(last * ticks.unit)
                what, target = f"its {kind_of(packet.stream)} has a gap of {hours:.1f} h at {at:.1f} s", self._target
                raise OutputError(f"{target}: {what}, longer than {target.suffix} files can state; name a .mkv")
        self._last_ticks[stream] = tick


def _length_in_avi(packet: Packet[Stream], stream: AudioStream, unit: Fraction) -> Fraction:
    """Returns for how many seconds a packet is heard in AVI, 0 if nothing says so. `unit` is the AVI's.

    What sources state is often rounded, to milliseconds in Matroska and FLV: some seconds make a tenth of one.
    """
    codec = stream.codec_context.name
    if codec.startswith("pcm_"):
        bits = re.search(r"\d+", codec)  # of G.711 eight
        return Fraction(packet.size * 8, (int(bits[0]) if bits else 8) * stream.codec_context.channels * stream.rate)
    stated = (packet.duration or 0) * packet.time_base
    return unit if abs(stated - unit) <= packet.time_base else stated


class Ticks:
    """Takes a time in ticks of `base`, and returns it in ticks of `unit`: to the nearest one, as `round` does.

    It makes no fraction, which takes longer than to write the packet.
    """

    def __init__(self, base: Fraction, unit: Fraction) -> None:
        self.base, self.unit = base, unit
        self._up = base.numerator * unit.denominator
        self._down = base.denominator * unit.numerator

    def __call__(self, time: int) -> int:
        whole, rest = divmod(time * self._up, self._down)
        return whole + (2 * rest > self._down or (2 * rest == self._down and whole % 2 == 1))
