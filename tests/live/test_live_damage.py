"""MPEG-TS that was damaged on its way, as a live source on the CPU: broken frames are known, and all are counted."""

import io
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation import Segmenter
from segmentation.frames.source import file_address

RATE, GOP, FRAMES, SIZE = 60, 20, 60, (320, 192)
LEN = 188  # bytes of a packet of MPEG-TS
CODECS = {
    "libx264": {"x264-params": "slices=4"},  # as of many cameras
    "libx265": {"x265-params": f"log-level=0:keyint={GOP}:min-keyint={GOP}:scenecut=0"},
}


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=keep, device="cpu", input_size=(64, 64), smooth=0.0, max_delay=10.0) as made:
        made.masks(np.zeros((64, 64, 3), np.uint8))
        yield made


@cache
def sent(codec: str) -> bytes:
    """MPEG-TS of a video of noise, of which each frame takes many packets."""
    random, file = np.random.default_rng(0), io.BytesIO()
    with av.open(file, "w", format="mpegts") as container:
        options = {"g": str(GOP), "preset": "ultrafast", "threads": "1"} | CODECS[codec]
        stream: Any = container.add_stream(codec, rate=RATE, options=options)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for number in range(FRAMES):
            planes = random.integers(0, 256, (SIZE[1] * 3 // 2, SIZE[0]), np.uint8)
            frame = av.VideoFrame.from_ndarray(planes, "yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file.getvalue()


def without_some_packets(data: bytes) -> bytes:
    """All but each 500th packet or so, from the second quarter on."""
    dice, packets = random.Random(1), [data[at : at + LEN] for at in range(0, len(data), LEN)]
    return b"".join(one for at, one in enumerate(packets) if at < len(packets) // 4 or dice.random() > 0.002)


def with_a_broken_keyframe(data: bytes) -> bytes:
    """Its slice's header is overwritten, so that what all frames of its group refer to is missing."""
    _, second, _ = (found.end() for found in re.finditer(b"\0\0\1[\x26\x28\x2a]\1", data))  # IDR and CRA of HEVC
    return data[:second] + b"\xff" * 8 + data[second + 8 :]


def broken(path: Path) -> list[bool]:
    """Whether each frame is, by FFmpeg's demuxer or its decoder in one thread, which is to show all of them."""
    found, incomplete = [], set()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.options = "NONE", {"flags": "+output_corrupt"}
        for packet in container.demux(stream):
            incomplete |= {packet.pts} if packet.is_corrupt else set()
            found += [frame.is_corrupt or frame.pts in incomplete for frame in packet.decode()]
    return found


@pytest.mark.parametrize(
    ("codec", "spoil"),
    [
        ("libx264", without_some_packets),
        ("libx265", without_some_packets),  # the demuxer alone tells of it
        ("libx265", with_a_broken_keyframe),  # the decoder alone
    ],
)
def test_broken_frames_are_shown_and_counted(
    codec: str, spoil: Callable[[bytes], bytes], segmenter: Segmenter, tmp_path: Path
) -> None:
    path = tmp_path / "in.ts"
    path.write_bytes(spoil(sent(codec)))
    found = broken(path)
    left_out = FRAMES - len(found)  # frames of which FFmpeg shows nothing
    assert 0 <= left_out < 5 and 3 < sum(found) < FRAMES
    report = segmenter.run(file_address(path), tmp_path / "out.mkv")
    assert report.received == FRAMES and report.frames == len(found) and report.damaged == sum(found) + left_out
    assert report.dropped == ({"undecodable": left_out} if left_out else {})


@pytest.mark.parametrize("codec", CODECS)
def test_what_comes_before_the_first_whole_group_is_counted(codec: str, segmenter: Segmenter, tmp_path: Path) -> None:
    path, data = tmp_path / "in.ts", sent(codec)
    path.write_bytes(data[len(data) // LEN // 10 * LEN :])
    with av.open(str(path)) as container:
        packets = sum(bool(packet.size) for packet in container.demux(video=0))
    report = segmenter.run(file_address(path), tmp_path / "out.mkv")
    assert report.received == packets > report.frames == FRAMES - GOP
    assert report.dropped == {"undecodable": packets - report.frames} and report.damaged == 0
