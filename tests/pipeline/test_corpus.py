"""Every real video there is: what must come out of it, to the frame, the tick and the tag."""

import itertools
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import pytest
from marks import first
from program import report
from quick import cli
from videos import packets, pictures, same_packets, same_times, tick, times


@dataclass(frozen=True)
class Expected:
    """What a file gives; `limit` cuts the long ones short."""

    frames: int
    size: tuple[int, int]
    pix_fmt: str = "yuv420p"
    damaged: int = 0
    rotation: int = 0
    audio: int = 0  # streams
    lines: tuple[str, ...] = ()  # fragments of what is said on stderr, one for each line
    limit: int | None = None
    timed: bool = True  # whether the file says when each frame is shown


KEPT_10 = "yuv420p10le is kept"
VIDEOS = {
    "-video-with-dash-.mp4": Expected(5, (1, 1), "yuv444p", lines=("yuv444p is kept",)),
    "04_coffee.mp4": Expected(287, (1280, 720), audio=1),
    "05_default_juggle.mp4": Expected(247, (1280, 720)),
    "av1_video.mkv": Expected(125, (640, 360)),
    "bbb_1920x1080_60fps_vp8.webm": Expected(60, (1920, 1080), audio=1),
    "bear-vp9-odd-dimensions.webm": Expected(30, (162, 122), lines=("161x121 is padded to 162x122",)),
    "bottle-detection.mp4": Expected(1189, (640, 360)),
    "bt709_full_range.mp4": Expected(30, (1280, 720), "yuvj420p"),
    "clip1024.flv": Expected(174, (112, 80)),
    "corrupted.mp4": Expected(49, (1280, 720), damaged=2, lines=("2 frames are damaged or missing, 49 were written",)),
    "dog_eating_854132.mp4": Expected(345, (640, 360)),
    "edit_list_positive_shift.mp4": Expected(60, (1920, 1080), audio=1, limit=60),
    "fixture-raw.mts": Expected(31, (1920, 1080), audio=1),
    "h264_10bits.mp4": Expected(30, (200, 200), "yuv420p10le", lines=(KEPT_10,)),
    "h265_10bits.mp4": Expected(30, (200, 200), "yuv420p10le", lines=(KEPT_10,)),
    "hdr10-av1.mp4": Expected(127, (720, 1280), "yuv420p10le", audio=1, lines=(KEPT_10,)),
    "hlg10-color-test.mp4": Expected(9, (1920, 1080), "yuv420p10le", audio=1, lines=(KEPT_10,)),
    "long_180p_av1.mp4": Expected(100, (320, 180), audio=1, limit=100),
    "nasa_13013.mp4": Expected(100, (480, 270), audio=2, limit=100, lines=("stream 0 (video h264) is left out",)),
    "packed_bframes_test.avi": Expected(90, (1280, 720), timed=False),  # B-frames packed with others have no times
    "portrait_4k60.mp4": Expected(18, (3840, 2160), "yuvj420p", rotation=-90, audio=1),
    "roadtrip-vp92-10bit.webm": Expected(72, (426, 240), "yuv420p10le", lines=(KEPT_10,)),
    "sample-with-large-length.avi": Expected(58, (256, 144), audio=1),
    "sample_fragmented.mp4": Expected(30, (1080, 720), audio=1),
    "sample_h262_mpeg_audio.ts": Expected(3, (640, 426), audio=1),
    "sample_h264.ts": Expected(30, (854, 480)),
    "sample_with_invalid_nalu.mp4": Expected(26, (1080, 720), damaged=4, lines=("4 frames are damaged or missing",)),
    "sample_with_srt.mkv": Expected(30, (1080, 720), audio=1, lines=("stream 2 (subtitle subrip) is left out",)),
    "selfie_segmentation_web.mp4": Expected(100, (640, 360), limit=100),
    "test_res_change.h264": Expected(96, (848, 464), lines=("kept at 848x464",), timed=False),
    "var_fps_video.mp4": Expected(300, (128, 128), "yuv444p", lines=("yuv444p is kept",)),
    "video_90.mov": Expected(3, (568, 320), rotation=-90),
    "water_180_mvhevc_5frames.mov": Expected(5, (1934, 2160), lines=("its second layer (another view, or alpha)",)),
}
REFUSED = {
    "sample_audio_only.mp4": "has no video stream",
    "bear-640x360-v_frag-cbcs.mp4": "is encrypted (DRM), and can't be decoded without its key",
}
# (file, suffix, codec, pixel format of the output): the other containers and codecs, on few frames each.
OTHERS = [
    ("sample_with_srt.mkv", ".mkv", "h264", "yuv420p"),
    ("h264_10bits.mp4", ".mp4", "hevc", "yuv420p10le"),
    ("var_fps_video.mp4", ".mkv", "ffv1", "yuv444p"),
    ("bear-vp9-odd-dimensions.webm", ".mkv", "ffv1", "yuv420p"),
    ("bbb_1920x1080_60fps_vp8.webm", ".webm", None, "yuv420p"),
    ("h265_10bits.mp4", ".webm", None, "yuv420p10le"),
    ("var_fps_video.mp4", ".webm", None, "yuv420p"),
    ("video_90.mov", ".mov", "h264", "yuv420p"),
    ("sample_fragmented.mp4", ".ts", "h264", "yuv420p"),
    ("04_coffee.mp4", ".mkv", "h264", "yuv420p"),
    ("hlg10-color-test.mp4", ".mov", "hevc", "yuv420p10le"),
]


