"""Which doubtful spans a person has decided about."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from videos import video_info

from segmentation import Config
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.tracking.anonymize.doubts import DoubtFinder, DoubtfulSpan
from segmentation.tracking.anonymize.reviewed import Reviewed

GAP = DoubtfulSpan(kind="gap", id=3, begin=1.0, end=2.0, look=1.5, box=(0.4, 0.4, 0.5, 0.6), doubt=1.0)


@pytest.mark.parametrize(
    "review, decided",
    [
        ("cover 40%,40%,10%,20%@1-2", True),
        ("cover 40%,40%,10%,20%", True),
        ("cover 39%,39%,6%,22%\ncover 45%,39%,6%,22%", True),  # both together
        ("cover 40%,40%,8%,20%@1-2", False),  # a part of it is without a cover
        ("cover 40%,40%,10%,20%@1.2-2", False),
        ("cover 40%,40%,10%,20%@1-1.8", False),
        ("cover id:3", False),  # it is covered already, where it is known to be
        ("leave 40%,40%,10%,20%", False),  # what is left is known by its track
    ],
)
def test_a_place_is_decided_where_it_is_covered_whole(review: str, decided: bool, tmp_path: Path) -> None:
    (tmp_path / "review.txt").write_text(review)
    reviewed = Reviewed(Config(anonymize="faces", review=tmp_path / "review.txt"), video_info())
    assert reviewed.decides(GAP, 0.0) is decided
    later = replace(GAP, begin=GAP.begin - 9, end=GAP.end - 9)
    assert reviewed.decides(later, 9.0) is decided


@pytest.mark.parametrize(
    ("kind", "first_and_last", "decided"),
    [
        *(("bare", "1-2.01", True), ("bare", "1-2", False), ("bare", "1.005-3", False)),
        *(("vanishes", "1-2", False), ("vanishes", "1.005-2.01", True)),
        *(("appears", "1.005-2", False), ("appears", "1-2", True)),
    ],
)
def test_frames_without_a_cover_have_to_be_covered(kind: str, first_and_last: str, decided: bool) -> None:
    """A line ends before its second time, so that a head's last frame was seen, and the span counted as reviewed."""
    config = Config(anonymize="faces", region=(f"40%,40%,10%,20%@{first_and_last}",))
    assert Reviewed(config, video_info()).decides(replace(GAP, kind=kind), 0.0) is decided


def test_regions_decide_as_covers_do() -> None:
    config = Config(anonymize="faces", region=("40%,40%,10%,20%@1-2",))
    assert Reviewed(config, video_info()).decides(GAP, 0.0)


def test_a_head_without_a_cover_may_be_left(tmp_path: Path) -> None:
    (tmp_path / "review.txt").write_text("leave 40%,40%,10%,20%@0:01-0:03")
    reviewed = Reviewed(Config(anonymize="heads", review=tmp_path / "review.txt"), video_info())
    assert reviewed.decides(replace(GAP, kind="bare", id=0), 0.0)
    assert reviewed.decides(replace(GAP, kind="bare", id=0, end=3.003), 0.0), "as the report rounds"
    assert not reviewed.decides(replace(GAP, kind="bare", id=0, end=3.5), 0.0)


@pytest.mark.parametrize(("last_left", "left"), [(30, True), (20, False)])
def test_a_track_is_left_where_nothing_of_the_span_is_covered(last_left: int, left: bool) -> None:
    finder = DoubtFinder()
    for number in range(50):
        score = 0.0 if 10 < number < 25 else 0.9
        one = Instance(label="face", score=score, box=GAP.box, id=3, kept=number > last_left)
        finder.add(number / 25, FrameInstances(instances=(one,), first_map=np.zeros((9, 16), np.uint8)))
    (gap,) = finder.doubts()
    assert gap.kind == "gap" and finder.is_left(gap) is left
