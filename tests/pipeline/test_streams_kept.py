"""The source's other streams are in the output, in sync, or it is said that they are not."""

import io
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from flv import without_early_sound
from quick import segment
from videos import Synthetic, packets

from segmentation import InputError, OutputError, Segmenter
from segmentation.media.muxer import format_holds
from segmentation.options.config import Config
from segmentation.pipeline.time_report import missing_streams, report_late

PLAIN: dict[str, Any] = {"model": lambda pictures: np.ones((len(pictures), 1, 8, 8), np.float32), "input_size": (8, 8)}
PLAIN |= {"labels": ("person",), "effect": "mask", "overwrite": True}


def late_sound(folder: Path) -> bytes:
    """Returns 10 s of FLV with 250 pictures, in which sound begins at 8 s: FFmpeg looks 5 s ahead in file objects."""
    whole = Synthetic(codec="libx264", pts=range(250), gop=50, options={"preset": "ultrafast"}, audio="aac")
    return without_early_sound(whole.write(folder / "whole.flv").read_bytes(), 8000)


def test_a_stream_that_begins_on_the_way_is_no_silent_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, target = late_sound(tmp_path), tmp_path / "b.mkv"
    with Segmenter(**PLAIN) as segmenter:
        report = segmenter.run(io.BytesIO(data), target)
        assert report.frames == 250 and report.late == {1: "audio aac"} and not report.complete
        assert caplog.text.count("stream 1 (audio aac) begins on the way") == 1
    with pytest.raises(OutputError, match=r"it lacks stream 1 .audio aac. of the input"):
        segment(io.BytesIO(data), target, verify=True, **PLAIN)


def test_metadata_of_flv_on_the_way_is_no_stream(tmp_path: Path) -> None:
    whole = Synthetic(codec="libx264", pts=range(10), audio="aac").write(tmp_path / "whole.flv").read_bytes()
    (tmp_path / "twice.flv").write_bytes(whole + whole[13:])
    report = segment(tmp_path / "twice.flv", tmp_path / "b.mkv", **PLAIN)
    assert report.complete and report.late == {} and report.frames == 20


def joined(folder: Path, codec: str) -> Path:
    """Returns MPEG-TS of two recordings with other PIDs: 20 pictures of H.264, and 20 of this codec, with sound."""
    parts = [
        Synthetic(codec=kind, pts=range(20), audio="aac", container_options={"mpegts_start_pid": pid})
        for kind, pid in (("libx264", "0x100"), (codec, "0x200"))
    ]
    path = folder / "joined.ts"
    path.write_bytes(b"".join(part.write(folder / "part.ts").read_bytes() for part in parts))
    return path


def test_a_recording_with_other_pids_goes_on(tmp_path: Path) -> None:
    target = tmp_path / "b.mkv"
    report = segment(joined(tmp_path, "libx264"), target, verify=True, **PLAIN)
    assert report.complete and report.frames == 40
    sound = packets(target, "audio")
    assert len(sound) == 2 * len(packets(tmp_path / "part.ts", "audio"))
    assert max(after.time - before.time for before, after in pairwise(sound)) < Fraction(1, 25)  # type: ignore[operator]


def test_a_recording_of_another_codec_is_no_silent_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = segment(joined(tmp_path, "mpeg2video"), tmp_path / "b.mkv", **PLAIN)
    assert report.frames == 20 and report.late == {2: "video mpeg2video"} and not report.complete
    assert caplog.text.count("mpeg2video") == 1 and "what is left out begins on the way; process that" in caplog.text
    assert segment(tmp_path / "joined.ts", tmp_path / "b.mkv", max_frames=5, **PLAIN).late == {}


def test_sound_that_changes_its_rate_is_said_where_the_format_states_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [Synthetic(codec="libx264", pts=range(20), audio="aac", audio_rate=rate) for rate in (48000, 44100)]
    path = tmp_path / "a.ts"
    path.write_bytes(b"".join(part.write(tmp_path / "part.ts").read_bytes() for part in parts))
    assert segment(path, tmp_path / "b.ts", **PLAIN).complete
    assert not segment(path, tmp_path / "b.mp4", **PLAIN).complete
    assert caplog.text.count("its sound goes from 48000 Hz (channels: 2) to 44100 Hz (2), and .mp4 files state") == 1


def test_a_late_stream_that_was_not_wanted_is_no_loss() -> None:
    late = {1: "audio aac", 2: "video h264", 3: "subtitle dvb_subtitle"}
    assert missing_streams(late, Config()) == late
    assert missing_streams(late, Config(mute=True)) == {2: late[2], 3: late[3]}
    assert missing_streams(late, Config(video=False, results="a.json")) == {2: late[2]}
    with pytest.raises(InputError, match=r"stream 1 .audio aac. begins on the way"):
        report_late("a.flv", {1: late[1]}, Config(strict=True))