def test_the_table_is_complete(corpus: Path) -> None:
    files = {p.name for p in corpus.iterdir() if p.suffix not in (".md", ".tsv")}
    assert files == VIDEOS.keys() | REFUSED.keys()


LONG = (
    "04_coffee.mp4",
    "05_default_juggle.mp4",
    "bottle-detection.mp4",
    "dog_eating_854132.mp4",
)  # two minutes of work
ALIKE = (  # what is special about them other tests show too
    "av1_video.mkv",
    "bbb_1920x1080_60fps_vp8.webm",
    "bt709_full_range.mp4",
    "edit_list_positive_shift.mp4",
    "fixture-raw.mts",
    "h265_10bits.mp4",
    "hdr10-av1.mp4",
    "hlg10-color-test.mp4",
    "long_180p_av1.mp4",
    "nasa_13013.mp4",
    "packed_bframes_test.avi",
    "portrait_4k60.mp4",
    "roadtrip-vp92-10bit.webm",
    "sample_h264.ts",
    "selfie_segmentation_web.mp4",
    "water_180_mvhevc_5frames.mov",
)
USUAL = [name for name in VIDEOS if name not in LONG + ALIKE]


@pytest.mark.parametrize("name", first(4, [*USUAL, *LONG, *ALIKE]))
def test_video(name: str, corpus: Path, tmp_path: Path) -> None:
    expected, source, target = VIDEOS[name], corpus / name, tmp_path / "out.mp4"
    limit = ("--max-frames", str(expected.limit)) if expected.limit else ()
    result = cli("--json", "--keep-start", "-o", target, *limit, "--", name, cwd=corpus)
    done = report(result, complete=not expected.damaged)
    assert (done["frames"], done["damaged"]) == (expected.frames, expected.damaged)
    lines = result.stderr.splitlines()[:-1]  # the last one tells of success
    said = [line for line in lines if "nobody was found" not in line]
    assert len(said) == len(expected.lines)
    assert all(fragment in line for fragment, line in zip(expected.lines, said, strict=True))

    check_video(source, target, expected.frames, timed=expected.timed)
    first = next(pictures(target))
    assert (first.frame.width, first.frame.height) == expected.size
    assert first.pix_fmt == expected.pix_fmt
    assert first.frame.rotation == expected.rotation
    with av.open(str(target)) as container:
        assert len(container.streams.audio) == expected.audio
    for number in range(expected.audio):
        before, after = packets(source, "audio", number), packets(target, "audio", number)
        assert len(after) == len(before) or expected.limit
        assert same_packets(after, before[: len(after)], Fraction(1, 20_000))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, corpus: Path, tmp_path: Path) -> None:
    result = cli(corpus / name, "-o", tmp_path / "out.mp4")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == f"segmentation: error: {corpus / name}: {REFUSED[name]}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "suffix", "codec", "pix_fmt"), first(1, OTHERS))
def test_other_containers(
    name: str, suffix: str, codec: str | None, pix_fmt: str, corpus: Path, tmp_path: Path
) -> None:
    source, target = corpus / name, tmp_path / f"out{suffix}"
    result = cli("--json", "--max-frames", "20", *(["--codec", codec] if codec else []), "-o", target, source)
    frames = min(20, VIDEOS[name].frames)
    assert report(result)["frames"] == frames
    first = next(pictures(target))
    assert first.pix_fmt == pix_fmt
    if pix_fmt != VIDEOS[name].pix_fmt:
        assert f"{VIDEOS[name].pix_fmt} is converted to {pix_fmt}" in result.stderr
    if suffix != ".ts":  # whose clock begins where its muxer wants; it has neither sizes nor colors of its own
        check_video(source, target, frames)
    with av.open(str(source)) as before, av.open(str(target)) as after:
        assert after.streams.video[0].codec_context.codec.canonical_name == (codec or "av1")
        assert len(after.streams.audio) == len(before.streams.audio)
    if VIDEOS[name].audio and suffix != ".ts":  # where AAC packets need headers
        sound = packets(target, "audio")
        assert sound and same_packets(sound, packets(source, "audio")[: len(sound)])


def check_video(source: Path, target: Path, frames: int, *, timed: bool = True) -> None:
    """The same frames at the same times, if there are any, shown in the same shape and colors."""
    avi = source.suffix == ".avi"  # which stores times in decoding order
    before, after = times(source, limit=None if avi else frames), times(target)
    assert len(after) == frames
    assert not timed or same_times(after, sorted(before) if avi else before, tick(target))
    assert all(a < b for a, b in itertools.pairwise(after))
    one, other = next(pictures(source)).frame, next(pictures(target)).frame
    assert other.rotation == one.rotation
    for tag in ("colorspace", "color_primaries", "color_trc"):
        assert getattr(other, tag) == getattr(one, tag), tag
    # x264 does not write the tag "limited" alone: without a tag, limited is what is meant.
    assert (other.color_range == 2) == (one.color_range == 2)
    with av.open(str(source)) as a, av.open(str(target)) as b:
        ratio = a.streams.best("video").sample_aspect_ratio or 1  # type: ignore[union-attr]
        assert (b.streams.video[0].sample_aspect_ratio or 1) == ratio
