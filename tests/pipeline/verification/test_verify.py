"""The check of an output finds what is wrong with it, whatever broke it."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from drawn import batch_of, make_info, noise, soft_mask
from marks import first
from paths import SAMPLE
from program import report
from quick import cli, segment
from stages import postprocess
from videos import Synthetic, times, video_info

from segmentation import Config, OutputError
from segmentation.frames import Color, Frame, FrameBatch, VideoInfo
from segmentation.frames.sinks import FinishedBatch
from segmentation.media.muxer import Muxer
from segmentation.pipeline.verification.verify import MOST_MAPS, OutputVerifier
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.postprocess.edge import Edge

Patch = pytest.MonkeyPatch


def test_a_good_output_passes(tmp_path: Path) -> None:
    result = report(cli(SAMPLE, "-o", tmp_path / "out.mp4", "--verify", "--json", "--max-frames", "20"))
    assert result["verified"]["frames"] == result["verified"]["compared"] == 20
    assert 30 < result["verified"]["psnr_least"] <= result["verified"]["psnr_mean"] < 60
    without = report(cli(SAMPLE, "-o", tmp_path / "out.mp4", "-y", "--json", "--max-frames", "2"))
    assert without["verified"] is None


@pytest.mark.parametrize("suffix", [".ts", ".flv"])
def test_an_output_that_cannot_begin_at_0_passes(suffix: str, tmp_path: Path) -> None:
    """Its packets are decoded before they are shown, so all its streams are late by the same time."""
    source = Synthetic(audio="aac", size=(128, 96)).write(tmp_path / "a.mkv")
    output = tmp_path / f"out{suffix}"
    segment(source, output, verify=True, effect="mask")
    assert times(output)[0] > 0


@pytest.mark.parametrize("options", [{"codec": "ffv1"}, {"quality": 0}, {"codec": "hevc", "quality": 0}])
def test_lossless_outputs_keep_every_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    verified = segment(SAMPLE, tmp_path / "out.mkv", verify=True, max_frames=5, **options).verified
    assert verified is not None and verified.compared == 5
    assert verified.psnr_least is None


@pytest.mark.parametrize(
    ("options", "effect"),
    [
        ({"start": 1.5, "duration": 0.7}, "color"),
        ({"max_frames": 9, "quality": 45}, "blur"),
        ({"max_frames": 4}, "mask"),
        ({"max_frames": 4, "invert": True, "feather": 12.0}, "pixelate:60"),
        ({"max_frames": 4, "threshold": 0.2, "quality": 0}, f"image:{SAMPLE.parent.parent / 'docs' / 'demo.png'}"),
        ({"max_frames": 4, "threshold": 0.9, "quality": 0}, f"video:{SAMPLE},contain"),
    ],
)
def test_stretches_effects_and_qualities_pass(tmp_path: Path, options: dict[str, Any], effect: str) -> None:
    verified = segment(SAMPLE, tmp_path / "out.mp4", verify=True, effect=effect, **options).verified
    assert verified is not None and (verified.compared > 0) == (effect != "mask")


@pytest.mark.parametrize(
    "clip",
    [
        Synthetic(pts=[0, 1, 4, 5, 9, 30], audio="aac", codec="libx264"),
        Synthetic(size=(63, 47), pts=range(8), rotation=90, codec="ffv1", range=2, color=(1, 1, 1)),
        Synthetic(pts=range(12), clock=3, audio="aac", aspect=Fraction(4, 3), codec="libx264"),
    ],
    ids=["variable rate and sound", "odd size, turned", "late start"],
)
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_all_kinds_of_clips_pass(tmp_path: Path, clip: Synthetic, suffix: str) -> None:
    source = clip.write(tmp_path / ("in.mov" if clip.rotation and clip.codec != "ffv1" else "in.mkv"))
    verified = segment(source, tmp_path / f"out{suffix}", verify=True).verified
    assert verified is not None and verified.frames == len(clip.pts)


@pytest.mark.parametrize(
    "name",
    first(3, ["corrupted.mp4", "video_90.mov", "sample_h262_mpeg_audio.ts", "04_coffee.mp4", "hdr10-av1.mp4"]),
)
def test_real_files_pass(corpus: Path, tmp_path: Path, name: str) -> None:
    verified = segment(corpus / name, tmp_path / "out.mp4", verify=True, max_frames=60).verified
    assert verified is not None and verified.frames > 0


def broken_frames(patch: Patch, change: Callable[[int, Frame], Frame | None]) -> None:
    """Has every frame changed, or dropped, on its way into the encoder."""
    encode = PyAVEncoder.encode

    def broken(self: PyAVEncoder, batch: FrameBatch) -> list[Any]:
        changed = [change(batch.index + i, frame) for i, frame in enumerate(batch.frames)]
        return encode(self, replace(batch, frames=tuple(frame for frame in changed if frame is not None)))

    patch.setattr(PyAVEncoder, "encode", broken)


def dropped(patch: Patch) -> None:
    broken_frames(patch, lambda number, frame: None if number == 4 else frame)


def last_dropped(patch: Patch) -> None:
    broken_frames(patch, lambda number, frame: None if number == 9 else frame)


def twice(patch: Patch) -> None:
    encode = PyAVEncoder.encode

    def flush(self: PyAVEncoder) -> list[Any]:
        planes = tuple(np.full(shape, 90, np.uint8) for shape in ((360, 640), (180, 320), (180, 320)))
        frame = Frame(planes=planes, pts=10**6, duration=1)  # type: ignore[arg-type]
        return encode(self, FrameBatch(frames=(frame,), index=10)) + self._packets(None)

    patch.setattr(PyAVEncoder, "flush", flush)


def late(patch: Patch) -> None:
    broken_frames(patch, lambda number, frame: replace(frame, pts=frame.pts + (number == 6)))


def brighter(patch: Patch) -> None:
    def change(number: int, frame: Frame) -> Frame:
        y, u, v = frame.planes
        return replace(frame, planes=(np.minimum(y, 240) + 15, u, v)) if number == 7 else frame

    broken_frames(patch, change)


def exchanged(patch: Patch) -> None:
    broken_frames(patch, lambda number, frame: replace(frame, planes=tuple(frame.planes[i] for i in (0, 2, 1))))  # type: ignore[arg-type]


def other(patch: Patch, **changes: Any) -> None:
    made = PyAVEncoder.__init__

    def changed(self: PyAVEncoder, muxer: Muxer, info: VideoInfo, *rest: Any, **options: Any) -> None:
        made(self, muxer, replace(info, **changes), *rest, **options)

    patch.setattr(PyAVEncoder, "__init__", changed)


def soundless(patch: Patch) -> None:
    copy = Muxer._copy_until
    patch.setattr(
        Muxer, "_copy_until", lambda self, seconds, *_: copy(self, min(seconds or Fraction(1), Fraction(1, 10)))
    )


@pytest.mark.parametrize(
    ("damage", "figure"),
    [
        (dropped, "frame 4 is shown at 0.166667 s, not at 0.133333 s"),
        (last_dropped, "holds 9 frames, 10 were written"),
        (twice, "holds more than 10 frames, 10 were written"),
        (late, "frame 6 is shown at 0.200065 s, not at 0.200000 s"),
        (brighter, "kept pixels of frame 7 differ: PSNR 24"),
        (exchanged, "kept pixels of frame 0 differ: PSNR"),
        (lambda patch: other(patch, color=Color(matrix=6, range=1, primaries=1, transfer=1)), "its color is"),
        (lambda patch: other(patch, sample_aspect_ratio=Fraction(4, 3)), "its sample aspect ratio is 4/3, not 1"),
        (
            lambda patch: other(patch, display_matrix=(0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30)),
            "its display matrix is",
        ),
        (soundless, "stream 1 (aac) has 6 packets of the input's 17"),
    ],
    ids=["dropped", "last dropped", "twice", "late", "brighter", "exchanged", "color", "aspect", "turned", "sound"],
)
def test_a_breach_is_told_with_its_figure(
    tmp_path: Path, monkeypatch: Patch, damage: Callable[[Patch], None], figure: str
) -> None:
    damage(monkeypatch)
    output = tmp_path / "out.mp4"
    with pytest.raises(OutputError, match=r"out\.mp4: verification failed, the file is kept: ") as caught:
        segment(SAMPLE, output, verify=True, max_frames=10)
    assert figure in str(caught.value)
    assert caught.value.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out.mp4"]


def test_one_level_in_one_kept_pixel_is_a_breach_of_lossless(tmp_path: Path, monkeypatch: Patch) -> None:
    def change(number: int, frame: Frame) -> Frame:
        y = frame.planes[0].copy()
        y[180, 320] += 1  # in the face
        return replace(frame, planes=(y, *frame.planes[1:]))

    broken_frames(monkeypatch, change)
    with pytest.raises(OutputError, match="kept pixels of frame 0 differ"):
        segment(SAMPLE, tmp_path / "out.mkv", verify=True, codec="ffv1", max_frames=2)


def test_a_verifier_remembers_frames_from_all_over_within_bounds() -> None:
    class Ticks:
        tick = Fraction(1, 30)

        def seconds(self, pts: int) -> Fraction:
            return pts * self.tick

    verifier = OutputVerifier(Ticks(), video_info(), "yuv420p", Config(), "pyav")  # type: ignore[arg-type]
    plane, small = np.zeros((2, 2), np.uint8), np.zeros((1, 2, 2), np.float32)
    for number in range(1000):
        frame = Frame(planes=(plane, plane, plane), pts=number, duration=1)
        frames = FrameBatch(frames=(frame,), index=number)
        verifier.write(FinishedBatch(frames=frames, shown=(np.ones((1, 8, 8), np.float32),), thumbnails=small))
        assert len(verifier._kept) <= MOST_MAPS
    remembered = sorted(verifier._kept)
    assert len(remembered) >= MOST_MAPS // 2
    assert {b - a for a, b in pairwise(remembered)} == {32}
    assert remembered[0] == 0 and remembered[-1] >= 960


@pytest.mark.parametrize(
    ("decoder", "codec", "exact"), [("pyav", "mpeg4", True), ("nvdec", "mpeg4", False), ("nvdec", "h264", True)]
)
def test_what_decoders_may_round_differently_need_not_be_equal(decoder: str, codec: str, exact: bool) -> None:
    class Target:
        codec = "ffv1"

    verifier = OutputVerifier(Target(), video_info(codec=codec), "yuv420p", Config(), decoder)  # type: ignore[arg-type]
    assert (verifier._floor() == math.inf) == exact


def test_only_what_is_kept_all_around_is_compared() -> None:
    mask = np.zeros((8, 8), np.float32)
    mask[2:, 2:] = 1
    mask[5, 5] = 0.76
    expected = np.zeros((8, 8), bool)
    expected[3:, 3:] = True
    expected[4:7, 4:7] = False
    assert np.array_equal(Edge().kept(mask, (64, 64)), expected)
    assert np.array_equal(Edge(invert=True).kept(1 - mask, (64, 64)), expected)
    assert np.array_equal(Edge(threshold=0.3).kept(mask - 0.2, (64, 64)), expected)


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("feather", [0.0, 30.0])
@pytest.mark.parametrize("threshold", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("rotation", [0, 90])
def test_what_is_said_to_be_kept_is_kept(rotation: int, threshold: float, feather: float, invert: bool) -> None:
    """Bit for bit, wherever `verify` would compare; and that is not nowhere."""
    info = make_info(642, 358, Color(matrix=1, range=1), rotation)
    options: dict[str, Any] = {"threshold": threshold, "feather": feather, "invert": invert}
    planes = noise("yuv420p", 642, 358)
    mask = soft_mask(96, 64)[:1]
    result = postprocess("opencv", info, "yuv420p", "blur", batch_of(planes), mask, **options).frames[0].planes
    size = (642, 358) if rotation == 0 else (358, 642)
    kept = Edge(threshold, feather, invert).kept(mask[0], size)
    assert 0.02 < kept.mean() < 0.98
    stored = np.ascontiguousarray(np.rot90(kept, -(rotation // 90))).astype(np.uint8)
    for before, after in zip(planes, result, strict=True):
        area = cv2.resize(stored, before.shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
        assert np.array_equal(before[area], after[area])


def test_a_turn_is_compared_and_not_where_the_turned_picture_lies(tmp_path: Path) -> None:
    """Matroska keeps the one only."""
    clip = Synthetic(codec="libx264", rotation=90).write(tmp_path / "in.mov")
    assert cli(clip, "-o", tmp_path / "a.mkv", "--max-frames", 3, "--verify").returncode == 0
