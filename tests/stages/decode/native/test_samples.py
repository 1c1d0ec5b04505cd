"""Packets by an MP4's sample table are those that FFmpeg makes of the file."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from make_variants import VARIANTS
from native_nvdec import stand_in
from paths import SHARED
from variant_forms import Variant
from variants import made

from segmentation.errors import InputError
from segmentation.frames import VideoInfo
from segmentation.media.bitstream.headers import units
from segmentation.media.opening.probe import probe
from segmentation.media.video_packet import ChunkPacket, head
from segmentation.stages.decode.chunks import decodable, exact_keyframe, read, unit_kinds
from segmentation.stages.decode.native.samples import SampleReader

MP4S = [variant for variant in VARIANTS if variant.name.endswith((".mp4", ".mov"))]
# Parts of the names of those that FFmpeg reads.
READ_BY_FFMPEG = ("cut-", "edit-begins", "edit-leaves", "edit-shows", "fragmented", "negative-pts")
OTHER_CODECS = ("av1", "mpeg4", "vp9", "prores")
SETS = {"h264": {7, 8}, "hevc": {32, 33, 34}}  # nal_unit_type of parameter sets
Row = tuple[int | None, int, bool, bool, bool, list[bytes]]


def rows(info: VideoInfo, packets: list[ChunkPacket]) -> list[Row]:
    """Returns what a decoder sees of packets: times, marks, and NAL units without repeated parameter sets."""
    exact, found = exact_keyframe(info.codec), []
    for packet in packets:
        there = list(dict.fromkeys(unit.rstrip(b"\0") for unit in units(bytes(packet))))
        sets = [unit for unit in there if unit_kinds(info.codec, b"\0\0\1" + unit) <= SETS[info.codec]]
        ordered = sorted(sets) + [unit for unit in there if unit not in sets]
        marks = packet.is_keyframe, packet.is_discard, exact(packet)
        found.append((packet.pts, packet.duration or 0, *marks, ordered))
    return found


def compare(path: Path) -> bool:
    """Returns whether the file is read by its table. All that it gives then is what FFmpeg gives."""
    info = probe(str(path))
    reader = SampleReader.of(info, stand_in())
    if reader is None:
        return False
    ended, lost, keyframe = ([Mock(), Mock()] for _ in range(3))
    ours = list(decodable(info, reader.read(ended[0], lost[0]), keyframe[0]))
    theirs = list(read(info, None, ended[1], lost[1], keyframe=keyframe[1]))
    assert rows(info, ours) == rows(info, theirs)
    assert all(bytes(packet).startswith(head(packet)) for packet in ours)
    for mine, other in (ended, lost, keyframe):
        assert mine.call_count == other.call_count
    return True


@pytest.mark.parametrize("variant", MP4S, ids=[variant.name for variant in MP4S])
def test_variants(variant: Variant, tmp_path: Path) -> None:
    try:
        taken = compare(made(variant.name, tmp_path))
    except InputError:
        taken = False
    assert taken != any(part in variant.name for part in READ_BY_FFMPEG + OTHER_CODECS), variant.name


CORPUS = sorted(path.name for path in (SHARED / "corpus").glob("*.m*"))


@pytest.mark.parametrize("name", CORPUS)
def test_files_found_in_the_wild(name: str) -> None:
    try:
        compare(SHARED / "corpus" / name)
    except InputError as exc:
        pytest.skip(str(exc))
