"""A frame of an open video is decoded from the nearest place before it."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from barcode import read
from numbered import numbered

from segmentation.sessions import open_video
from segmentation.sessions.open_video import OpenVideo
from segmentation.stages.decode import kept_open
from segmentation.stages.decode.kept_open import KeptOpenDecoder
from segmentation.system.access import Access


@pytest.fixture
def sought(monkeypatch: pytest.MonkeyPatch) -> list[KeptOpenDecoder]:
    """The decoders that have sought, once for each time."""
    found: list[KeptOpenDecoder] = []
    real = KeptOpenDecoder._seek
    monkeypatch.setattr(KeptOpenDecoder, "_seek", lambda *given: (found.append(given[0]), real(*given))[1])
    return found


def test_jumps_go_on_from_the_nearest_place(
    sought: list[KeptOpenDecoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = numbered(tmp_path / "a.mp4", 100, options={"g": "1000"})
    monkeypatch.setattr(open_video, "_PLACES", 3)
    with OpenVideo(str(path), Access()) as video:
        for number, seeks in [(90, 1), (50, 2), (10, 3), (60, 3), (20, 3), (95, 3), (5, 4), (25, 4), (65, 4)]:
            frames = video.around("yuv420p", Fraction(2 * number + 1, 60), 0, 0)
            assert [read(np.asarray(frame.planes[0]))[0] for frame in frames] == [number]
            assert len(sought) == seeks, number
        assert len(set(sought)) == 3


def test_steps_back_seldom_seek(sought: list[KeptOpenDecoder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large frames few are kept: each step back decoded all from the keyframe on, by one decoder after the other."""
    path = numbered(tmp_path / "a.mp4", 60, options={"g": "1000", "bf": "3"})
    monkeypatch.setattr(kept_open, "_BYTES", 0)
    with OpenVideo(str(path), Access()) as video:
        for number in range(50, 26, -1):
            frames = video.around("yuv420p", Fraction(2 * number + 1, 60), 2, 2)
            assert [read(np.asarray(frame.planes[0]))[0] for frame in frames] == list(range(number - 2, number + 3))
        assert len(sought) == 4 and len(set(sought)) == 1
