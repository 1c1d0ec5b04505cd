"""Packets by an MP4's sample table are those that FFmpeg makes of the file."""

import logging
from contextlib import suppress
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
from make_variants import VARIANTS
from native_nvdec import stand_in
from paths import SAMPLE, SHARED
from variant_forms import Variant
from variants import made
from videos import Synthetic

from segmentation.errors import InputError
from segmentation.frames import VideoInfo
from segmentation.media.bitstream.headers import units
from segmentation.media.mp4_samples import mp4_samples
from segmentation.media.opening.probe import probe
from segmentation.media.video_packet import ChunkPacket, head
from segmentation.stages.decode import packet_index
from segmentation.stages.decode.chunks import decodable, exact_keyframe, read, unit_kinds
from segmentation.stages.decode.native.samples import SampleReader
from segmentation.stages.decode.packet_index import by_packets, frames_and_keys

MP4S = [variant for variant in VARIANTS if variant.name.endswith((".mp4", ".mov"))]
# Parts of the names of those that FFmpeg reads.
READ_BY_FFMPEG = ("cut-", "edit-begins", "edit-leaves", "edit-shows", "fragmented", "negative-pts")
OTHER_CODECS = ("av1", "mpeg4", "vp9", "prores")
SETS = {"h264": {7, 8}, "hevc": {32, 33, 34}}  # nal_unit_type of parameter sets
Row = tuple[int | None, int, bool, bool, bool, list[bytes], list[bytes]]


def rows(info: VideoInfo, packets: list[ChunkPacket]) -> list[Row]:
    """Returns what a decoder sees of packets: times, marks, parameter sets once each, and other NAL units."""
    exact, found = exact_keyframe(info.codec), []
    for packet in packets:
        there = list(dict.fromkeys(unit.rstrip(b"\0") for unit in units(bytes(packet))))
        sets = [unit for unit in there if unit_kinds(info.codec, b"\0\0\1" + unit) <= SETS[info.codec]]
        others = [unit for unit in there if unit not in sets]
        marks = packet.is_keyframe, packet.is_discard, exact(packet)
        found.append((packet.pts, packet.duration or 0, *marks, sorted(sets), others))
    return found


def compare(path: Path, *, marked: bool = True) -> bool:
    """Returns whether the file is read by its table. All that it gives then is what FFmpeg gives.

    Keyframes, and parameter sets before them, are left out unless `marked`: FFmpeg looks into the pictures for those,
    where a table lies.
    """
    info = probe(str(path))
    reader = SampleReader.of(info, stand_in())
    if reader is None:
        return False
    ended, lost = ([Mock(), Mock()] for _ in range(2))
    ours = list(decodable(info, reader.read(ended[0], lost[0]), Mock()))
    theirs = list(read(info, None, ended[1], lost[1]))
    mine, others = rows(info, ours), rows(info, theirs)
    if not marked:
        mine, others = ([(*row[:2], row[-1]) for row in side] for side in (mine, others))
    assert mine == others
    assert all(bytes(packet).startswith(head(packet)) for packet in ours)
    for called, by_ffmpeg in (ended, lost):
        assert called.call_count == by_ffmpeg.call_count
    whole, planned = by_packets(info), frames_and_keys(info)
    assert (whole is None) == (planned is None)
    if whole is not None and planned is not None:
        assert (planned[0].tolist(), planned[1].tolist()) == (whole.pts.tolist(), whole.keys.tolist())
    return True


@pytest.fixture(autouse=True)
def library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_index, "library", stand_in)
    monkeypatch.setattr(packet_index, "BUILT", Path(__file__))


def test_the_frames_for_a_plan_are_read_by_the_table(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_index, "by_packets", Mock(side_effect=AssertionError))
    found = frames_and_keys(probe(str(clip)))
    assert found is not None and len(found[0]) == 40 and len(set(found[1].tolist())) == 5


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


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    options = {"x264-params": "keyint=8:min-keyint=8:scenecut=0:bframes=2:slices=2"}
    return Synthetic(codec="libx264", options=options, pts=range(40)).write(folder / "a.mp4")


def test_tables_that_are_damaged_mislead_nobody(clip: Path, tmp_path: Path) -> None:
    """Each is refused, or means to us what it means to FFmpeg."""
    data = clip.read_bytes()
    tables = [data.index(kind) + 4 for kind in (b"stts", b"stsz", b"stco", b"stsc", b"stss", b"ctts", b"elst", b"tkhd")]
    taken = 0
    for seed in range(40):
        chance, damaged = Random(seed), bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.choice(tables) + chance.randrange(40)
            damaged[at] = chance.choice((0, 1, 255, damaged[at] ^ 1 << chance.randrange(8)))
        path = tmp_path / f"{seed}.mp4"
        path.write_bytes(damaged)
        with suppress(InputError):
            taken += compare(path, marked=False)
    assert taken > 5


def test_units_whose_lengths_do_not_add_up_are_left_to_ffmpeg(clip: Path, tmp_path: Path) -> None:
    data, samples = bytearray(clip.read_bytes()), mp4_samples(probe(str(clip)))
    assert samples is not None
    for number, length in ((3, b"\xff\xff\xff\xff"), (8, b"\0\0\0\x05"), (21, b"\0\0\0\0")):
        data[samples.offsets[number] : samples.offsets[number] + 4] = length
    (tmp_path / "a.mp4").write_bytes(data)
    assert compare(tmp_path / "a.mp4")


def test_reading_begins_at_the_keyframe_before_a_stretch(clip: Path, tmp_path: Path) -> None:
    info = probe(str(clip))
    pts = sorted(packet.pts or 0 for packet in read(info, None))
    for number in (0, 7, 8, 30):
        reader = SampleReader.of(info, stand_in(), pts[number])
        assert reader is not None
        assert min(packet.pts or 0 for packet in reader.read(Mock(), Mock())) == pts[number // 8 * 8]
    data, samples = bytearray(clip.read_bytes()), mp4_samples(info)
    assert samples is not None
    at = data.index(b"stss") + 12
    data[at + 4 : at + 8] = (12).to_bytes(4)  # no keyframe at all
    (tmp_path / "lies.mp4").write_bytes(data)
    lies = probe(str(tmp_path / "lies.mp4"))
    assert SampleReader.of(lies, stand_in(), int(samples.pts[11])) is None


def test_a_file_that_becomes_shorter_is_said(clip: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(clip.read_bytes())
    reader = SampleReader.of(probe(str(path)), stand_in())
    assert reader is not None
    with path.open("r+b") as file:
        file.truncate(int(reader._samples.offsets[30]))
    cut_short = Mock()
    with caplog.at_level(logging.WARNING):
        assert len(list(reader.read(cut_short, Mock()))) == 30
    assert cut_short.call_count == 1 and "the file has become shorter" in caplog.text


def test_sound_between_the_pictures_is_passed_over() -> None:
    assert compare(SAMPLE)
