"""All stages on videos that are made here, in the codecs and containers that people have. The measure is FFmpeg.

`test_corpus.py` does the same with real files, where there are any.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import pytest
from kept import check_kept_pixels, kept
from marks import first
from paths import SAMPLE
from program import cli, report
from videos import Synthetic, packets, pictures, real_frames, same_packets, same_times, tick, times

from segmentation import segment
from segmentation.media.opening.probe import probe

SIZE, COUNT = (192, 108), 12
SIXTIETH = Fraction(1, 60)
GROUPS = "keyint=6:min-keyint=6:scenecut=0:bframes=2"
# (name, what is made, what it is beyond its codec and format), with somebody in it.
VIDEOS: dict[str, tuple[str, Synthetic]] = {
    "h264 in closed groups": ("a.mp4", Synthetic(codec="libx264", audio="aac", options={"x264-params": GROUPS})),
    "h264 in open groups": (
        "a.mkv",
        Synthetic(codec="libx264", audio="flac", options={"x264-params": f"{GROUPS}:open-gop=1"}),
    ),
    "h264 interlaced": ("a.ts", Synthetic(codec="libx264", audio="mp2", options={"x264-params": "tff=1:keyint=6"})),
    "h264 4:4:4, turned": ("a.mov", Synthetic(codec="libx264", pix_fmt="yuv444p", rotation=180)),
    "h264 in fragments": (
        "a.mp4",
        Synthetic(codec="libx264", audio="aac", container_options={"movflags": "+frag_keyframe+empty_moov"}),
    ),
    "h264 of variable rate": (
        "a.mp4",
        Synthetic(
            codec="libx264", audio="aac", pts=[0, 1, 3, 4, 9, 10, 11, 30, 31, 40, 41, 42], time_base=Fraction(1, 60)
        ),
    ),
    "h264 with an edit list": ("a.mp4", Synthetic(codec="libx264", audio="aac", clock=1.0)),
    "hevc 4:2:2, 10 bits, open groups": (
        "a.mkv",
        Synthetic(
            codec="libx265",
            audio="ac3",
            pix_fmt="yuv422p10le",
            options={"x265-params": "log-level=none:keyint=6:min-keyint=6:bframes=3:open-gop=1"},
        ),
    ),
    "vp8": ("a.webm", Synthetic(codec="libvpx", audio="libopus")),
    "vp9 4:4:4, of odd size": (
        "a.webm",
        Synthetic(codec="libvpx-vp9", audio="libopus", pix_fmt="yuv444p", size=(181, 107)),
    ),
    "av1 10 bits": (
        "a.mp4",
        Synthetic(codec="libsvtav1", audio="aac", pix_fmt="yuv420p10le", options={"preset": "12"}),
    ),
    "mpeg-2": ("a.mpg", Synthetic(codec="mpeg2video", audio="mp2", options={"g": "6", "bf": "2"})),
    "mpeg-4 with B-frames": ("a.avi", Synthetic(codec="mpeg4", audio="libmp3lame", options={"bf": "2"})),
    "mjpeg, full range": ("a.avi", Synthetic(codec="mjpeg", audio="pcm_s16le", pix_fmt="yuvj422p", range=2)),
    "prores 4:2:2, 10 bits": ("a.mov", Synthetic(codec="prores_ks", audio="pcm_s16le", pix_fmt="yuv422p10le")),
    "wmv": ("a.wmv", Synthetic(codec="wmv2", audio="wmav2", audio_bit_rate=128_000)),
    "flv": ("a.flv", Synthetic(codec="flv1", audio="aac")),
}


@pytest.fixture(params=first(len(VIDEOS) // 4, VIDEOS))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(request.param, tmp_path)


def test_what_is_kept_is_what_ffmpeg_decodes(source: Path, tmp_path: Path) -> None:
    """Bit for bit in the pixels of somebody, and at the same times, with the same sound."""
    target = tmp_path / "out.mkv"
    done = segment(source, target, codec="ffv1", mode="baseline", verify=True, keep_start=True)
    assert (done.frames, done.damaged, done.complete) == (COUNT, 0, True)
    check_kept_pixels(source, target, kept(source, tmp_path))
    decoded = list(pictures(source))
    shown = sorted(picture.time for picture in decoded) if source.suffix == ".avi" else [p.time for p in decoded]
    assert same_times(times(target), shown, tick(target))
    one, other = decoded[0].frame, next(pictures(target)).frame
    assert (other.rotation, other.colorspace, other.color_range == 2) == (
        one.rotation,
        one.colorspace,
        one.color_range == 2,
    )
    if sounds(source) and source.suffix != ".wmv":  # whose sound Matroska does not get
        sound, copy = packets(source, "audio"), packets(target, "audio")
        assert sound and same_packets(copy, sound)


def sounds(path: Path) -> bool:
    with av.open(str(path)) as container:
        return bool(container.streams.audio)


def made(kind: str, folder: Path) -> Path:
    """Makes one of the videos."""
    name, clip = VIDEOS[kind]
    size = clip.size if clip.size != Synthetic.size else SIZE
    frames = real_frames(SAMPLE, COUNT, size=size, pix_fmt="yuv444p")
    return replace(clip, frames=frames, pts=clip.pts if len(clip.pts) == COUNT else range(COUNT)).write(folder / name)


def test_the_videos_are_what_their_names_say(tmp_path: Path) -> None:
    assert probe(str(made("h264 interlaced", tmp_path))).interlaced
    assert made("h264 in fragments", tmp_path).read_bytes().count(b"moof") >= 1
    assert times(made("h264 with an edit list", tmp_path))[0] == 1
    odd = probe(str(made("vp9 4:4:4, of odd size", tmp_path)))
    assert (odd.width, odd.height, odd.pix_fmt) == (181, 107, "yuv444p")
    assert probe(str(made("hevc 4:2:2, 10 bits, open groups", tmp_path))).pix_fmt == "yuv422p10le"
    assert probe(str(made("h264 4:4:4, turned", tmp_path))).rotation == 180
    for kind, codec in (("mpeg-2", "mpeg2video"), ("mpeg-4 with B-frames", "mpeg4")):
        with av.open(str(made(kind, tmp_path))) as container:
            video = container.streams.video[0]
            kinds = {int(frame.pict_type) for frame in container.decode(video)}
            assert video.codec_context.name == codec and kinds == {1, 2, 3}  # I, P and B


def test_damage_costs_what_ffmpeg_cannot_decode(tmp_path: Path) -> None:
    frames = real_frames(SAMPLE, 30, size=SIZE, pix_fmt="yuv420p")
    clip = Synthetic(codec="libx264", audio="aac", frames=frames, pts=range(30), options={"x264-params": GROUPS})
    whole = clip.write(tmp_path / "whole.mp4").read_bytes()
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(whole[: len(whole) // 2] + bytes(2_000) + whole[len(whole) // 2 + 2_000 :])
    done = report(cli(broken, "-o", tmp_path / "out.mkv", "--json"), complete=False)
    left, after = sorted(times(broken)), times(tmp_path / "out.mkv")
    assert 10 < done["frames"] == len(left) < 30 == len(left) + done["damaged"]
    # Frames that the decoder puts out late get times within the gap; behind it all have their own again.
    assert all(a < b for a, b in pairwise(after))
    assert same_times(after[:10] + after[-6:], left[:10] + left[-6:], Fraction(1, 1000))
