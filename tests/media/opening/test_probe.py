"""A description is the same whether packets and pixels are read for it or not."""

from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from make_variants import VARIANTS
from variants import made

from segmentation.errors import InputError
from segmentation.media.opening import probe as module
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe

SHOWN = (
    "h264-closed.mp4",
    "h264-open.mp4",
    "h264-field-pictures.mp4",
    "h264-fragmented.mp4",
    "h264-priming.mp4",
    "h264-edit-leaves-out.mp4",
    "h264-intra-refresh.mp4",
    "hevc-10-bit.mp4",
    "hevc-edit-begins-late.mp4",
)
OTHERS = [variant.name for variant in VARIANTS if variant.name not in SHOWN and "index-last" not in variant.name]


def described(path: Path) -> dict[str, object]:
    """Returns the fields of a description, or why there is none."""
    try:
        info = probe(str(path))
    except InputError as exc:
        return {"error": str(exc)}
    return {field.name: getattr(info, field.name) for field in fields(info)}


def check(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = described(path)
    monkeypatch.setattr(module, "open_input", lambda source, access, *, brief: open_input(source, access))
    monkeypatch.setattr(module, "without_pixels", lambda codec, packet: b"")
    monkeypatch.setattr(module, "samples_in", lambda video: None)
    assert brief == described(path)


@pytest.mark.parametrize("name", SHOWN)
def test_a_description_needs_no_pixels_and_few_packets(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(made(name, tmp_path), monkeypatch)


@pytest.mark.parametrize("codec", ["mpeg4", "mpeg2video"])
def test_what_packets_alone_tell_is_there_where_sound_begins_first(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "late.mp4"
    with av.open(str(path), "w") as container:
        video, sound = container.add_stream(codec, rate=25), container.add_stream("aac", rate=48000)
        assert isinstance(video, VideoStream) and isinstance(sound, AudioStream)
        video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        noise = AudioFrame.from_ndarray(np.random.default_rng(0).random((2, 4096), np.float32), "fltp", "stereo")
        noise.sample_rate, noise.pts = 48000, 0
        container.mux([*sound.encode(noise), *sound.encode(None)])
        picture = VideoFrame.from_ndarray(np.zeros((96, 64), np.uint8), "yuv420p")
        picture.pts, picture.time_base = 10, Fraction(1, 25)
        container.mux([*video.encode(picture), *video.encode(None)])
    check(path, monkeypatch)
    assert probe(str(path)).chroma_location == "left"


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_descriptions_need_none_either(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(made(name, tmp_path), monkeypatch)