@pytest.mark.slow
def test_a_file_is_looked_through_however_late_its_sound_begins(tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", pts=range(40), time_base=Fraction(5), gop=5, audio="aac")
    whole = source.write(tmp_path / "whole.flv").read_bytes()
    (tmp_path / "late.flv").write_bytes(without_early_sound(whole, 190_000))
    report = segment(tmp_path / "late.flv", tmp_path / "b.mkv", verify=True, **PLAIN)
    assert report.complete and report.late == {}
    with av.open(str(tmp_path / "b.mkv")) as container:
        assert [stream.type for stream in container.streams] == ["video", "audio"]


@pytest.mark.parametrize("kind", ["pcm_s16le", "subtitles"])
def test_ts_is_given_nothing_that_it_has_no_type_for(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FFmpeg would write private data, which nothing plays."""
    streams: dict[str, Any] = {"audio": kind} if kind == "pcm_s16le" else {"subtitles": [(0.1, 0.5, "a")]}
    source = Synthetic(**streams).write(tmp_path / "a.mkv")
    segment(source, tmp_path / "b.ts", verify=True, **PLAIN)
    assert "is left out: .ts files can't hold it" in caplog.text
    with av.open(str(tmp_path / "b.ts")) as container:
        assert [stream.type for stream in container.streams] == ["video"]


@pytest.mark.parametrize(("codec", "suffix"), [("av1", ".ts"), ("ffv1", ".ts"), ("av1", ".mpg"), ("av1", ".mov")])
def test_a_codec_without_a_place_in_the_format_is_refused(codec: str, suffix: str, tmp_path: Path) -> None:
    source = Synthetic().write(tmp_path / "a.mkv")
    with pytest.raises(OutputError, match=f"{suffix} files can't hold {codec}"):
        segment(source, tmp_path / f"b{suffix}", codec=codec, **PLAIN)
    assert not list(tmp_path.glob("*b*"))


@pytest.mark.parametrize(("codec", "rate"), [("aac", 48000), ("ac3", 44100), ("pcm_s24le", 44100), ("pcm_alaw", 44100)])
def test_lengths_that_a_source_rounds_move_no_sound(
    codec: str, rate: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Matroska counts milliseconds: in 8 s the lengths of packets miss more than a tenth of a second."""
    suffix = ".mov" if codec == "pcm_alaw" else ".mkv"
    clip = Synthetic(codec="libx264", pts=range(200), audio=codec, audio_rate=rate).write(tmp_path / f"in{suffix}")
    report = segment(clip, tmp_path / "out.avi", verify=suffix == ".mkv", **PLAIN)
    assert report.complete and "early" not in caplog.text


def test_sound_that_avi_moves_is_said_and_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """AVI states no times of sound: one that begins late is heard from the beginning on."""
    whole = Synthetic(codec="libx264", pts=range(50), audio="mp2", audio_seconds=2).write(tmp_path / "whole.mkv")
    with av.open(str(whole)) as source, av.open(str(tmp_path / "late.mkv"), "w") as late:
        copies = {stream.index: late.add_stream_from_template(stream) for stream in source.streams}
        for packet in source.demux():
            if packet.dts is not None and (packet.stream.type == "video" or packet.dts * packet.time_base > 1):
                packet.stream = copies[packet.stream_index]
                late.mux(packet)
    report = segment(tmp_path / "late.mkv", tmp_path / "b.avi", **PLAIN)
    assert not report.complete and "the sound is heard 0.9" in caplog.text
    with pytest.raises(OutputError, match=r"its sound begins at 0\.000 s, not at 0\.9"):
        segment(tmp_path / "late.mkv", tmp_path / "b.avi", verify=True, **PLAIN)
    caplog.clear()
    assert segment(whole, tmp_path / "c.avi", verify=True, **PLAIN).complete and "early" not in caplog.text


def test_flv_takes_sound_whose_channels_have_no_names() -> None:
    """FFmpeg's muxer ends the process over them."""
    with av.open(io.BytesIO(), "w", format="matroska") as nameless:
        sound = nameless.add_stream("pcm_s16le", rate=44100, layout="1c")
        assert format_holds("flv", sound, io.BytesIO())


@pytest.mark.parametrize(
    ("live", "options", "said"),
    [
        (False, {}, r"stream 1 \(audio\) is left out: \.mp4 files can't hold it"),
        (False, {"pitch_shift": 3}, r"stream 1 \(audio\) is left out: --pitch-shift can't decode it"),
        (True, {}, r"its sound is left out: this FFmpeg does not know its codec"),
    ],
)
def test_sound_of_an_unknown_codec_is_left_out_with_a_line(
    live: bool, options: dict[str, Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Synthetic(codec="libx264", pts=range(10), audio="aac").write(tmp_path / "whole.mkv").read_bytes()
    (source := tmp_path / "unknown.mkv").write_bytes(whole.replace(b"A_AAC", b"A_XYZ"))
    given = f"file://{source}" if live else source
    report = segment(given, tmp_path / "out.mp4", **PLAIN, **options)
    assert report.frames == 10 and re.search(said, caplog.text), caplog.text
