"""Cuts a video's packets into chunks that decoders can decode at the same time, independently of each other.

A chunk begins at a keyframe from which decoding gives exact pictures. In an open group of pictures, frames after the
keyframe in the file are shown before the keyframe, and may refer to earlier frames. The earlier chunk gets these frames
too, together with the keyframe. Limits in time then decide which chunk a decoded frame belongs to.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import av.error
from av.video.stream import VideoStream

from segmentation.errors import InputError, one_line
from segmentation.frames import VideoInfo
from segmentation.media.bitstream.headers import Shown, begins_stream, may_interlace, pictures, refreshes_gradually
from segmentation.media.bitstream.start_codes import PacketFilter
from segmentation.media.bitstream.whole_packets import whole_packets
from segmentation.media.demux import demuxed
from segmentation.media.encryption import refuse_encrypted
from segmentation.media.opening.open_input import open_input
from segmentation.media.source_packets import SourcePackets, leads_there
from segmentation.media.video_packet import PacketT, Sample, head

if TYPE_CHECKING:
    from segmentation.media.video_packet import ChunkPacket, VideoPacket

log = logging.getLogger(__name__)

_MOST_WAITING = 600  # packets of one chunk that wait for its decoder: the reader then waits for the decoder
_POLL = 0.05  # seconds between looks at whether decoding has been stopped
_IDR = {"h264": {5}, "hevc": {19, 20}}  # nal_unit_type, H.264 and H.265 tables 7-1
_HEVC_IRAP, _HEVC_RASL = set(range(16, 24)), {8, 9}

BatchT = TypeVar("BatchT")


class StreamChanges(InputError):
    """A stream goes on with fields or in another size, which NVDEC's frames don't follow."""


class Chunk(Generic[BatchT]):
    """Packets for one decoder, which may take them while the reader still adds some, and the batches decoded from them.

    Frames with a pts of `first` or more and less than `until` belong to the chunk (`None`: no such limit).
    """

    def __init__(self, first: int | None, stop: threading.Event) -> None:
        """Makes an empty chunk. `stop` ends all waiting, because decoding has been stopped."""
        self.first = first
        self.until: int | None = None
        self.joined = False  # whether time has stepped back before the chunk: pts then don't tell when a frame is shown
        self.passed: int | None = None  # the pts of the last frame that was left out before the wanted stretch
        self.head: ChunkPacket | None = None  # the first packet
        self.length = 0  # packets so far
        self.ended = False  # whether all packets have been added
        self.begun = 0  # batches that the decoder has begun to fill
        self.decoded: deque[BatchT] = deque()  # full batches that no thread has taken yet
        self.done = False  # whether the decoder has added its last batch
        self.lost = 0  # frames that are missing after the last one that was decoded
        self._waiting: list[ChunkPacket] = []  # that the decoder has not taken
        self._wanted = 1  # packets for which the decoder waits
        self._changed = threading.Condition()
        self._stop = stop

    def put(self, packet: ChunkPacket | None) -> None:
        """Adds a packet, or ends the chunk with `None`. Waits while many packets are there, unless stopped."""
        if self.head is None:
            self.head = packet
        with self._changed:
            if packet is None:
                self.ended = True
            else:
                self.length += 1
                self._waiting.append(packet)
            if self._enough():
                self._changed.notify_all()
            while len(self._waiting) >= _MOST_WAITING and not self._stop.is_set():
                self._changed.wait(_POLL)

    def take(self, least: int) -> list[ChunkPacket]:
        """Returns the packets that are there: `least` or more, fewer at the end, none after it or when stopped."""
        with self._changed:
            self._wanted = least
            while not (self._enough() or self._stop.is_set()):
                self._changed.wait(_POLL)
            taken, self._waiting = ([] if self._stop.is_set() else self._waiting), []
            self._changed.notify_all()
            return taken

    def packets(self) -> Iterator[ChunkPacket]:
        """Yields the packets as they are added. Ends early when stopped."""
        while taken := self.take(1):
            for packet in taken:
                if self._stop.is_set():
                    return
                yield packet

    def _enough(self) -> bool:
        return self.ended or len(self._waiting) >= self._wanted

    def shows(self, pts: int | None) -> bool:
        """Returns whether a frame with this pts belongs to the chunk."""
        if pts is None:
            return True
        return (self.first is None or pts >= self.first) and (self.until is None or pts < self.until)


def chunks(
    packets: Iterable[ChunkPacket], cuttable: Callable[[ChunkPacket], bool], least: int, stop: threading.Event
) -> Iterator[Chunk[BatchT]]:
    """Cuts packets at keyframes into chunks of `least` packets or more.

    Yields a chunk with its first packet, and fills the chunk while the caller asks for the next one.

    Time steps back at the seam of joined recordings, or between entries of an edit list. There a chunk ends whatever
    its length, and neither of the two chunks has a limit at the seam, because their frames' pts overlap. From
    the first packet without a pts on, seams are the only cuts.
    """
    chunk: Chunk[BatchT] | None = None
    before: Chunk[BatchT] | None = None  # the chunk that ends where this one begins, while it may still get frames
    latest: int | None = None  # the highest pts since time stepped back
    seam = joined = False  # whether time has stepped back: since the last cut, and at all
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


def _end(chunk: Chunk[BatchT] | None) -> None:
    if chunk is not None:
        chunk.put(None)


def whole(packets: Iterable[ChunkPacket], stop: threading.Event) -> Iterator[Chunk[BatchT]]:
    """Yields all packets as one chunk, whatever their times."""
    chunk: Chunk[BatchT] = Chunk(None, stop)
    yield chunk
    for packet in packets:
        chunk.put(packet)
    chunk.put(None)


def read(
    info: VideoInfo,
    first: int | None,
    cut_short: Callable[[], None] = lambda: None,
    damaged: Callable[[], None] = lambda: None,
    opened: Callable[[SourcePackets], None] = lambda source: None,
    keyframe: Callable[[bytes], None] = lambda data: None,
) -> Iterator[VideoPacket]:
    """Yields the video's packets from the keyframe before the pts `first` on, for a decoder without a container.

    Yields all packets if `first` is `None`, or if a seek does not lead to such a keyframe. Calls `cut_short` if
    reading ends with an error, `damaged` for each packet that is left out because it is, `opened` before the first
    packet, and `keyframe` with the data of each keyframe that differs. Raises `StreamChanges` where a stream goes on in
    another size or with fields.
    """
    sought = first if first is not None and _leads_before(info, first) else None
    with open_input(info.path, info.access) as container:
        stream = container.streams[info.stream_index]
        assert isinstance(stream, VideoStream)
        if sought is not None:
            container.seek(sought, stream=stream)
        filtered = PacketFilter(stream, info.path)
        source: Any = SourcePackets(container, stream)
        opened(source)

        def ready() -> Iterator[VideoPacket]:
            for packet in whole_packets(source, damaged):
                refuse_encrypted(packet, info.path)
                made = filtered(packet)
                if not made:
                    damaged()
                yield from made

        try:
            yield from decodable(info, ready(), keyframe)
        except av.error.FFmpegError as exc:
            log.warning("%s: reading ended early: %s", info.path, one_line(exc))
            cut_short()


def decodable(info: VideoInfo, packets: Iterable[PacketT], keyframe: Callable[[bytes], None]) -> Iterator[PacketT]:
    """Yields packets with start codes from the first one on at which decoding can begin. See `read`."""
    first_shown: set[Shown] = set()  # pictures that the first headers state
    begun = False  # before, there is nothing to decode, and a session may still have the parameters of another file
    keyframes, before = 0, b""
    for packet in packets:
        begun = begun or begins_stream(info.codec, head(packet))
        keyframes += begun and packet.is_keyframe
        if not begun or (keyframes == 1 and needs_earlier_frames(info.codec, packet)):
            continue
        if packet.is_keyframe or info.codec == "vp9":
            stated = head(packet)
            if packet.is_keyframe and stated != before:
                keyframe(stated)
            if stated != before:
                _check_headers(info, stated, first_shown)
            before = stated
        yield packet


def needs_earlier_frames(codec: str, packet: ChunkPacket) -> bool:
    """Returns whether an HEVC picture refers to some before the keyframe that precedes it (RASL).

    At the beginning of a stream no decoder shows those. NVDEC would leave out the keyframe too.
    """
    return codec == "hevc" and not _HEVC_RASL.isdisjoint(_unit_kinds(codec, packet))


def _check_headers(info: VideoInfo, data: bytes, first: set[Shown]) -> None:
    """Raises `StreamChanges` for a packet with other pictures than the `first` ones, which it adds, or with fields.

    NVDEC's library does not always fail: a session brings smaller pictures to the size of its first one.
    """
    if not info.interlaced and may_interlace(info.codec, data):
        raise StreamChanges(
            f"{info.path}: becomes interlaced on the way, and NVDEC would mix its fields; use --decode pyav"
        )
    found = pictures(info.codec, data)
    if not first:
        first |= found
    if not found <= first:
        raise size_changes(info)


def size_changes(info: VideoInfo) -> StreamChanges:
    """Returns the error of a stream that goes on in another size."""
    size = f"{info.width}x{info.height}"
    return StreamChanges(
        f"{info.path}: the picture's size changes from {size} on the way, which NVDEC's frames don't follow; use "
        "--decode pyav"
    )


def _leads_before(info: VideoInfo, first: int) -> bool:
    """Returns whether a seek to the pts `first` leads to a keyframe that is shown then or earlier, and is exact.

    Opens the container anew, because some that can't seek can't go back to their beginning either.
    """
    if info.decoding_times or not leads_there(info):
        return False
    with open_input(info.path, info.access) as container:
        stream = container.streams[info.stream_index]
        assert isinstance(stream, VideoStream)
        try:
            container.seek(first, stream=stream)
            found = next((p for p in demuxed(container, stream) if p.pts is not None), None)
        except av.error.FFmpegError as exc:
            log.info("%s: can't seek: %s", info.path, exc)
            return False
        if found is None or found.pts is None or found.is_discard:  # hidden, of another entry of the edit list
            return False
        if not (found.is_keyframe and found.pts <= first):
            return False
        ready = PacketFilter(stream, info.path)(found)
        return not any(refreshes_gradually(info.codec, bytes(packet)) for packet in ready)


def exact_keyframe(codec: str) -> Callable[[ChunkPacket], bool]:
    """Returns a test for packets at which decoding can begin and every frame shown from then on is exact.

    In H.264, keyframes other than IDR pictures may begin a gradual refresh, and later frames may refer to earlier ones.
    """
    if codec == "h264":
        return lambda packet: _is_key(packet) and _is_idr(codec, packet)
    if codec == "hevc":
        return lambda packet: _is_key(packet) and not _HEVC_IRAP.isdisjoint(_unit_kinds(codec, packet))
    return _is_key


def begins_anew(codec: str, chunk: Chunk[BatchT]) -> bool:
    """Returns whether a decoder can go on with this chunk after any other one without being emptied.

    That holds for a chunk that begins with an IDR picture: the decoder puts out all earlier frames before that picture,
    and no later frame refers to them. All packets must be there already: else the decoder would wait for the reader
    while it holds frames that other decoders, and so the reader, wait for.
    """
    return chunk.head is not None and chunk.ended and _is_idr(codec, chunk.head)


def is_hidden(codec: str, packet: ChunkPacket) -> bool:
    """Returns whether a packet's frame is never shown and only serves as a reference for others.

    VP8 and VP9 have such frames in packets of their own (`show_frame`: RFC 6386, 9.1; VP9 bitstream, 6.2 and annex B).
    """
    if codec not in ("vp8", "vp9"):
        return False
    data = bytes(packet)
    if codec == "vp8":
        return not data[0] & 16
    if data[-1] & 0xE0 == 0xC0:  # a superframe ends with a frame that is shown
        return False
    shift = 0 if data[0] & 0x30 == 0x30 else 1  # profile 3 has one more bit before
    show_existing_frame, show_frame = data[0] >> shift + 2 & 1, data[0] >> shift & 1
    return not (show_existing_frame or show_frame)


def _is_key(packet: ChunkPacket) -> bool:
    return packet.is_keyframe and packet.pts is not None


def _is_idr(codec: str, packet: ChunkPacket) -> bool:
    return codec in _IDR and not _IDR[codec].isdisjoint(_unit_kinds(codec, packet))


def _unit_kinds(codec: str, packet: ChunkPacket) -> Set[int]:
    return packet.unit_kinds if isinstance(packet, Sample) else unit_kinds(codec, bytes(packet))


def unit_kinds(codec: str, data: bytes) -> Set[int]:
    """Returns the nal_unit_type of each NAL unit between start codes."""
    found = set()
    at = data.find(b"\0\0\1")
    while 0 <= at < len(data) - 3:
        found.add(data[at + 3] & 31 if codec == "h264" else data[at + 3] >> 1 & 63)
        at = data.find(b"\0\0\1", at + 3)
    return found
