"""Decodes chosen frames of a video, exactly, from the nearest keyframe before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.clips.index import VideoIndex
from segmentation.errors import InputError, one_line
from segmentation.media.input import open_input
from segmentation.stages.masks.saved import intact

_SKIPS = ("h264", "hevc")  # codecs of which FFmpeg leaves out the pictures that no other one refers to


def decoded(index: VideoIndex, numbers: Sequence[int], *, checksums: bool = False) -> Iterator[tuple[int, VideoFrame]]:
    """Yields the frames of these rising `numbers`, each with its number, as they are stored.

    Raises `InputError` if one of them does not come out, or FFmpeg finds damage on the way from the keyframe. With
    `checksums`, of FFV1 as `--save-masks` writes it, no damage goes unseen; in other codecs FFmpeg conceals some.
    """
    with open_input(index.path) as container:
        stream = container.streams[index.stream]
        assert isinstance(stream, VideoStream)
        stream.codec_context.thread_count = 1  # several clips are decoded at once
        frames = (
            _sought(container, stream, index, numbers, checksums)
            if len(index.keys)
            else enumerate(container.decode(stream))
        )
        wanted = iter(numbers)
        number = next(wanted, None)
        try:
            for found, frame in frames:
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
        if number is not None:
            raise InputError(f"{index.path}: frame {number} can't be decoded")


def _sought(
    container: InputContainer, stream: VideoStream, index: VideoIndex, numbers: Sequence[int], checksums: bool
) -> Iterator[tuple[int, VideoFrame]]:
    """Yields frames by their times, from the keyframe before the first of `numbers` on.

    Pictures that are not wanted, and that no other one refers to, are not decoded.
    """
    numbered = {int(index.pts[number]): number for number in numbers}
    skips = stream.codec_context.name in _SKIPS
    for packet in _packets(container, stream, int(index.keys[numbers[0]])):
        if skips:
            stream.codec_context.skip_frame = "DEFAULT" if packet is None or packet.pts in numbered else "NONREF"
        if checksums and packet is not None and packet.pts in numbered and not intact(bytes(packet)):
            return
        for frame in stream.codec_context.decode(packet):
            if frame.pts in numbered:
                yield numbered[frame.pts], frame


def _packets(container: InputContainer, stream: VideoStream, begin: int) -> Iterator[Packet[VideoStream] | None]:
    """Yields the packets from the one with the dts `begin` on, and `None` at the end, where the decoder is emptied."""
    container.seek(begin, stream=stream)
    packets = (packet for packet in container.demux(stream) if packet.size)
    first = next((packet for packet in packets if packet.dts is not None and packet.dts >= begin), None)
    if first is None or first.dts != begin:  # the container leads to a later place
        container.seek(0)
        packets = (packet for packet in container.demux(stream) if packet.size)
        first = next((packet for packet in packets if packet.dts == begin), None)
    if first is not None:
        yield first
        yield from packets
    yield None
