"""Nothing that is kept changes: pixels, timestamps, sound, subtitles, chapters, tags."""

import itertools
import math
import re
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from kept import check_kept_pixels, kept
from marks import first
from paths import SAMPLE
from program import report
from quick import cli, segment
from videos import (
    StreamPacket,
    Synthetic,
    packets,
    pictures,
    planes,
    real_frames,
    same_packets,
    same_times,
    tick,
    times,
)

from segmentation import Config, InputError
from segmentation.stages.masks.smoothing import REACH

SUBTITLES = ((0.1, 0.4, "one"), (0.5, 0.7, "two"), (0.8, 0.95, "three"))
CHAPTERS = ((0.0, 0.5, "first"), (0.5, 1.0, "second"))


@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize(
    "pix_fmt", first(1, ["yuv422p10le", "yuv420p", "yuv444p", "yuv422p", "yuv420p10le", "yuv444p10le"])
)  # fmt: skip
def test_kept_pixels_are_bit_identical(pix_fmt: str, full: bool, tmp_path: Path) -> None:
    frames = real_frames(SAMPLE, 4, size=(426, 240), pix_fmt=pix_fmt)
    source = Synthetic(
        frames=frames, pts=range(4), pix_fmt=pix_fmt, range=2 if full else 1, color=(1, 1, 1)
    ).write(tmp_path / "in.mkv")  # fmt: skip
    masks = kept(source, tmp_path)
    segment(source, tmp_path / "ffv1.mkv", codec="ffv1", model="person")
    check_kept_pixels(source, tmp_path / "ffv1.mkv", masks)
    segment(source, tmp_path / "x264.mp4", codec="h264", quality=0, effect="color:#ff0000", model="person")
    check_kept_pixels(source, tmp_path / "x264.mp4", masks)
    for name in ("ffv1.mkv", "x264.mp4"):
        frame = next(pictures(tmp_path / name)).frame
        assert frame.format.name.replace("yuvj", "yuv") == pix_fmt
        assert frame.color_range == (2 if full else 1)
        assert (frame.colorspace, frame.color_primaries, frame.color_trc) == (1, 1, 1)


