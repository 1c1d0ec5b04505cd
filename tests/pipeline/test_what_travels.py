"""What travels with the pictures goes on into the output, or a line says that it does not."""

import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import photos
import pytest
from drawn import ORIENTATIONS, display_matrix
from flv import without_early_sound
from marks import first
from messages import CAPTIONS, carrying, with_captions
from quick import cli
from videos import Synthetic, pictures

from segmentation import Segmenter
from segmentation.frames import Message
from segmentation.frames.orientation import Orientation
from segmentation.media.bitstream.sei import LIGHT_LEVEL, MASTERING_DISPLAY, MessageReader, side_data
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe

BASELINE: dict[str, Any] = {"mode": "baseline", "infer": "onnxruntime"}
LIGHT: list[Message] = [
    (MASTERING_DISPLAY, struct.pack(">8H2I", 13250, 34500, 7500, 3000, 34000, 16000, 15635, 16450, 10_000_000, 1)),
    (LIGHT_LEVEL, struct.pack(">2H", 1000, 400)),
]


def captions(path: Path) -> list[bytes]:
    """Returns the captions of each frame, in the order in which they are shown, as FFmpeg reads them."""
    return [b"".join(side_data(shown.frame).get("A53_CC", [])) for shown in pictures(path)]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize(
    "how", first(2, [["--encode", "x264"], ["--encode", "x264-segments"], ["--workers", "local:2"]]), ids=str
)
def test_captions_stay_with_their_frames(tmp_path: Path, how: list[str], codec: str) -> None:
    source = with_captions(tmp_path / "a.mp4")
    assert captions(source) == CAPTIONS
    done = cli(source, "-o", tmp_path / "b.mp4", "--codec", codec, *how)
    assert done.returncode == 0, done.stderr
    assert captions(tmp_path / "b.mp4") == CAPTIONS and "left out" not in done.stderr


