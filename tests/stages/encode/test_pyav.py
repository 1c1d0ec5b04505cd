"""The encoder on the CPU for live sources: frames that it holds back, and where keyframes are."""

import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest
from segmented import batches, moving
from videos import pictures, video_info

from segmentation import Config, OutputError
from segmentation.frames.live_frames import LiveFrames
from segmentation.media.muxer import Muxer
from segmentation.stages.encode.pyav import PyAVEncoder

COUNT = 100


def encoded(folder: Path, config: Config) -> tuple[int, list[Fraction]]:
    """Returns how many of the frames are held back at the end, and the times of the keyframes among all.

    The source states 60 frames a second and has 25.
    """
    info = replace(video_info(time_base=Fraction(1, 1000)), rate=Fraction(60), live=LiveFrames(1.0))
    with Muxer(folder / "out.mkv", info, config) as muxer:
        encoder = PyAVEncoder(muxer, info, "yuv420p", config)
        packets = []
        for batch in batches(moving(COUNT, info, pts=[40 * number for number in range(COUNT)]), 1):
            packets += encoder.encode(batch)
        held = COUNT - len(packets)
        packets += encoder.flush()
    keyframes = [(packet.pts or 0) * packet.time_base for packet in packets if packet.is_keyframe]
    return held, keyframes


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_with_low_delay_no_frame_is_held_back(codec: Literal["h264", "hevc"], tmp_path: Path) -> None:
    config = Config(codec=codec, preset=None if codec == "h264" else "ultrafast")
    assert encoded(tmp_path, config)[0] > 0
    assert encoded(tmp_path, replace(config, low_delay=True))[0] == 0


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_keyframes_are_two_seconds_apart_whatever_rate_is_stated(
    codec: Literal["h264", "hevc"], tmp_path: Path
) -> None:
    keyframes = encoded(tmp_path, Config(codec=codec, preset="ultrafast"))[1]
    assert keyframes[:1] == [0] and {2} <= set(keyframes)


def test_av1_has_a_least_size(tmp_path: Path) -> None:
    """SVT-AV1 would wait for ever for its last packets."""
    info = video_info(width=66, height=16)
    config = Config(codec="av1")
    with Muxer(tmp_path / "out.mkv", info, config) as muxer, pytest.raises(OutputError, match="32 is its least width"):
        PyAVEncoder(muxer, info, "yuv420p", config)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hevc_of_few_frames(tmp_path: Path, count: int) -> None:
    """Without frames for its delay x265 gives dts by chance: many files are made, since some came out well."""
    for number in range(12):
        info = video_info(time_base=Fraction(1, 1000))
        with Muxer(tmp_path / f"{number}.mp4", info, Config(codec="hevc")) as muxer:
            encoder = PyAVEncoder(muxer, info, "yuv420p", Config(codec="hevc"))
            packets = []
            for batch in batches(moving(count, info, pts=[40 * n for n in range(count)]), 1):
                packets += encoder.encode(batch)
            muxer.write(packets + encoder.flush())
            muxer.finish(None)
        assert len(list(pictures(tmp_path / f"{number}.mp4"))) == count


@pytest.mark.parametrize(("codec", "options"), [("hevc", {}), ("h264", {"preset": "none such"})])
def test_a_lack_of_threads_is_no_fault_of_the_codec(
    codec: Literal["h264", "hevc"], options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libx265 would wait for them forever. libx264 has one word for all: it refuses an option here."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    info, config = video_info(), Config(codec=codec)
    with Muxer(tmp_path / "out.mkv", info, config) as muxer:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            PyAVEncoder(muxer, info, "yuv420p", config, options=options)
