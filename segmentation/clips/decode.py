"""Decodes chosen frames of a video, exactly, from the nearest keyframe before them."""

from __future__ import annotations  # PyAV's types are generic for type checkers only

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.clips.index import FrameIndex, VideoIndex
from segmentation.errors import InputError, one_line
from segmentation.media.bitstream.start_codes import PacketFilter
from segmentation.media.demux import demuxed
from segmentation.media.opening.open_input import decoder_options, open_input
from segmentation.stages.decode.chunks import is_hidden, needs_earlier_frames
from segmentation.stages.masks.saved import intact
from segmentation.system.access import Access

if TYPE_CHECKING:
    from segmentation.media.video_packet import ChunkPacket, VideoPacket


def decoded(index: FrameIndex, numbers: Sequence[int], *, checksums: bool = False) -> Iterator[tuple[int, VideoFrame]]:
    """Yields the frames of these rising `numbers`, each with its number, as they are stored.

    Raises `InputError` if one of them does not come out, or FFmpeg finds damage on the way from the keyframe. With
    `checksums`, of FFV1 as `--save-masks` writes it, no damage goes unseen; in other codecs FFmpeg conceals some.
    """
    wanted = iter(numbers)
    number = next(wanted, None)
    try:
        with opened(index, numbers[0]) as (stream, packets):
            for found, frame in _timed(stream, packets, index, numbers, checksums) if index.timed else _counted(stream):
                if found != number:
                    continue
                if frame.is_corrupt:
                    break
                yield number, frame
                number = next(wanted, None)
                if number is None:
                    return
    except av.error.FFmpegError as exc:
        raise InputError(f"{index.path}: frame {number} can't be decoded ({one_line(exc)})") from exc
    raise InputError(f"{index.path}: frame {number} can't be decoded")


def _counted(stream: VideoStream) -> Iterator[tuple[int, VideoFrame]]:
    return enumerate(stream.container.decode(stream))  # type: ignore[attr-defined]  # an input's container


def _timed(
    stream: VideoStream,
    packets: Iterator[Packet[VideoStream]],
    index: FrameIndex,
    numbers: Sequence[int],
    checksums: bool,
) -> Iterator[tuple[int, VideoFrame]]:
    """Yields the frames of `numbers`, by their times, from packets that begin at the keyframe before them."""
    context = stream.codec_context
    numbered = {int(index.pts[number]): number for number in numbers}

    def named(frames: list[VideoFrame]) -> Iterator[tuple[int, VideoFrame]]:
        return ((numbered[frame.pts], frame) for frame in frames if frame.pts in numbered)

    for packet in needed(packets, index, numbers, context.name):
        if checksums and packet.pts in numbered and not intact(bytes(packet)):
            return
        yield from named(context.decode(packet))
    yield from named(context.decode(None))


def needed(
    packets: Iterator[Packet[VideoStream]], index: FrameIndex, numbers: Sequence[int], codec: str
) -> Iterator[Packet[VideoStream]]:
    """Yields those of the packets, from the keyframe before the frames of `numbers` on, that a decoder needs for them.

    Pictures that are not wanted, and to which no other refers, are left out, and so is all behind the last packet that
    is wanted: a decoder puts out its frames when it is emptied.
    """
    left, spare = set(index.pts[list(numbers)].tolist()), index.spares(numbers)
    for packet in packets:
        pts = packet.pts
        if pts in left and not packet.is_discard and not is_hidden(codec, packet):
            left.discard(pts)
        elif pts in spare:
            continue
        yield packet
        if not left:
            return


def filtered_packets(
    index: VideoIndex, numbers: Sequence[int], stream: VideoStream, packets: Iterator[VideoPacket]
) -> Iterator[ChunkPacket]:
    """Yields what NVDEC needs for the frames of `numbers`. Raises `InputError` for a damaged packet."""
    codec, filtered, keyframes = index.coding.codec, PacketFilter(stream, index.path), 0
    for packet in needed(packets, index, numbers, codec):
        made = filtered(packet)
        if not made:
            raise InputError(f"{index.path}: a packet on the way to frame {numbers[-1]} is damaged")
        for ready in made:
            keyframes += ready.is_keyframe
            if keyframes > 1 or not needs_earlier_frames(codec, ready):
                yield ready


@contextmanager
def opened(
    index: FrameIndex, number: int, lend: Callable[[str], AbstractContextManager[InputContainer]] = open_input
) -> Iterator[tuple[VideoStream, Iterator[Packet[VideoStream]]]]:
    """Opens a video, with its packets from the keyframe before a frame on; from the beginning where frames are counted.

    `lend` gives a container that is open already, for callers that only read packets. Raises `InputError` if the
    keyframe is not there.
    """
    for lent, seek in ((lend, True), (open_input, False)):  # all packets before are read where seeking leads elsewhere
        with lent(index.path) as container:
            stream = container.streams[index.stream]
            assert isinstance(stream, VideoStream)
            stream.codec_context.thread_count = 1  # several clips are decoded at once
            stream.codec_context.options = decoder_options(Access())
            packets = _packets(container, stream, index, number, seek=seek) if index.timed else iter(())
            if packets is not None:
                yield stream, packets
                return
    raise InputError(f"{index.path}: frame {number} can't be decoded; its keyframe is not there any more")


def _packets(
    container: InputContainer, stream: VideoStream, index: FrameIndex, number: int, *, seek: bool
) -> Iterator[Packet[VideoStream]] | None:
    """Returns the packets from the keyframe before a frame on; `None` if none of them is that keyframe."""
    key, place = int(index.keys[number]), int(index.seeks[number])
    if not seek:
        return _since(container, stream, key)
    # FFmpeg looks for pts in MP4, and would go on to the keyframe before for a dts. What it finds in TS are dts.
    for time in (key, place) if "mp4" in container.format.name else (place,):
        try:
            container.seek(time, stream=stream)
        except av.error.FFmpegError:
            continue
        if (packets := _since(container, stream, key)) is not None:
            return packets
    return None


def _since(container: InputContainer, stream: VideoStream, key: int) -> Iterator[Packet[VideoStream]] | None:
    """Returns the packets that are left from the keyframe with the pts `key` on; `None` if it does not come."""
    packets = (packet for packet in demuxed(container, stream) if packet.size)
    first = next(
        (packet for packet in packets if packet.is_keyframe and packet.pts is not None and packet.pts >= key), None
    )
    return None if first is None or first.pts != key else chain([first], packets)
