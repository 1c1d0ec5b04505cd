"""What a stream's first bytes tell of it."""

from pathlib import Path

import pytest
from videos import Synthetic

from segmentation.media.bitstream import has_layers, packs_b_frames
from segmentation.media.input import probe


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("water_180_mvhevc_5frames.mov", "layered"),
        ("packed_bframes_test.avi", "packed"),
        ("fixture-raw.mts", "interlaced"),
        ("h265_10bits.mp4", None),
        ("sample-with-large-length.avi", None),
    ],
)
def test_properties_of_real_videos(corpus: Path, name: str, found: str | None) -> None:
    info = probe(str(corpus / name))
    assert [what for what in ("layered", "packed", "interlaced") if getattr(info, what)] == ([found] if found else [])


@pytest.mark.parametrize("codec", ["libx265", "mpeg4", "libx264"])
def test_ordinary_streams_have_none(codec: str, tmp_path: Path) -> None:
    info = probe(str(Synthetic(codec=codec).write(tmp_path / "a.mkv")))
    assert not (info.layered or info.packed or info.interlaced)


@pytest.mark.parametrize(
    ("header", "layered"), [(b"\x40\x01", False), (b"\x40\x09", True), (b"\x41\x01", True), (b"\x40", False)]
)
def test_layers_of_nal_units(header: bytes, layered: bool) -> None:
    data = b"\0\0\0\1\x40\x01\x0c\0\0\1" + header
    assert has_layers("hevc", data) == layered and not has_layers("h264", data)


@pytest.mark.parametrize(("said", "packed"), [(b"DivX503b1393p", True), (b"DivX503b1393", False), (b"Lavc58.9", False)])
def test_user_data_of_mpeg4(said: bytes, packed: bool) -> None:
    data = b"\0\0\1\xb2" + said + b"\0\0\1\xb6"
    assert packs_b_frames("mpeg4", data) == packed and not packs_b_frames("h264", data)
