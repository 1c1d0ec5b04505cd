"""Which of the found things are covered."""

from pathlib import Path

import numpy as np
import pytest
from videos import video_info

from segmentation import Config, ConfigError
from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import Box, FrameInstances, Instance
from segmentation.tracking.anonymize.corrections import Corrections
from segmentation.tracking.anonymize.cover import CoverBoxes

SIZE = 90, 160  # height, width of masks
INFO = video_info()
LEFT: Box = (0.1, 0.4, 0.2, 0.6)
RIGHT: Box = (0.7, 0.4, 0.8, 0.6)


def face(id: int, box: Box = LEFT) -> Instance:
    return Instance(label="face", score=0.9, box=box, id=id)


def covered(review: str, tmp_path: Path, time: float, one: Instance, **options: tuple[str, ...]) -> bool:
    file = tmp_path / "review.txt"
    file.write_text(review)
    config = Config(anonymize="faces", review=file, **options)  # type: ignore[arg-type]
    return Corrections(config, INFO).covers(one, time)


def test_ids_are_left_or_covered_alone(tmp_path: Path) -> None:
    assert [covered("", tmp_path, 1, face(id), except_=("id:3",)) for id in (0, 2, 3)] == [True, True, False]
    assert [covered("", tmp_path, 1, face(id), only=("id:3", "id:4")) for id in (0, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]


def test_lines_hold_for_their_times_and_a_cover_wins(tmp_path: Path) -> None:
    lines = "leave id:3@1-2\ncover id:3@1.5-\nleave 0%,0%,50%,100%@4-5"
    assert [covered(lines, tmp_path, time, face(3)) for time in (0.5, 1.2, 1.7, 4.5)] == [True, False, True, True]
    assert [covered(lines, tmp_path, 4.5, face(5, box)) for box in (LEFT, RIGHT)] == [False, True]
    assert covered("cover id:3", tmp_path, 0, face(3), except_=("id:3",))


def test_a_review_of_ids_needs_boxes(tmp_path: Path) -> None:
    (tmp_path / "review.txt").write_text("cover 1,1,5,5\nleave id:3")
    config = Config(anonymize="people", review=tmp_path / "review.txt")
    with pytest.raises(ConfigError, match="anonymize people has no boxes to choose from"):
        Corrections(config, INFO)


def test_what_is_left_is_listed_and_covers_nothing_of_another() -> None:
    """A face has no id in its first frame, and its cover before that is no more than what it is left."""
    near: Box = (0.15, 0.4, 0.25, 0.6)
    there = [[face(0)], [face(1), face(2, near)], [face(1), face(2, near)]]
    frames = tuple(Frame(planes=(), pts=round(i / 25 / float(INFO.time_base)), duration=1) for i in range(3))
    nothing = np.zeros(SIZE, np.uint8)
    batch = MaskedBatch(
        frames=FrameBatch(frames=frames, index=0),
        masks=np.zeros((3, *SIZE), np.float32),
        instances=tuple(FrameInstances(instances=tuple(one), first_map=nothing) for one in there),
    )
    step = CoverBoxes(INFO, HostTransfer(), lambda one, time: one.id != 1)
    (made,) = step(iter([batch]))
    masks = np.asarray(made.masks)
    assert made.instances
    assert [{one.id: one.kept for one in frame.instances} for frame in made.instances] == [{1: False, 2: True}] * 3
    assert all(mask[36:54, 24:40].all() for mask in masks[1:]), "the other face is covered where both are"
    assert not masks[:, 40:50, 13:16].any(), "the face that is left is not"
