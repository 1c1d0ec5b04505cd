"""The packets of an input as all of its readers see them: on one clock, see `clock.py`."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import av.error
from av.stream import Disposition
from av.video.frame import VideoFrame

from segmentation.frames.source import Source
from segmentation.media.clock import Clock
from segmentation.media.containers import may_step
from segmentation.media.demux import demuxed, late_streams
from segmentation.media.mp4_boxes import track_length
from segmentation.media.opening.open_input import open_input

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream
    from av.video.stream import VideoStream

    from segmentation.frames import VideoInfo

log = logging.getLogger(__name__)

_MPEG_WRAPS = Fraction(1 << 33, 90_000)  # seconds: 33 bits at 90 kHz, ISO/IEC 13818-1, 2.4.3.7
MOST_REORDERED = 17  # packets: a picture waits for 16 at most (H.264, A.3.1), and a flush ends the stream


class SourcePackets:
    """Iterates over the packets of some streams of an open input, from where it is on.

    All streams are read where the clock may step, whichever are wanted: each of them may show that.
    """

    def __init__(self, container: InputContainer, *streams: Stream) -> None:
        self._container, self._streams = container, streams
        self._clock: Clock[Packet[Stream]] | None = None
        self.late: dict[int, str] = {}  # streams that have begun on the way, and are not read, see `late_streams`
        self._places: dict[int, tuple[int, int]] = {}  # of the first and last packet of each video, in bytes
        form = container.format
        bases = {stream.index: stream.time_base for stream in container.streams if stream.time_base}
        self._read = streams  # these are read
        if may_step(form):
            self._read = ()  # all
        steady = [s.index for s in self._read or container.streams if s.index in bases and _goes_on(s)]
        if steady and "mp4" not in form.name:  # whose tables have no room for wrong times
            wraps = _MPEG_WRAPS if form.name in ("mpegts", "mpeg") else None
            self._clock = Clock(bases, steady, steps=may_step(form), wraps=wraps)

    def __iter__(self) -> Iterator[Packet[Stream]]:
        try:
            yield from self._packets()
        finally:
            if may_step(self._container.format):  # others state their streams at their beginning
                with suppress(AssertionError):  # PyAV's: of an iteration that was left, the container is closed by now
                    self.late = {**self.late, **late_streams(self._container)}

    def _packets(self) -> Iterator[Packet[Stream]]:
        if self._clock is None:
            packets = demuxed(self._container, *self._streams)
            alone = len(self._streams) == 1 and "mp4" in self._container.format.name
            yield from _with_true_lengths(packets, self._end(self._streams[0])) if alone else packets
            return
        wanted = {stream.index for stream in self._streams}
        for packet in self._clock(demuxed(self._container, *self._read)):
            stream = packet.stream
            if packet.size and stream.type == "video" and packet.pos is not None:
                begin, _ = self._places.get(stream.index, (packet.pos, packet.pos))
                self._places[stream.index] = begin, packet.pos
            if packet.stream_index in wanted:
                yield packet
        self.late = self._following()

    def _following(self) -> dict[int, str]:
        """Returns the videos, likewise, that begin in the file where those that are read have ended."""
        ends = [self._places[stream.index][1] for stream in self._streams if stream.index in self._places]
        begins = {stream: begin for stream, (begin, _) in self._places.items() if ends and begin > max(ends)}
        streams = self._container.streams
        contexts = {stream: streams[stream].codec_context for stream in begins}
        return {
            stream: f"video {context.codec.canonical_name if context else 'unknown'}"
            for stream, context in contexts.items()
        }

    def _end(self, stream: Stream) -> int | None:
        """Returns the tick at which an MP4's track ends by its header, or `None`."""
        name = self._container.name
        length = track_length(Source.parse(name), stream.id) if os.path.isfile(name) else None
        return None if length is None or not stream.time_base else round(length / stream.time_base)

    @property
    def stepped(self) -> bool:
        """Whether the clock has stepped, or packets have stated wrong times: their own times lead nowhere."""
        return self._clock is not None and self._clock.changed

    def begin(self, stream: Stream) -> Fraction | None:
        """Returns when the first packet of a stream of pictures or sound is shown, in seconds, if it has come."""
        return None if self._clock is None else self._clock.begin(stream.index)

    @property
    def steps(self) -> Sequence[tuple[Fraction, Fraction]]:
        """When the clock has stepped, and by how much, in seconds."""
        return () if self._clock is None else self._clock.steps

    def retimed(self, stream: int) -> int:
        """Returns how many packets of a stream have got a time between their neighbors', as theirs was wrong."""
        return 0 if self._clock is None else self._clock.retimed[stream]


def decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Yields the frames of a stream, from where the input is on. Raises FFmpeg's errors."""
    for packet in SourcePackets(container, stream):
        for frame in packet.decode():
            assert isinstance(frame, VideoFrame)
            yield frame


def _with_true_lengths(packets: Iterator[Packet[Stream]], end: int | None) -> Iterator[Packet[Stream]]:
    """Yields the packets of one stream of an MP4, each shown until the next one at most, and the last up to `end`.

    MP4 states how far a packet is from the next one in decoding order, so a picture may seem to last until long after
    others, or the end. See ISO/IEC 14496-12, 8.6.1.2. `end` is in ticks. Without one, the picture that is shown last
    lasts as long as the last packet in the file.
    """
    held: deque[Packet[Stream]] = deque()
    shown: deque[int] = deque(maxlen=2 * MOST_REORDERED)  # pts of packets in `held` and before
    error = None
    try:
        for packet in packets:
            held.append(packet)
            if _is_shown(packet):
                shown.append(packet.pts or 0)
            if len(held) > MOST_REORDERED:
                yield _until_next(held.popleft(), shown)
    except av.error.FFmpegError as exc:  # the packets before it are whole
        error = exc
    timed = [packet for packet in held if packet.size and packet.pts is not None]
    if timed:
        last = max(timed, key=lambda packet: packet.pts or 0)
        length = timed[-1].duration if end is None else end - (last.pts or 0)
        if 0 < (length or 0) < (last.duration or 0):
            last.duration = length
    yield from (_until_next(packet, shown) for packet in held)
    if error is not None:
        raise error


def _is_shown(packet: Packet[Stream]) -> bool:
    return packet.size > 0 and packet.pts is not None and not packet.is_discard


def _until_next(packet: Packet[Stream], shown: Iterable[int]) -> Packet[Stream]:
    """Returns a packet whose picture lasts no longer than until the next of those that are shown."""
    if _is_shown(packet) and packet.duration:
        begin = packet.pts or 0
        packet.duration = min([packet.duration, *(pts - begin for pts in shown if pts > begin)])
    return packet


def _goes_on(stream: Stream) -> bool:
    """Returns whether a stream's packets follow each other without a break, as pictures and sound do."""
    return stream.type == "audio" or (stream.type == "video" and not stream.disposition & Disposition.attached_pic)


def leads_there(info: VideoInfo) -> bool:
    """Returns whether a time leads to its place in the input, if that can be sought.

    A file whose clock may step is read to its end for that, once.
    """
    if not info.may_step:
        return True
    if info.source.stream is not None:
        return False
    state = os.stat(info.path)
    return _goes_straight(info.path, info.stream_index, state.st_size, state.st_mtime_ns)


def late_in(info: VideoInfo) -> dict[int, str]:
    """Returns the streams that begin on the way in a file, see `late_streams`, which is read to its end for that."""
    with open_input(info.source, info.access) as container:
        packets = SourcePackets(container, container.streams[info.stream_index])
        with suppress(av.error.FFmpegError):
            for _ in packets:
                pass
    return packets.late


@lru_cache(maxsize=64)
def _goes_straight(path: str, stream: int, size: int, changed: int) -> bool:
    """Returns whether the clock of a file, as it is now, does not step."""
    with open_input(path) as container:
        packets = SourcePackets(container, container.streams[stream])
        try:
            for _ in packets:
                if packets.stepped:
                    log.info("%s: its clock steps, so the file is read from its beginning", path)
                    return False
        except av.error.FFmpegError:
            log.debug("%s: can't be read to its end", path)
    return True