@pytest.mark.parametrize("rotation", [0, 90])
def test_kept_pixels_of_compressed_video(rotation: int, tmp_path: Path) -> None:
    """Somebody lies in the stored picture of a turned video, and stands in the shown one."""
    stored = [frame.to_ndarray(format="rgb24") for frame in real_frames(SAMPLE, 12, size=(426, 240), pix_fmt="rgb24")]
    frames = [av.VideoFrame.from_ndarray(np.rot90(rgb, -rotation // 90).copy(), format="rgb24") for rgb in stored]
    clip = Synthetic(frames=frames, pts=range(12), codec="libx264", rotation=rotation, color=(1, 1, 1))
    source = clip.write(tmp_path / "in.mov")
    assert next(pictures(source)).frame.rotation == rotation
    masks = kept(source, tmp_path)
    segment(source, tmp_path / "out.mkv", codec="ffv1", model="person")
    check_kept_pixels(source, tmp_path / "out.mkv", masks)


@pytest.mark.parametrize(
    ("pix_fmt", "codec", "expected"),
    first(
        4,
        [
            ("yuvj422p", "mjpeg", "yuvj422p"),
            ("gray10le", "ffv1", "yuv420p10le"),
            ("bgr0", "ffv1", "yuv444p"),
            ("gbrp", "libx264rgb", "yuv444p"),
            ("gray", "ffv1", "yuv420p"),
            ("gbrp10le", "ffv1", "yuv444p10le"),
            ("yuv411p", "ffv1", "yuv444p"),
            ("yuv440p", "ffv1", "yuv444p"),
            ("yuv420p12le", "ffv1", "yuv420p10le"),
            ("yuv422p16le", "ffv1", "yuv422p10le"),
            ("yuva420p", "ffv1", "yuv420p"),
            ("pal8", "gif", "yuv444p"),
        ],
    ),
)
def test_other_formats_are_converted_with_a_line(pix_fmt: str, codec: str, expected: str, tmp_path: Path) -> None:
    """The colors survive: they are compared as RGB, as a player shows them."""
    made_as = {"libx264rgb": "rgb24", "gif": "rgb8"}.get(codec, pix_fmt)
    real = real_frames(SAMPLE, 2, size=(96, 64), pix_fmt="rgb24")
    source = Synthetic(
        frames=real, pts=range(2), pix_fmt=made_as, codec=codec, range=2 if "yuvj" in pix_fmt else 0
    ).write(tmp_path / ("in.gif" if codec == "gif" else "in.mkv"))  # fmt: skip
    # So weak a blur leaves the picture as it was. H.264 decoders read the colors by the tags in the stream.
    target = tmp_path / "out.mp4"
    result = cli("--quality", "0", "--effect", "blur:0.01", "-o", target, source)
    assert result.returncode == 0, result.stderr
    before, after = next(pictures_rgb(source)), next(pictures_rgb(target))
    out = next(pictures(target))
    assert out.pix_fmt.replace("yuvj", "yuv") == expected.replace("yuvj", "yuv")
    if "yuvj" not in pix_fmt:
        assert f"is converted to {expected}" in result.stderr
    assert np.abs(before - after).mean() < 4


def pictures_rgb(path: Path) -> Any:
    """(H, W, 3) float RGB as swscale shows it, by the stream's own tags."""
    for picture in pictures(path):
        yield picture.frame.to_ndarray(format="rgb24").astype(float)


@pytest.mark.parametrize("codec", ["h264", "ffv1", "hevc"])
def test_variable_frame_rate_stays(codec: str, tmp_path: Path) -> None:
    pts = (0, 3, 4, 50, 51, 52, 300, 301, 1000, 1007)
    source = Synthetic(
        size=(64, 64), pts=pts, time_base=Fraction(1, 600), last_duration=90, codec="libx264", options={"bf": "0"}
    ).write(tmp_path / "in.mp4")  # fmt: skip
    target = tmp_path / ("out.mkv" if codec == "ffv1" else "out.mp4")
    segment(source, target, codec=codec)
    before, after = list(pictures(source)), list(pictures(target))
    assert [p.time for p in before] == [Fraction(t, 600) for t in pts]
    assert same_times([p.time for p in after], [p.time for p in before], tick(target))
    assert length(target) == pytest.approx(float(Fraction(1007 + 90, 600)), abs=0.001)


def length(path: Path) -> float:
    """Seconds that a player shows, as the container says."""
    content = path.read_bytes()
    header = content.find(b"mvhd")
    if header >= 0:  # FFmpeg guesses from the decoding times
        units, duration = struct.unpack(">II", content[header + 16 : header + 24])
        return float(duration / units)
    with av.open(str(path)) as container:
        return float(container.duration or 0) / 1e6


@pytest.mark.parametrize("suffix", first(2, [".mp4", ".mkv", ".mov"]))
def test_streams_chapters_and_tags_come_through(suffix: str, tmp_path: Path) -> None:
    matroska = suffix == ".mkv"
    source = Synthetic(
        codec="libx264",
        audio="aac",
        subtitles=SUBTITLES,
        subtitle_codec="subrip" if matroska else "mov_text",
        chapters=CHAPTERS,
        attachments=[("a.ttf", b"not really a font" * 10)] if matroska else [],
        metadata={"title": "A title, with ümlauts", "artist": "Somebody", "comment": "said"},
        audio_tags={"language": "swe"},
        video_tags={"language": "nor"},
        rotation=180,
        aspect=Fraction(4, 3),
    ).write(tmp_path / f"in{suffix}")
    result = cli("--json", "-o", tmp_path / f"out{suffix}", source)
    report(result)
    target = tmp_path / f"out{suffix}"
    assert same_packets(packets(target, "audio"), packets(source, "audio"))
    texts = [[c for c in packets(path, "subtitle") if len(c.data) > 2] for path in (source, target)]  # MP4 fills gaps
    assert len(texts[0]) == 3 and same_packets(texts[1], texts[0])
    with av.open(str(source)) as a, av.open(str(target)) as b:
        assert [c["metadata"] for c in b.chapters()] == [{"title": title} for _, _, title in CHAPTERS]
        bounds = [(c["start"] * c["time_base"], c["end"] * c["time_base"]) for c in b.chapters()]  # type: ignore[operator]
        assert bounds == [(Fraction(0), Fraction(1, 2)), (Fraction(1, 2), Fraction(1))]
        for tag in ("title", "artist", "comment"):
            there = {k.lower(): v for k, v in b.metadata.items()}
            assert there[tag] == {k.lower(): v for k, v in a.metadata.items()}[tag]
        wanted = {"video": "nor", "audio": "swe", "subtitle": "swe"}
        for stream in a.streams:
            if stream.type in wanted:
                [copy] = [s for s in b.streams if s.type == stream.type]
                assert copy.disposition == stream.disposition
                if matroska:
                    assert copy.metadata.get("language") == stream.metadata.get("language") == wanted[stream.type]
        if matroska:
            [one], [other] = ([s for s in c.streams if s.type == "attachment"] for c in (a, b))
            assert (other.name, other.mimetype, other.data) == (one.name, one.mimetype, one.data)  # type: ignore[attr-defined]
        assert b.streams.video[0].sample_aspect_ratio == Fraction(4, 3)
    assert abs(next(pictures(target)).frame.rotation) == 180


def test_dispositions(tmp_path: Path) -> None:
    plain = Synthetic(audio="aac", subtitles=SUBTITLES).write(tmp_path / "plain.mkv")
    with av.open(str(plain)) as a, av.open(str(tmp_path / "in.mkv"), "w") as b:
        copies = {s.index: b.add_stream_from_template(s, opaque=True) for s in a.streams}
        flags = av.stream.Disposition
        copies[1].disposition = flags.default | flags.hearing_impaired
        copies[2].disposition = flags.forced
        for packet in a.demux():
            if packet.size:
                packet.stream = copies[packet.stream_index]
                b.mux(packet)
    segment(tmp_path / "in.mkv", tmp_path / "out.mkv")
    with av.open(str(tmp_path / "in.mkv")) as a, av.open(str(tmp_path / "out.mkv")) as b:
        assert [s.disposition for s in b.streams] == [s.disposition for s in a.streams]
        assert b.streams[2].disposition == flags.forced


@pytest.mark.slow
def test_what_the_container_cannot_hold_is_said(tmp_path: Path) -> None:
    source = Synthetic(audio="flac", subtitles=SUBTITLES, attachments=[("a.ttf", b"font")], second_video=True).write(
        tmp_path / "in.mkv"
    )
    result = cli(source, "-o", tmp_path / "out.mp4")
    assert result.returncode == 0
    lines = result.stderr.splitlines()
    assert [line.partition(": ")[2].partition(": ")[2] for line in lines[:-1]] == [
        "stream 1 (video mjpeg) is left out: one video goes out",
        "stream 3 (subtitle subrip) is left out: .mp4 files can't hold it; .mkv files can",
        "stream 4 (attachment) is left out: .mp4 files can't hold it; .mkv files can",
    ]
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert [s.type for s in container.streams] == ["video", "audio"]
    assert cli(source, "-o", tmp_path / "out.webm", "--max-frames", "3").stderr.count("is left out") == 4
    assert cli(source, "-o", tmp_path / "out.mkv").stderr.count("is left out") == 1


@pytest.mark.parametrize(
    ("suffix", "lost"),
    [
        (".ts", "2 chapters, title, artist, comment, creation_time"),
        (".avi", "2 chapters, creation_time"),
        (".flv", "2 chapters"),
        (".gif", "2 chapters, title, artist, comment, creation_time"),
        (".mov", ""),
        (".nut", ""),
    ],
)
def test_chapters_and_tags_that_a_format_does_not_hold_are_said(suffix: str, lost: str, tmp_path: Path) -> None:
    tags = {"title": "T", "artist": "A", "comment": "C", "creation_time": "2020-01-02T03:04:05.000000Z"}
    source = Synthetic(codec="libx264", chapters=CHAPTERS, metadata=tags).write(tmp_path / "in.mp4")
    done = cli(source, "-o", tmp_path / f"out{suffix}", "--max-frames", "3")
    said = re.findall(rf"in\.mp4: left out, since \{suffix} files can't hold them: (.*)", done.stderr)
    assert done.returncode == 0 and sorted(", ".join(said).split(", ")) == sorted(lost.split(", ")), done.stderr
    if suffix != ".gif":  # whose demuxer reads none
        with av.open(str(tmp_path / f"out{suffix}")) as container:
            there = {*container.metadata, *(["2 chapters"] if container.chapters() else [])}
        assert {"2 chapters", *tags} - there == {*lost.split(", ")} - {""}


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
def test_the_titles_of_tracks_stay(suffix: str, tmp_path: Path) -> None:
    """FFmpeg reads those of an MP4 by another name than it writes them."""
    tags = {"video_tags": {"title": "wide"}, "audio_tags": {"title": "room"}}
    source = Synthetic(codec="libx264", audio="aac", **tags).write(tmp_path / "in.mp4")  # type: ignore[arg-type]
    target = tmp_path / f"out{suffix}"
    segment(source, target)
    with av.open(str(target)) as container:
        assert [s.metadata.get("title") or s.metadata.get("name") for s in container.streams] == ["wide", "room"]


def test_chapters_alone_are_no_reason_for_a_line(tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", chapters=CHAPTERS).write(tmp_path / "in.mp4")
    assert "left out" not in cli(source, "-o", tmp_path / "out.mp4").stderr


def test_cover_picture_is_left_out_with_a_line(tmp_path: Path) -> None:
    plain = Synthetic(codec="libx264", second_video=True, audio="aac").write(tmp_path / "plain.mp4")
    with av.open(str(plain)) as a, av.open(str(tmp_path / "in.mp4"), "w") as b:
        copies = {s.index: b.add_stream_from_template(s, opaque=True) for s in a.streams}
        copies[1].disposition = av.stream.Disposition.attached_pic
        for packet in a.demux():
            if packet.size:
                packet.stream = copies[packet.stream_index]
                b.mux(packet)
    result = cli(tmp_path / "in.mp4", "-o", tmp_path / "out.mp4")
    assert result.returncode == 0
    assert "(cover picture mjpeg) is left out" in result.stderr
    assert len(times(tmp_path / "out.mp4")) == 25


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", pytest.param(".mov", marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", first(1, ["9.4", "2.5", "0", "7.01"]))
def test_start_and_duration(first: str, suffix: str, people: Path, tmp_path: Path) -> None:
    source, target = people, tmp_path / f"out{suffix}"
    result = cli("--json", "--start", first, "--duration", "0.5", "-o", target, source)
    begin = Fraction(first)
    with av.open(str(source)) as container:
        zero = Fraction(container.start_time or 0, 1_000_000)
    stretch = [t for t in times(source) if zero + begin <= t < zero + begin + Fraction(1, 2)]
    assert report(result)["frames"] == len(stretch)
    assert report(result)["damaged"] == 0
    shift = zero + begin if begin else Fraction(0)
    assert same_times(times(target), [t - shift for t in stretch], 2 * tick(target))
    earliest = -Fraction(1024, 48000) if begin else Fraction(-1)
    whole = later(packets(source, "audio"), -shift)
    part = [c for c in whole if c.time is not None and earliest < c.time < Fraction(1, 2)]
    assert part and same_packets(packets(target, "audio"), part, Fraction(3, 2000))


def later(some: list[StreamPacket], seconds: Fraction) -> list[StreamPacket]:
    return [StreamPacket(c.data, (c.time or 0) + seconds) for c in some]


@pytest.mark.slow
@pytest.mark.parametrize("smooth", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_start_gives_the_frames_of_a_full_decode(tmp_path: Path, smooth: float) -> None:
    """Bit for bit; at the ends of a stretch smoothed masks know less of what is around."""
    source = SAMPLE
    segment(source, tmp_path / "all.mkv", codec="ffv1", effect="overlay", smooth=smooth)
    segment(source, tmp_path / "part.mkv", codec="ffv1", effect="overlay", smooth=smooth, start=3.0, duration=1.0)
    segment(source, tmp_path / "few.mkv", codec="ffv1", effect="overlay", smooth=smooth, start=3.0, max_frames=7)
    whole = [p.planes for p in pictures(tmp_path / "all.mkv")][90:120]
    part = [p.planes for p in pictures(tmp_path / "part.mkv")]
    few = [p.planes for p in pictures(tmp_path / "few.mkv")]
    assert (len(part), len(few)) == (30, 7)
    for some in (part, few):
        inner = slice(REACH, -REACH) if smooth else slice(None)
        for one, other in zip(some[inner], whole[: len(some)][inner], strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("suffix", "codec"), [(".mkv", "subrip"), (".mp4", "mov_text")])
def test_start_cuts_subtitles_and_chapters(suffix: str, codec: str, tmp_path: Path) -> None:
    source = Synthetic(
        codec="libx264", pts=range(100), gop=20, audio="aac", chapters=[(0, 1, "a"), (1, 3, "b"), (3, 4, "c")],
        subtitles=[(0.1, 0.4, "gone"), (0.5, 2.5, "begun"), (3.0, 3.5, "late"), (3.7, 3.9, "after")],
        subtitle_codec=codec,
    ).write(tmp_path / f"in{suffix}")  # fmt: skip
    target = tmp_path / f"out{suffix}"
    segment(source, target, start=2.0, duration=1.5)
    texts = [c for c in packets(target, "subtitle") if len(c.data) > 2]
    assert [c.data[-5:] for c in texts] == [b"begun", b"\x04late" if suffix == ".mp4" else b"late"]
    assert [(c.time, c.duration) for c in texts] == [(0, Fraction(1, 2)), (1, Fraction(1, 2))]
    after = times(target)
    assert after[0] == 0 and len(after) == 38  # up to, not including, 3.5 s
    assert length(target) == pytest.approx(1.52, abs=0.05)
    with av.open(str(target)) as container:
        bounds = [(c["start"] * c["time_base"], c["end"] * c["time_base"]) for c in container.chapters()]  # type: ignore[operator]
        assert bounds == [(0, 1), (1, Fraction(3, 2))]


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_a_short_run_gives_a_short_file(suffix: str, tmp_path: Path) -> None:
    """With `--max-frames` sound, subtitles and chapters end where the video does."""
    source = Synthetic(
        pts=range(100), audio="aac", codec="libx264", chapters=[(0, 1, "a"), (1, 4, "b")],
        subtitles=[(0.1, 0.3, "x"), (2, 3, "y")], subtitle_codec="mov_text",
    ).write(tmp_path / "in.mp4")  # fmt: skip
    target = tmp_path / f"out{suffix}"
    segment(source, target, max_frames=10)
    assert len(times(target)) == 10
    with av.open(str(target)) as container:
        assert (container.duration or 0) / 1e6 == pytest.approx(0.4, abs=0.05)


def test_start_after_the_end_is_one_line(tmp_path: Path) -> None:
    result = cli("--start", "60", "-o", tmp_path / "out.mp4", SAMPLE)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1 and "no frame at --start 60 s or later" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "clock", first(1, [95_440.0, 50_000.0, 10.0])
)  # the first is near where 33 bits of 90 kHz wrap
def test_broadcast_clock(clock: float, tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", audio="aac", clock=clock).write(tmp_path / "in.ts")
    result = cli("--json", "-o", tmp_path / "out.mp4", source)
    assert report(result)["frames"] == 25
    shift = min(times(source)[0], packets(source, "audio")[0].time or Fraction(0))
    assert "its clock begins at" in result.stderr
    assert same_times(times(tmp_path / "out.mp4"), [t - shift for t in times(source)], Fraction(1, 20_000))
    sound = [c.time for c in packets(tmp_path / "out.mp4", "audio")]
    assert same_times(sound, [c.time - shift for c in packets(source, "audio")], Fraction(1, 20_000))  # type: ignore[arg-type,operator]


@pytest.mark.parametrize(
    "size", [(35, 17), *(pytest.param(s, marks=pytest.mark.slow) for s in ((1, 1), (2, 2), (1, 33), (16, 9)))]
)
@pytest.mark.parametrize(
    ("suffix", "codec"), first(2, [(".mkv", "ffv1"), (".mp4", "h264"), (".mp4", "hevc"), (".webm", "av1")])
)
def test_small_and_odd_sizes(size: tuple[int, int], suffix: str, codec: str, tmp_path: Path) -> None:
    source = Synthetic(size=size, pts=range(3), codec="rawvideo").write(tmp_path / "in.mkv")
    target = tmp_path / f"out{suffix}"
    result = cli("--codec", codec, "-o", target, source)
    if result.returncode:  # x265 and SVT-AV1 have smallest sizes
        assert (codec, size) == ("ffv1", (1, 33)) or (codec in ("hevc", "av1") and min(size) < 64)
        assert "can't encode" in result.stderr.splitlines()[-1] and "try another --codec" in result.stderr
        assert len(result.stderr.splitlines()) == 1 + ("is padded" in result.stderr)
        assert not target.exists()
        return
    frames = [p.frame for p in pictures(target)]
    wanted = size if codec == "ffv1" else tuple(math.ceil(n / 2) * 2 for n in size)
    assert [(f.width, f.height) for f in frames] == [wanted] * 3
    assert ("is padded" in result.stderr) == (wanted != size)


def test_padding_repeats_the_last_row_and_column(tmp_path: Path) -> None:
    source = Synthetic(codec="libvpx-vp9", size=(161, 121), pts=range(3)).write(tmp_path / "in.webm")
    segment(source, tmp_path / "whole.mkv", codec="ffv1", max_frames=3)
    segment(source, tmp_path / "padded.mp4", quality=0, max_frames=3)
    for one, other in zip(pictures(tmp_path / "whole.mkv"), pictures(tmp_path / "padded.mp4"), strict=True):
        y, padded = one.planes[0], other.planes[0]
        assert y.shape == (121, 161) and padded.shape == (122, 162)
        assert np.array_equal(np.pad(y, ((0, 1), (0, 1)), "edge"), padded)
        assert all(np.array_equal(a, b) for a, b in zip(one.planes[1:], other.planes[1:], strict=True))


@pytest.mark.slow
def test_batches_change_nothing(tmp_path: Path) -> None:
    frames = real_frames(SAMPLE, 30, size=(200, 200), pix_fmt="yuv420p10le")
    clip = Synthetic(frames=frames, pts=range(30), codec="libx264", pix_fmt="yuv420p10le")
    source = clip.write(tmp_path / "in.mp4")
    results = []
    for size in (1, 7, 64):
        target = tmp_path / f"{size}.mkv"
        done = segment(source, target, Config(codec="ffv1", batch_size=size))
        assert done.frames == 30
        results.append([(p.time, *(plane.tobytes() for plane in p.planes)) for p in pictures(target)])
    assert results[0] == results[1] == results[2]


def test_two_frames_with_one_time_both_come_out(tmp_path: Path) -> None:
    """Times must rise in the output; the frames after the repeated one keep theirs."""
    plain = Synthetic(codec="mjpeg", pix_fmt="yuvj420p", pts=range(10), time_base=Fraction(1, 25)).write(
        tmp_path / "a.mkv"
    )
    with av.open(str(plain)) as a, av.open(str(tmp_path / "in.mkv"), "w") as b:
        copy = b.add_stream_from_template(a.streams[0], opaque=True)
        for number, packet in enumerate(p for p in a.demux() if p.size):
            packet.stream = copy
            packet.pts = packet.dts = 120 if number == 4 else number * 40
            b.mux(packet)
    before = times(tmp_path / "in.mkv")
    segment(tmp_path / "in.mkv", tmp_path / "out.mkv", codec="ffv1")
    after = times(tmp_path / "out.mkv")
    assert len(after) == len(before) == 10
    assert all(a < b for a, b in itertools.pairwise(after))
    assert [t for n, t in enumerate(after) if n != 4] == [t for n, t in enumerate(before) if n != 4]


def test_decoder_hands_out_the_decoded_planes(tmp_path: Path) -> None:
    from segmentation.media.opening.probe import probe
    from segmentation.stages.decode.pyav import PyAVDecoder

    options = {"x265-params": "log-level=none"}
    clip = Synthetic(codec="libx265", pix_fmt="yuv420p10le", size=(200, 200), options=options)
    path = str(clip.write(tmp_path / "in.mp4"))
    decoder = PyAVDecoder(probe(path), "yuv420p10le", Config(batch_size=4))
    frames = [frame for batch in decoder for frame in batch.frames]
    for mine, theirs in zip(frames, pictures(Path(path)), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine.planes, planes(theirs.frame), strict=True))
    assert decoder.damaged == 0


def test_strict_input_without_damage_passes(tmp_path: Path) -> None:
    clip = Synthetic(codec="libx264", size=(128, 96)).write(tmp_path / "in.mp4")
    assert segment(clip, tmp_path / "out.mp4", strict=True).damaged == 0
    whole = clip.read_bytes()
    place = len(whole) // 2
    (tmp_path / "broken.mp4").write_bytes(whole[:place] + bytes(3_000) + whole[place + 3_000 :])
    with pytest.raises(InputError, match=r"frames are damaged or missing; without --strict"):
        segment(tmp_path / "broken.mp4", tmp_path / "not.mp4", strict=True)
    assert {p.name for p in tmp_path.iterdir()} == {"in.mp4", "out.mp4", "broken.mp4"}
