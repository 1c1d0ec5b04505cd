"""Compares the streams that an output has copied with those of the source, packet by packet."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from segmentation.media.bitstream.losses import is_whole
from segmentation.media.containers import EXACT, LIP_SYNC
from segmentation.media.opening.open_input import open_input
from segmentation.media.source_packets import SourcePackets

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

    from segmentation.frames import VideoInfo
    from segmentation.media.muxer import Muxer

ROUNDING = Fraction(1, 1000)  # seconds by which sound may move: Matroska's tick
_ADTS = 0xF0  # of the second byte of AAC's own headers, ISO/IEC 13818-7, 6.2: the rest of the sync word, and layer 0
_REGROUPED = "pcm_"  # codecs of which containers cut packets as they like


@dataclass(slots=True)
class _Content:
    """The packets of a stream: their number, what they hold, and when they begin and end in seconds."""

    codec: str
    count: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    begin: Fraction | None = None
    end: Fraction = Fraction(0)
    longest: Fraction = Fraction(0)

    def add(self, packet: Packet[Stream]) -> None:
        """Takes the next packet."""
        self.count += 1
        self.digest.update(_payload(self.codec, bytes(packet)))
        if packet.pts is not None:
            begin, length = packet.pts * packet.time_base, (packet.duration or 0) * packet.time_base
            self.begin = begin if self.begin is None else min(self.begin, begin)
            self.end, self.longest = max(self.end, begin + length), max(self.longest, length)


def faults(muxer: Muxer, info: VideoInfo, end: Fraction | None, late: Fraction) -> Iterator[str]:
    """Yields what is wrong with the copied sound of a finished file. Raises `InputError`.

    It was to be copied from `muxer.start` to `end`, in seconds on the source's clock. Its pictures are `late` seconds
    late as a whole, and so must it be.
    """
    copies = muxer.copied
    if not copies or muxer.cut_short:
        return
    with open_input(info.source, info.access) as source:
        given = _contents(source, copies, muxer.start, end)
    with open_input(str(muxer.place)) as output:
        found = _contents(output, {copy: copy for copy in copies.values()}, None, None)
    # Packets beside the end may be on its other side, and those of another pitch are others.
    moved = (end is not None and bool(muxer.retimed)) or muxer.shifts_pitch
    for stream, copy in copies.items():
        if stream not in given or not given[stream].count:
            continue
        if copy not in found:
            yield f"its stream {copy} is read as no sound"
        else:
            yield from _compare(stream, given[stream], found[copy], muxer, muxer.shift - late, exact=not moved)


def _compare(
    stream: int, given: _Content, found: _Content, muxer: Muxer, shift: Fraction, *, exact: bool
) -> Iterator[str]:
    """Yields the differences of one stream, whose times have become less by `shift` seconds."""
    keeps_times = muxer.target.suffix.lower() in EXACT and found.codec == given.codec
    apart = max(given.longest + ROUNDING, Fraction(0) if keeps_times else LIP_SYNC)
    if exact and found.codec == given.codec:
        if given.count != found.count and not given.codec.startswith(_REGROUPED):
            yield f"stream {stream} ({given.codec}) has {found.count} packets of the input's {given.count}"
        elif given.digest.digest() != found.digest.digest():
            yield f"stream {stream} ({given.codec}) holds other packets than the input's"
    for name, have, want in (("begins", found.begin, given.begin), ("ends", found.end, given.end)):
        if want is None:
            continue
        wanted = want - shift
        if have is None or abs(have - wanted) > apart:
            yield f"its sound {name} at {float(have or 0):.3f} s, not at {float(wanted):.3f} s"


def _contents(
    container: InputContainer, streams: Mapping[int, int], start: Fraction | None, end: Fraction | None
) -> dict[int, _Content]:
    """Returns the content of these streams of sound, of packets that end after `start` and begin before `end`."""
    wanted = [container.streams[stream] for stream in streams if stream < len(container.streams)]
    wanted = [stream for stream in wanted if stream.type == "audio"]
    contents = {stream.index: _Content(stream.codec_context.name) for stream in wanted}
    for packet in SourcePackets(container, *wanted) if wanted else ():
        if not packet.size or not is_whole(packet):
            continue
        ticks = packet.dts if packet.pts is None else packet.pts
        if ticks is not None:
            begin, length = ticks * packet.time_base, (packet.duration or 0) * packet.time_base
            if (start is not None and begin + length <= start) or (end is not None and begin >= end):
                continue
        contents[packet.stream_index].add(packet)
    return contents


def _payload(codec: str, data: bytes) -> bytes:
    """Returns a packet without the header that AAC has in some containers."""
    if codec == "aac" and len(data) > 9 and data[0] == 255 and data[1] & 0xF6 == _ADTS:
        return data[7 if data[1] & 1 else 9 :]
    return data
