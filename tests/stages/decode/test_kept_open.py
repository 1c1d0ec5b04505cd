"""Frames around a time, in any order, are those of a decode from the beginning to the end."""

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from barcode import read
from numbered import numbered

from segmentation.media.opening.probe import probe
from segmentation.options.config import Config
from segmentation.stages.decode.chunks import read as read_packets
from segmentation.stages.decode.kept_open import KeptOpenDecoder
from segmentation.stages.decode.pyav import PyAVDecoder

FRAMES = 50
SLOW = [number + 25 * (number > 20) + 40 * (number > 33) for number in range(FRAMES)]  # 30ths of a second, with gaps
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "one keyframe": ("a.mp4", {"options": {"g": "1000", "bf": "3"}}),
    "open groups": ("a.mkv", {"options": {"g": "12", "bf": "3", "x264-params": "open-gop=1"}}),
    "gaps": ("a.mp4", {"options": {"g": "20", "bf": "3"}, "times": SLOW}),
    "gaps and keyframes alone": ("a.mkv", {"options": {"g": "1"}, "times": SLOW}),
    "transport stream": ("a.ts", {"options": {"g": "15", "bf": "2"}}),
    "AVI": ("a.avi", {"codec": "mpeg4", "options": {"g": "12"}}),
    "AVI with B-frames": ("a.avi", {"codec": "mpeg4", "options": {"g": "12", "bf": "2"}}),
    "VP9": ("a.webm", {"codec": "libvpx-vp9", "options": {"g": "20", "deadline": "realtime", "cpu-used": "8"}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_frames_in_any_order(kind: str, tmp_path: Path) -> None:
    name, options = KINDS[kind]
    info = probe(str(numbered(tmp_path / name, FRAMES, **options)))
    (whole,) = PyAVDecoder(info, "yuv420p", Config(batch_size=FRAMES))
    times = [frame.pts * info.time_base - info.start for frame in whole.frames]
    decoder = KeptOpenDecoder(info, "yuv420p")
    chance = random.Random(7)
    wanted = [*chance.sample(range(FRAMES), 20), *range(30, 24, -1), *range(10, 16), 49, 0, 49]
    for number in wanted:
        before, after = chance.choice([(0, 0), (2, 2), (5, 2)])
        frames = decoder.around(times[number] + Fraction(1, 60), before, after)
        numbers = [read(np.asarray(frame.planes[0]))[0] for frame in frames]
        assert numbers == list(range(max(0, number - before), min(FRAMES, number + after + 1))), (number, before, after)
    decoder.close()


def test_a_stretch_of_an_avi_has_the_times_of_the_whole(tmp_path: Path) -> None:
    info = probe(str(numbered(tmp_path / "a.avi", FRAMES, "mpeg4", {"g": "12", "bf": "2"})))
    (whole,) = PyAVDecoder(info, "yuv420p", Config(batch_size=FRAMES))
    (part,) = PyAVDecoder(info, "yuv420p", Config(batch_size=FRAMES, start=20 / 30))
    times = {read(np.asarray(frame.planes[0]))[0]: frame.pts for frame in whole.frames}
    assert {read(np.asarray(frame.planes[0]))[0]: frame.pts for frame in part.frames}.items() <= times.items()


def test_packets_of_an_avi_with_b_frames_are_read_from_its_beginning(tmp_path: Path) -> None:
    """Which frame has the time of a packet depends on all packets before."""
    info = probe(str(numbered(tmp_path / "a.avi", FRAMES, "mpeg4", {"g": "12", "bf": "2"})))
    assert [bytes(packet) for packet in read_packets(info, 20)] == [
        bytes(packet) for packet in read_packets(info, None)
    ]


def test_frames_that_follow_come_without_a_seek(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = numbered(tmp_path / "a.mp4", FRAMES, options={"g": "1000"})
    decoder = KeptOpenDecoder(probe(str(path)), "yuv420p")
    sought: list[int] = []
    real = KeptOpenDecoder._seek
    monkeypatch.setattr(KeptOpenDecoder, "_seek", lambda *given: (sought.append(given[1]), real(*given))[1])
    for number in (5, 6, 7, 6, 12, 30, 29, 44):
        decoder.around(Fraction(number, 30), 2, 2)
    assert len(sought) == 1
    decoder.around(Fraction(5, 30), 2, 2)
    assert len(sought) == 2
    decoder.close()
