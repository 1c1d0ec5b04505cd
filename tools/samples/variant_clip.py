"""Encodes and muxes the videos of make_variants.py by FFmpeg, through PyAV: on one thread, without random names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
from av.packet import Packet
from av.video.frame import VideoFrame

from segmentation.system.cores import kept_scheduling

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "astronaut.mp4"
RATE = 25
SOUND = 48_000  # samples a second
_ALONE = {"threads": "1", "flags": "+bitexact"}  # the number of threads changes what encoders put out
EXACT = {"fflags": "+bitexact"}  # else muxers write random identifiers
_PARAMETERS = {"libx264": "x264-params", "libx265": "x265-params"}
# Without x264's macroblock tree, whose results depend on where its buffers lie.
_QUIET = {"libx265": "log-level=none:pools=none:frame-threads=1", "libx264": "threads=1:mbtree=0"}


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A video to be encoded: the sample's first frames, or those from `first` on."""

    codec: str
    options: dict[str, str] = field(default_factory=dict)
    parameters: str = ""  # of x264 or x265
    size: tuple[int, int] = (320, 240)
    pix_fmt: str = "yuv420p"
    count: int = 60
    first: int = 0
    pts: Sequence[int] | None = None  # in ticks of 1/25 s
    gop: int = 12
    format: str | None = None
    muxing: dict[str, str] = field(default_factory=dict)
    clock: Fraction = Fraction(0)  # seconds at which the stream begins
    sound: bool = False

    @kept_scheduling()
    def write(self, path: Path) -> Path:
        """Makes the file."""
        with av.open(str(path), "w", format=self.format, container_options={**EXACT, **self.muxing}) as container:
            video: Any = container.add_stream(self.codec, rate=RATE, options=self._options())
            video.width, video.height, video.pix_fmt = *self.size, self.pix_fmt
            video.codec_context.time_base = Fraction(1, RATE)
            video.codec_context.gop_size = self.gop
            sound: Any = container.add_stream("aac", rate=SOUND, options=dict(_ALONE)) if self.sound else None
            packets = [*self._video(video), *(self._sound(sound) if sound is not None else ())]
            packets.sort(key=lambda packet: packet.dts * packet.time_base)
            for packet in packets:
                move(packet, self.clock)
                container.mux(packet)
        return path

    def _options(self) -> dict[str, str]:
        options = {**_ALONE, **self.options}
        if "flags" in self.options:
            options["flags"] = _ALONE["flags"] + self.options["flags"]
        if self.codec in _PARAMETERS:
            options["preset"] = "veryfast"
            options[_PARAMETERS[self.codec]] = ":".join(filter(None, (_QUIET[self.codec], self.parameters)))
        return options

    def _video(self, stream: Any) -> Iterable[Packet[Any]]:
        wanted = pictures(self.size, self.pix_fmt)[self.first : self.first + self.count]
        for number, frame in enumerate(wanted):
            frame.pts = number if self.pts is None else self.pts[number]
            frame.time_base = Fraction(1, RATE)
            frame.pict_type = 0  # the encoder decides, not what the sample's frame was
            yield from stream.encode(frame)
        yield from stream.encode()

    def _sound(self, stream: Any) -> Iterable[Packet[Any]]:
        for begin in range(0, self.count * SOUND // RATE, 1024):
            frame = av.AudioFrame("fltp", "stereo", 1024)
            for plane in frame.planes:
                plane.update(bytes(plane.buffer_size))
            frame.sample_rate, frame.pts, frame.time_base = SOUND, begin, Fraction(1, SOUND)
            yield from stream.encode(frame)
        yield from stream.encode()


@cache
def pictures(size: tuple[int, int], pix_fmt: str) -> list[VideoFrame]:
    """Returns the sample's frames in that size and format."""
    with av.open(str(SAMPLE)) as container:
        return [frame.reformat(*size, pix_fmt) for frame in container.decode(video=0)]


def move(packet: Packet[Any], seconds: Fraction) -> None:
    """Adds `seconds` to a packet's times."""
    assert packet.time_base is not None
    ticks = round(seconds / packet.time_base)
    if ticks:
        packet.pts = None if packet.pts is None else packet.pts + ticks
        packet.dts = None if packet.dts is None else packet.dts + ticks


def remuxed(
    source: Path,
    target: Path,
    change: Callable[[int, Packet[Any]], list[Packet[Any]]],
    *,
    filters: str | None = None,
    **muxing: str,
) -> Path:
    """Writes the packets that `change` makes of each (number, packet) of the video, after the bitstream `filters`."""
    with (
        av.open(str(source)) as given,
        av.open(str(target), "w", container_options={**EXACT, **muxing}) as container,
    ):
        stream = given.streams.video[0]
        copy = container.add_stream_from_template(stream)
        chain = av.BitStreamFilterContext(filters, stream) if filters else None
        packets = [packet for packet in given.demux(stream) if packet.size]
        if chain is not None:
            packets = [ready for packet in [*packets, None] for ready in chain.filter(packet)]
        for number, packet in enumerate(packets):
            for other in change(number, packet):
                other.stream = copy
                container.mux(other)
    return target


def joined(target: Path, *sources: Path) -> Path:
    """Writes the packets of all sources one after the other, as one stream whose time goes on."""
    with av.open(str(target), "w", container_options=dict(EXACT)) as container:
        copy: Any = None
        shown = decoded = Fraction(0)  # where the source before ends
        for source in sources:
            with av.open(str(source)) as given:
                stream = given.streams.video[0]
                packets: list[Any] = [packet for packet in given.demux(stream) if packet.size]
                first = min(packet.pts * packet.time_base for packet in packets)
                shift = max(shown - first, decoded - packets[0].dts * packets[0].time_base) if copy else Fraction(0)
                copy = copy or container.add_stream_from_template(stream)
                for packet in packets:
                    move(packet, shift)
                    shown = max(shown, packet.pts * packet.time_base + Fraction(1, RATE))
                    decoded = packet.dts * packet.time_base + Fraction(1, RATE)
                    packet.stream = copy
                    container.mux(packet)
    return target
