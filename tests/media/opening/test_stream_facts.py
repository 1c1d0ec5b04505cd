"""What a stream states beside its pictures, and no output holds, is named in a line."""

import struct
from pathlib import Path

import pytest
from heif import box, full
from videos import Synthetic

from segmentation import segment
from segmentation.media.opening.probe import as_stated, probe

PARENTS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")


def dolby_vision(profile: int, compatible: int) -> bytes:
    """Returns the record of a stream with a base layer and its metadata (Dolby Vision in ISO media, 2.1.2)."""
    return box(b"dvcC", struct.pack(">BBHB19x", 1, 0, profile << 9 | 1 << 3 | 5, compatible << 4))


EQUIRECTANGULAR = box(b"proj", full(b"prhd", bytes(12)), full(b"equi", bytes(16)))  # Spherical Video V2
BOXES = {
    "Dolby Vision alone": (dolby_vision(5, 0), "Dolby Vision metadata"),
    "Dolby Vision over HDR10": (dolby_vision(8, 1), "Dolby Vision metadata"),
    "360 degrees": (box(b"sv3d", full(b"svhd", b"\0"), EQUIRECTANGULAR), "360-degree metadata"),
    "two views": (full(b"st3d", b"\1"), "metadata of two views"),
}


def with_box(path: Path, added: bytes) -> Path:
    """Writes an MP4 of HEVC whose description of the pictures has one more box. Its index is behind the pictures."""
    options = {"x265-params": "log-level=none"}
    data = bytearray(Synthetic(codec="libx265", pts=range(5), options=options).write(path).read_bytes())
    entry = data.rindex(b"hev1") - 4
    end = entry + int.from_bytes(data[entry : entry + 4])
    for at in (entry, *(data.rindex(kind, 0, entry) - 4 for kind in PARENTS)):
        data[at : at + 4] = (int.from_bytes(data[at : at + 4]) + len(added)).to_bytes(4)
    path.write_bytes(data[:end] + added + data[end:])
    return path


@pytest.mark.parametrize("kind", BOXES)
def test_what_no_output_holds_is_named(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    added, name = BOXES[kind]
    source = with_box(tmp_path / "a.mp4", added)
    assert probe(str(source)).left_out == (name,)
    assert segment(source, tmp_path / "b.mkv", effect="mask").frames == 5
    assert caplog.text.count(f"its {name} is not read, and left out") == 1
    assert ("its colors are meant for Dolby Vision alone (profile 5)" in caplog.text) == (kind == "Dolby Vision alone")


def test_a_second_layer_is_named_once(tmp_path: Path) -> None:
    """As of MV-HEVC, whose second view has `nuh_layer_id` 1."""
    info = probe(str(with_box(tmp_path / "a.mp4", b"")))
    head = b"\0\0\1" + bytes([1 << 1, 1 << 3 | 1, 0x80])
    layered = as_stated(info, head)
    assert layered.left_out == as_stated(layered, head).left_out == ("second layer (another view, or alpha)",)


def test_alpha_of_vp9_is_named(tmp_path: Path) -> None:
    source = Synthetic(codec="libvpx-vp9", pts=range(3), pix_fmt="yuva420p").write(tmp_path / "a.webm")
    assert probe(str(source)).left_out == ("alpha",)


def test_a_stream_without_them_has_none(tmp_path: Path) -> None:
    assert probe(str(with_box(tmp_path / "a.mp4", b""))).left_out == ()
