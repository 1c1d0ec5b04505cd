"""Packets with start codes are what FFmpeg's filters make of them."""

from pathlib import Path

import av
import pytest
from av.bitstream import BitStreamFilterContext
from videos import Synthetic

from segmentation.errors import InputError
from segmentation.media.bitstream.start_codes import PacketFilter
from segmentation.media.opening.probe import probe

CODECS = {
    "libx264": {"x264-params": "keyint=8:min-keyint=8:bframes=2:slices=3"},
    "libx265": {"x265-params": "log-level=none:keyint=8:min-keyint=8"},
}


def units(packet: av.Packet) -> list[bytes]:
    """Returns the NAL units between start codes, which may be of three or four bytes."""
    return [unit.rstrip(b"\0") for unit in bytes(packet).split(b"\0\0\1") if unit.strip(b"\0")]


@pytest.fixture(params=CODECS)
def clip(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Synthetic(codec=request.param, options=CODECS[request.param], pts=range(30)).write(tmp_path / "a.mp4")


def test_packets_are_those_of_the_filters(clip: Path) -> None:
    with av.open(str(clip)) as one, av.open(str(clip)) as other:
        stream = one.streams.video[0]
        ours = PacketFilter(stream, "a.mp4")
        theirs = BitStreamFilterContext(f"{stream.codec_context.name}_mp4toannexb,dump_extra", other.streams.video[0])
        for packet, same in zip(one.demux(stream), other.demux(other.streams.video[0]), strict=True):
            if not packet.size:
                continue
            (made,), (expected,) = ours(packet), theirs.filter(same)
            assert units(made) == units(expected)
            assert (made.pts, made.dts, made.is_keyframe) == (expected.pts, expected.dts, expected.is_keyframe)


def test_a_packet_whose_lengths_are_wrong_is_left_to_the_filters(clip: Path) -> None:
    """It stays as it was, for FFmpeg to say that it is damaged."""
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        filtered = PacketFilter(stream, "a.mp4")
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert filtered(packets[0])
        damaged = next(packet for packet in packets[1:] if not packet.is_keyframe)
        memoryview(damaged)[1] = 0xFF
        assert filtered(damaged) == []


@pytest.mark.parametrize("size", range(1, 24))
def test_parameters_that_are_cut_off_are_one_line(clip: Path, size: int) -> None:
    """The rest of their box becomes an empty one."""
    data = bytearray(clip.read_bytes())
    at = max(data.find(b"avcC"), data.find(b"hvcC")) - 4
    whole = int.from_bytes(data[at : at + 4])
    data[at : at + 4] = (8 + size).to_bytes(4)
    data[at + 8 + size : at + 16 + size] = (whole - 8 - size).to_bytes(4) + b"free"
    clip.write_bytes(data)
    said = rf"a.mp4: (the parameters of its \w+ video \({size} bytes\) are damaged|holds no frame that can be decoded)"
    with pytest.raises(InputError, match=said):
        probe(str(clip))
