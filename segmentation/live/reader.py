"""Reads live sources on threads of their own, which connect again after each loss."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from typing import Any
from weakref import WeakSet

import av
import av.error
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import InputError, Stopped
from segmentation.flow.backoff import Backoff
from segmentation.frames import VideoInfo
from segmentation.frames.live_frames import LiveFrame, LiveFrames
from segmentation.frames.live_sound import LiveSound, SoundPacket
from segmentation.frames.source import Source, is_url
from segmentation.live.address import connect, fault_of
from segmentation.live.arrival_clock import ArrivalClock
from segmentation.live.decoding import ConnectionDecoder, Pictures
from segmentation.media.bitstream.losses import Undecodable
from segmentation.media.bitstream.sei import light_messages, side_data
from segmentation.media.demux import demuxed
from segmentation.media.opening.open_input import video_stream
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_facts import stream_facts
from segmentation.media.opening.stream_properties import color_of, display_matrix, nominal_rate, shown_as
from segmentation.system.access import Access, check_size
from segmentation.system.cores import core_count
from segmentation.system.heap import limit_malloc_arenas, trim_heap

log = logging.getLogger(__name__)

TICK = Fraction(1, 90_000)  # seconds: the unit of a live source's pts, as of RTP
_POLL = 0.05  # seconds between checks whether the run is to end
_UNPLACED = 1000  # packets
_OVERLAP = 60.0  # seconds of video that may come a second time after a loss
_FIRST = 20.0  # seconds until the first frame: a stream that is joined late may have its next keyframe so far away


def probe_any(source: Source, access: Access) -> VideoInfo:
    """Describes the main video of a file, an address or a live source. Raises `InputError`.

    A live source is being read from then on, see `VideoInfo.live`; the caller closes it.
    """
    if source.is_live:
        return LiveReader(source, access).describe()
    try:
        return probe(source, access)
    except InputError as exc:
        if access.stop.is_set():  # a pipe has ended there, as far as FFmpeg sees
            raise Stopped(f"{source.text}: stopped before the first frame; nothing was written") from exc
        raise


class LiveReader:
    """Reads one source on a thread that always drains the connection, whatever the pipeline does with the frames."""

    def __init__(self, source: Source, access: Access) -> None:
        self._source, self._access = source, access
        self._name = source.label  # errors and logs of others get this one
        self._paced = source.is_paced
        self._segmented = is_url(source.address)  # HLS, where each segment may number its packets anew
        self._newest: float | None = None  # frame, in seconds of the source's clock, of a paced source
        self._frames = LiveFrames(access.max_delay)
        self._clock = ArrivalClock()
        self._unplaced: deque[SoundPacket] = deque(maxlen=_UNPLACED)  # on the source's clock, before the first picture
        self._info: VideoInfo | None = None  # of the first frame
        self._failure = ""
        self._described = threading.Event()
        self._thread = threading.Thread(target=self._work, name="segmentation-live", daemon=True)
        _readers.add(self)
        self._thread.start()

    def describe(self) -> VideoInfo:
        """Waits for the first frame; returns what it shows. Raises `InputError` if none comes, and `failure`."""
        try:
            while not self._described.wait(_POLL):
                if self._access.stop.is_set():
                    raise Stopped(f"{self._name}: stopped before the first frame; nothing was written")
            if self._info is None:
                raise self._frames.failure or InputError(f"{self._name}: {self._failure}")
            return self._info
        except BaseException:  # an interrupt too
            self._frames.close()
            raise

    def leave(self) -> float:
        """Takes no more frames. Returns how many seconds a silent source may keep the thread."""
        self._frames.close()
        return self._access.stall + 1

    def wait(self, seconds: float) -> None:
        """Waits until the thread has ended, or so long."""
        self._thread.join(seconds)

    def _work(self) -> None:
        """Reads one connection after the other, until the pipeline takes no more."""
        limit_malloc_arenas(core_count())  # a process with live sources runs for long
        frames, pauses = self._frames, self._access.reconnect
        backoff = Backoff(pauses or (0.0, 0.0), frames.closed)
        try:
            while True:
                fault = self._connection()
                trim_heap()  # else what a connection leaves behind adds up
                if frames.closed.is_set():
                    return
                if self._info is None:
                    self._failure = fault or "has no frame that can be decoded"
                    return
                if not fault:
                    frames.complete = True
                    return
                if pauses is None:
                    log.warning("%s: %s; the run ends (--reconnect never)", self._name, fault)
                    return
                level = logging.WARNING if frames.up else logging.INFO  # one line for each loss
                log.log(level, "%s: %s; trying to reconnect", self._name, fault)
                if frames.up:
                    backoff.restart()
                frames.up = False
                if not backoff.wait():
                    return
        except Exception as exc:  # a bug, which the run raises
            frames.failure = exc
        finally:
            frames.end()
            frames.released.set()
            self._described.set()

    def _connection(self) -> str:
        """Reads one connection until it is lost. Returns the reason; none if the source has come to its end."""
        self._clock.restart()
        self._unplaced.clear()
        stall, begin = self._access.stall, time.monotonic()
        with ExitStack() as exits:
            try:
                container = exits.enter_context(connect(self._source, self._access))
            except InputError as exc:
                return str(exc).removeprefix(f"{self._source.address}: ")
            except (av.error.FFmpegError, OSError, ValueError) as exc:
                # At its limit FFmpeg ends with whatever error comes from what it has read by then.
                return fault_of(exc if time.monotonic() - begin < stall else TimeoutError(), stall)
            try:
                return self._read(container)
            except InputError as exc:
                return str(exc).removeprefix(f"{self._name}: ")

    def _read(self, container: InputContainer) -> str:
        """Puts the frames of an open connection into the ring until it is lost. Returns the reason."""
        stream = video_stream(container, self._name, self._access)
        undecodable = Undecodable(self._frames)
        with closing(ConnectionDecoder(stream, self._frames, self._access, self._name, undecodable)) as decode:
            return self._read_with(decode, container, stream, undecodable)

    def _read_with(
        self, decode: ConnectionDecoder, container: InputContainer, stream: VideoStream, undecodable: Undecodable
    ) -> str:
        access, sound = self._access, self._sound(container)
        begin = last = time.monotonic()
        # FFmpeg reports no error at the end of a connection, of a file and of a playlist.
        fault = "" if self._paced else "the source has closed the connection"
        try:
            packets: Iterator[Packet[Stream]] = demuxed(container)
            for packet in packets:  # sound too: the picture may fall silent while sound goes on
                if self._frames.closed.is_set():
                    return ""
                # FFmpeg holds back the last packet before a silence, and hands it out at the limit instead of an error.
                silent = time.monotonic() - last >= access.stall
                if packet.stream_index == stream.index and packet.size:
                    last = last if silent else time.monotonic()
                    undecodable.feed(packet)
                    self._put(decode(packet), stream, undecodable, last)
                    if not silent:
                        last = time.monotonic()  # decoders may take seconds to begin, and paced frames wait
                elif packet.stream_index == sound:
                    self._hear(packet)
                if silent:
                    fault = fault_of(TimeoutError(), access.stall)
                    break
                if not self._frames.up and last - begin > _FIRST:
                    fault = f"sent no frame that can be decoded in {_FIRST:g} s"
                    break
        except (av.error.FFmpegError, OSError) as exc:
            # FFmpeg's own limit of RTSP ends with any error.
            fault = fault_of(exc if time.monotonic() - last < access.stall else TimeoutError(), access.stall)
        if not fault and time.monotonic() - last >= access.stall:  # at its limit FFmpeg's HLS ends likewise
            fault = fault_of(TimeoutError(), access.stall)
        self._put(decode.finish(), stream, undecodable, last)
        undecodable.ended()
        return fault

    def _sound(self, container: InputContainer) -> int | None:
        """Returns the number of the stream whose sound the outputs get; `None` if there is none."""
        stream = container.streams.best("audio")
        if stream is None:
            return None
        if stream.codec_context is None:
            log.warning("%s: its sound is left out: this FFmpeg does not know its codec", self._name)
            return None
        if self._info is None:  # the first connection
            self._frames.sound = LiveSound(_described(stream))
        known = self._frames.sound
        if known is None or _parameters(known.template) != _parameters(stream):
            log.warning("%s: its sound has begun or changed, and is left out", self._name)
            return None
        return stream.index

    def _hear(self, packet: Packet[Any]) -> None:
        """Hands packets of the sound on, once it is known when they are heard: the first come before the picture."""
        if packet.pts is not None and packet.time_base is not None:
            begin, length = (float(ticks * packet.time_base) for ticks in (packet.pts, packet.duration or 0))
            self._unplaced.append(SoundPacket(bytes(packet), begin, length))
        sound = self._frames.sound
        while self._unplaced and sound is not None:
            heard = self._clock.beside(self._unplaced[0].heard)
            if heard is None:
                return
            sound.put(replace(self._unplaced.popleft(), heard=heard))

    def _put(
        self,
        decoded: Pictures,
        stream: VideoStream,
        undecodable: Undecodable,
        arrival: float,
    ) -> None:
        """Puts decoded frames into the ring. The first of a connection shows that the source is up."""
        for frame in decoded:
            check_size(frame.width, frame.height, self._name, self._access.max_pixels)
            incomplete = undecodable.came(frame.pts)
            base = frame.time_base or stream.time_base
            seconds = None if frame.pts is None or base is None else float(frame.pts * base)
            if self._paced and self._came_before(seconds):
                continue
            if not self._frames.up:
                self._frames.up = True
                if self._info is not None:
                    self._frames.reconnects += 1
                    log.info("%s: is back", self._name)
            self._frames.damaged += frame.is_corrupt or (incomplete and not self._segmented)
            shown = self._clock.place(seconds, time.monotonic() if self._paced else arrival)
            if self._paced:
                arrival = self._wait_until(shown)
            self._frames.put(LiveFrame(frame, arrival, shown))
            if self._info is None:
                assert isinstance(frame, VideoFrame), "the pipeline has no decoder before it knows the source"
                self._info = self._describe(frame, stream)
                self._described.set()

    def _came_before(self, seconds: float | None) -> bool:
        """Returns whether a frame came with the connection before: HLS begins some segments before its newest."""
        if seconds is None:
            return False
        if self._newest is not None and not self._frames.up and 0 <= self._newest - seconds < _OVERLAP:
            return True
        self._newest = seconds
        return False

    def _wait_until(self, shown: float) -> float:
        """Waits until a frame is to be shown. Returns the time then: the frame arrives no sooner."""
        self._frames.closed.wait(max(0.0, shown - time.monotonic()))
        return time.monotonic()

    def _describe(self, frame: VideoFrame, stream: VideoStream) -> VideoInfo:
        matrix = display_matrix(frame)
        return VideoInfo(
            source=self._source,
            stream_index=stream.index,
            width=frame.width,
            height=frame.height,
            pix_fmt=frame.format.name,
            codec=stream.codec_context.name,
            color=color_of(frame),
            time_base=TICK,
            rate=nominal_rate(stream, self._name),
            start=Fraction(0),
            frames=0,
            frames_exact=False,
            end=None,
            sample_aspect_ratio=stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio or None,
            display_matrix=matrix,
            **shown_as(matrix, self._name),
            chroma_location=stream_facts(stream).chroma_location,
            light=light_messages(side_data(frame)),
            interlaced=frame.interlaced_frame,
            access=self._access,
            live=self._frames,
        )


_readers: WeakSet[LiveReader] = WeakSet()


@atexit.register
def _leave() -> None:
    """Waits for all readers: at its end Python would tear FFmpeg down below them, and crash now and then."""
    readers = tuple(_readers)
    deadline = time.monotonic() + max((reader.leave() for reader in readers), default=0.0)
    for reader in readers:
        reader.wait(max(0.0, deadline - time.monotonic()))


def _described(stream: Stream) -> Stream:
    """Returns a stream with the same codec that does not end with its connection."""
    return av.open(BytesIO(), "w", format="nut").add_stream_from_template(stream)


def _parameters(stream: Stream) -> tuple[object, ...]:
    assert isinstance(stream, AudioStream)
    codec = stream.codec_context
    return codec.name, codec.sample_rate, codec.channels, codec.extradata
