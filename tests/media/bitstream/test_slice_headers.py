"""A picture without its pixels is one to a decoder, with all properties."""

from pathlib import Path

import av
import pytest
from videos import Synthetic

from segmentation.media.bitstream.slice_headers import without_pixels

CODECS = {"h264": ("libx264", {}), "hevc": ("libx265", {"x265-params": "log-level=none"})}


def packets(codec: str, path: Path) -> tuple[av.VideoStream, list[bytes]]:
    library, options = CODECS[codec]
    Synthetic(codec=library, options=options, size=(320, 240), pts=range(5), color=(9, 9, 16), range=1).write(path)
    container = av.open(str(path))
    stream = container.streams.video[0]
    return stream, [bytes(packet) for packet in container.demux(stream) if packet.size]


@pytest.mark.parametrize("codec", CODECS)
def test_the_frame_is_as_the_whole_one(codec: str, tmp_path: Path) -> None:
    stream, (first, *_) = packets(codec, tmp_path / "a.mp4")
    headers = without_pixels(codec, first)
    assert 0 < len(headers) < len(first) / 2
    frames = []
    for data in (headers, first):
        decoder = av.CodecContext.create(codec, "r")
        decoder.extradata = stream.codec_context.extradata
        (frame,) = [*decoder.decode(av.Packet(data)), *decoder.decode(None)]
        frames.append(frame)
    said = ("width", "height", "colorspace", "color_range", "color_primaries", "color_trc", "interlaced_frame")
    assert [getattr(frames[0], name) for name in said] == [getattr(frames[1], name) for name in said]
    assert frames[0].format.name == frames[1].format.name


@pytest.mark.parametrize("codec", CODECS)
def test_other_packets_are_none(codec: str, tmp_path: Path) -> None:
    _, (first, second, *_) = packets(codec, tmp_path / "a.mp4")
    assert not without_pixels(codec, second)
    assert not without_pixels(codec, b"\0\0\0\1" + first[4:])  # a start code
    assert not without_pixels(codec, first[: len(without_pixels(codec, first)) - 1])  # the slice is cut off
    assert not without_pixels("vp9", first)
    assert not without_pixels(codec, b"")