def test_captions_that_a_codec_has_no_place_for_are_said(tmp_path: Path) -> None:
    done = cli(with_captions(tmp_path / "a.mp4"), "-o", tmp_path / "b.webm", "--effect", "mask")
    assert done.returncode == 0
    assert done.stderr.count("its closed captions (A/53) are left out, since av1 has no place for them") == 1


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_decoder_without_side_data_finds_them_in_the_packets(tmp_path: Path, codec: str) -> None:
    source = with_captions(tmp_path / "a.ts", codec)
    reader = MessageReader(probe(str(source)))
    with av.open(str(source)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        found = {packet.pts: reader.of_packet(packet) for packet in packets}  # type: ignore[arg-type]
    shown = [message for pts in sorted(found) for _, message in found[pts]]  # type: ignore[type-var]
    assert [message[10:13] for message in shown] == CAPTIONS


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_hdr10_metadata_and_the_place_of_chroma_stay(tmp_path: Path, codec: str) -> None:
    place = {"x264-params": "chromaloc=2"}
    source = carrying(tmp_path / "a.mp4", {0: LIGHT}, **place)
    info = probe(str(source))
    assert info.light == tuple(LIGHT) and info.chroma_location == "topleft"
    assert cli(source, "-o", tmp_path / "b.mp4", "--codec", codec).returncode == 0
    made = probe(str(tmp_path / "b.mp4"))
    assert made.light == info.light and made.chroma_location == info.chroma_location


def test_hdr10_metadata_of_av1(tmp_path: Path) -> None:
    source = carrying(tmp_path / "a.mp4", {0: LIGHT})
    assert cli(source, "-o", tmp_path / "b.webm").returncode == 0
    (display, level) = probe(str(tmp_path / "b.webm")).light
    before, after = (struct.unpack(">8H2I", message[1]) for message in (LIGHT[0], display))
    assert level == LIGHT[1]
    assert max(abs(a - b) for a, b in zip(before[:9], after[:9], strict=True)) <= 1  # in fixed point


@pytest.mark.parametrize("suffix", [".mp4", ".mov"])
def test_quicktime_keys_stay(tmp_path: Path, suffix: str) -> None:
    tags = {"com.apple.quicktime.make": "Ours", "com.android.version": "14", "title": "T"}
    clip = Synthetic(codec="libx264", pts=range(3), metadata=tags)
    clip.container_options = {"movflags": "use_metadata_tags"}
    source = clip.write(tmp_path / "a.mov")
    assert cli(source, "-o", tmp_path / f"b{suffix}").returncode == 0
    with av.open(str(tmp_path / f"b{suffix}")) as made:
        assert tags.items() <= made.metadata.items()


def test_a_sample_aspect_that_changes_is_an_incomplete_output(tmp_path: Path) -> None:
    parts = [
        Synthetic(codec="mpeg2video", aspect=Fraction(*aspect), pts=range(6)).write(tmp_path / f"{aspect[0]}.ts")
        for aspect in ((16, 9), (1, 1))
    ]
    source = tmp_path / "a.ts"
    source.write_bytes(b"".join(part.read_bytes() for part in parts))
    done = cli(source, "-o", tmp_path / "b.mp4", "--verify")
    assert done.returncode == 4 and done.stderr.count("the sample aspect ratio changes from") == 1


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_pictures_that_are_turned_otherwise_are_said(suffix: str, tmp_path: Path) -> None:
    for number in range(6):
        photos.write(tmp_path / f"{number:03}{suffix}", photos.photo(96, 64), orientation=6 if number == 3 else 1)
    done = cli(tmp_path / f"%03d{suffix}", "-o", tmp_path / "out.mp4", "--device", "cpu")
    assert done.returncode == 4 and done.stderr.count("to be turned otherwise than the first") == 1, done.stderr


def test_a_matrix_that_changes_is_converted_to_the_first(tmp_path: Path) -> None:
    green = np.zeros((48, 64, 3), np.uint8)
    green[..., 1] = 200
    parts = []
    for matrix, name in ((1, "ITU709"), (6, "ITU601")):
        frame = av.VideoFrame.from_ndarray(green, "rgb24").reformat(format="yuv420p", dst_colorspace=name)
        clip = Synthetic(frames=[frame] * 4, pts=range(4), codec="libx264", color=(matrix, 2, 2), options={"qp": "0"})
        parts.append(clip.write(tmp_path / f"{matrix}.ts"))
    source = tmp_path / "a.ts"
    source.write_bytes(b"".join(part.read_bytes() for part in parts))
    with Segmenter(**BASELINE) as segmenter:
        shown = [frame.image.reshape(-1, 3).mean(0) for frame in segmenter.frames(source)]
    assert len(shown) == 8 and np.abs(np.array(shown) - (0, 200, 0)).max() < 4


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_frames_are_seen_as_players_show_them(tmp_path: Path, shown: Orientation) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24, :32] = 200
    frames = [av.VideoFrame.from_ndarray(picture, "rgb24")]
    clip = Synthetic(frames=frames, pts=[0], codec="libx264", matrix=display_matrix(shown))
    source = clip.write(tmp_path / "a.mp4")
    with Segmenter(**BASELINE) as segmenter:
        (frame,) = segmenter.frames(source)
    difference = np.abs(frame.image.astype(int) - shown.upright(picture))
    assert cv2.erode(difference.astype(np.uint8), np.ones((3, 3))).max() < 8


def test_sound_that_begins_late_is_kept_where_nothing_announces_it(tmp_path: Path) -> None:
    """FFmpeg looks 5 s ahead by itself."""
    whole = Synthetic(codec="libx264", pts=range(300), gop=50, audio="aac").write(tmp_path / "whole.flv")
    (tmp_path / "late.flv").write_bytes(without_early_sound(whole.read_bytes(), 8000))
    pictures = Synthetic(codec="mpeg2video", pts=range(200), gop=50).write(tmp_path / "pictures.mpg")
    both = Synthetic(codec="mpeg2video", pts=range(100), gop=50, audio="mp2").write(tmp_path / "both.mpg")
    (tmp_path / "late.mpg").write_bytes(pictures.read_bytes() + both.read_bytes())
    for name in ("late.flv", "late.mpg"):
        with open_input(str(tmp_path / name)) as container:
            assert len(container.streams) == 2
            (sound,) = container.streams.audio
            begin = next(packet.pts for packet in container.demux(sound) if packet.pts is not None)
            assert begin * sound.time_base > (7.9 if name == "late.flv" else 0), name
