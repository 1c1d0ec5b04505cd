"""What a stream's first bytes tell of it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from videos import Synthetic

from segmentation.media.bitstream.headers import (
    Shown,
    begins_inside,
    begins_stream,
    has_layers,
    is_idr,
    may_interlace,
    packs_b_frames,
    pictures,
    refreshes_gradually,
    sequence_sets,
)
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import read


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


@pytest.mark.parametrize("size", [(64, 48), (322, 182)])
@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg2video", "libvpx", "libvpx-vp9"])
def test_the_picture_that_keyframes_state(codec: str, size: tuple[int, int], tmp_path: Path) -> None:
    info = probe(str(Synthetic(codec=codec, size=size).write(tmp_path / "a.mkv")))
    stated = [pictures(info.codec, bytes(packet)) for packet in read(info, None) if packet.is_keyframe]
    assert len(stated) > 1 and all(found == {Shown(width=size[0], height=size[1])} for found in stated)


@pytest.mark.parametrize("codec", ["libsvtav1", "mpeg4"])
def test_the_headers_of_a_stream_stay_the_same(codec: str, tmp_path: Path) -> None:
    """They alone tell one picture from another in these codecs."""
    stated = []
    for size in ((64, 64), (64, 64), (96, 64)):
        path = Synthetic(codec=codec, size=size, format="avi" if codec == "mpeg4" else None).write(tmp_path / "a.mkv")
        info = probe(str(path))
        stated.append(next(pictures(info.codec, bytes(packet)) for packet in read(info, None) if packet.is_keyframe))
    assert stated[0] and stated[0] == stated[1] and stated[0] != stated[2]


@pytest.mark.parametrize(("profile", "color"), [(0, 0), (1, 7), (2, 5)])
def test_frames_of_vp9_between_keyframes(profile: int, color: int) -> None:
    """Of the size of a reference they state none. Others do, also those without references; these with `color` bits."""
    begin = f"10{profile & 1}{profile >> 1}0"  # no repetition
    references = "1" * 8 + "0001" * 3
    size = f"{320 - 1:016b}{180 - 1:016b}"
    alike = begin + "110" + "00" + references + "01" + size
    resized = begin + "110" + "00" + references + "000" + size
    intra = begin + "101" + "1" + "0" * (24 + color) + "1" * 8 + size
    stated = {Shown(width=320, height=180)}
    for bits, found in ((alike, set()), (resized, stated), (intra, stated)):
        data = int(bits.ljust(256, "0"), 2).to_bytes(32, "big")
        assert pictures("vp9", data) == found


PARSERS: list[Callable[[str, bytes], Any]] = [
    *(begins_inside, begins_stream, has_layers, is_idr, may_interlace),
    *(packs_b_frames, pictures, refreshes_gradually, sequence_sets),
]


@pytest.mark.parametrize(
    ("codec", "options"),
    [
        ("libx264", {"x264-params": "interlaced=1:cqm=jvt:intra-refresh=1"}),
        *((codec, {}) for codec in ("libx265", "mpeg2video", "mpeg4", "libvpx", "libvpx-vp9", "libsvtav1")),
    ],
)
def test_headers_that_are_cut_off_or_changed_anywhere(codec: str, options: dict[str, str], tmp_path: Path) -> None:
    info = probe(str(Synthetic(codec=codec, size=(64, 64), options=options).write(tmp_path / "a.mkv")))
    head = bytes(next(packet for packet in read(info, None) if packet.is_keyframe))[:400]
    dice = random.Random(codec)
    for size in range(len(head)):
        changed = bytearray(head)
        changed[size] = dice.randrange(256)
        for data in (head[:size], bytes(changed), head[:size] + bytes(40), head[:size] + b"\xff" * 40):
            for parse in PARSERS:
                parse(info.codec, data)


@pytest.mark.parametrize(
    ("codec", "head", "rest"),
    [
        ("h264", b"\0\0\1\x67\x64\0\x1f", b"\0"),  # a number of as many zeros
        ("h264", b"\0\0\1\x06", b"\x01\0"),  # as many messages
        ("h264", b"\0\0\1\x06", b"\xff"),
        ("hevc", b"\0\0\1\x42\x01\x01", b"\x02\0"),
        ("av1", b"\x0a", b"\x80"),  # a size of as many bytes
        ("vp9", b"\x82", b"\xff"),
        ("mpeg2video", b"\0\0\1\xb3", b"\0\0\1"),
    ],
)
def test_long_headers_take_no_long_time(codec: str, head: bytes, rest: bytes) -> None:
    """Some megabytes, of which each would be read again for each bit or message: for hours."""
    for parse in PARSERS:
        parse(codec, head + rest * (4_000_000 // len(rest)))
