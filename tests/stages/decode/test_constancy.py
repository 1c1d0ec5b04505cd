"""Keyframes that go on in another shape, turn or color matrix than the first are found without decoding the others."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from videos import Synthetic

from segmentation.media.bitstream.sei import sei_unit
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import read
from segmentation.stages.decode.constancy import PacketConstancy

_ORIENTATION = 47  # payloadType, H.264 table D.1
_QUARTER = (0b000_0100000000000000_1_0 << 3).to_bytes(3)  # no mirror, 90 degrees, until further notice: D.1.27


def lines(path: Path) -> list[str]:
    """Returns what is said of a file's keyframes."""
    info, said = probe(str(path)), list[str]()
    assert sum(1 for _ in read(info, None, keyframe=PacketConstancy(info, said.append))) > 4
    return said


def joined(folder: Path, codec: str, *parts: dict[str, Any]) -> Path:
    made = [
        Synthetic(codec=codec, pts=range(6), gop=3, **part).write(folder / f"{number}.ts")
        for number, part in enumerate(parts)
    ]
    (folder / "joined.ts").write_bytes(b"".join(part.read_bytes() for part in made))
    return folder / "joined.ts"


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video", "libx265"])
def test_another_shape_of_pixels_is_said_once(codec: str, tmp_path: Path) -> None:
    wide, square = {"aspect": Fraction(4, 3)}, {"aspect": Fraction(1)}
    (line,) = lines(joined(tmp_path, codec, wide, square, wide))
    assert "the sample aspect ratio changes from 4/3 to 1 on the way" in line
    assert lines(joined(tmp_path, codec, wide, wide)) == []


def test_another_matrix_of_colors_is_said(tmp_path: Path) -> None:
    (line,) = lines(joined(tmp_path, "libx264", {"color": (1, 1, 1)}, {"color": (6, 1, 1)}))
    assert "the color matrix changes on the way" in line


def test_a_turn_on_the_way_is_said(tmp_path: Path) -> None:
    plain = Synthetic(codec="libx264", pts=range(12), gop=3).write(tmp_path / "plain.ts")
    with av.open(str(plain)) as source, av.open(str(tmp_path / "turned.ts"), "w") as target:
        copy = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is None:
                continue
            data = bytes(packet)
            if packet.is_keyframe and packet.pts * packet.time_base > source.start_time / 1e6 + 0.2:
                at = data.index(b"\0\0\1\x65")
                data = data[:at] + sei_unit("h264", [(_ORIENTATION, _QUARTER)]) + data[at:]
            made = av.Packet(data)
            made.stream, made.pts, made.dts, made.is_keyframe = copy, packet.pts, packet.dts, packet.is_keyframe
            made.time_base = packet.time_base
            target.mux(made)
    (line,) = lines(tmp_path / "turned.ts")
    assert "some pictures are to be turned otherwise than the first" in line
