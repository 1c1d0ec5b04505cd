"""What `--anonymize` covers: what was found, and what must be there between and around it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from videos import video_info

from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import Box, FrameInstances, Instance
from segmentation.tracking.anonymize.cover import CoverBoxes, CoverMasks, cover_alone
from segmentation.tracking.tracker import Tracker

SIZE = 90, 160  # height, width of masks
INFO = video_info()
RATE = float(1 / INFO.time_base)  # ticks a second
BOX: Box = (0.4, 0.4, 0.5, 0.6)


def face(box: Box = BOX, id: int = 1, score: float = 0.9) -> Instance:
    return Instance(label="face", score=score, box=box, id=id)


def batches(found: list[list[Instance]], frames_a_second: int = 25, length: int = 4) -> Iterator[MaskedBatch]:
    nothing = np.zeros(SIZE, np.uint8)
    for first in range(0, len(found), length):
        part = found[first : first + length]
        pts = [round((first + i) * RATE / frames_a_second) for i in range(len(part))]
        frames = tuple(Frame(planes=(), pts=at, duration=1) for at in pts)
        yield MaskedBatch(
            frames=FrameBatch(frames=frames, index=first),
            masks=np.zeros((len(part), *SIZE), np.float32),
            instances=tuple(FrameInstances(instances=tuple(one), first_map=nothing) for one in part),
        )


def covered(found: list[list[Instance]], **options: int) -> NDArray[np.float32]:
    step = CoverBoxes(INFO, HostTransfer())
    return np.concatenate([np.asarray(batch.masks) for batch in step(batches(found, **options))])


def share_of(mask: NDArray[np.float32], box: Box = BOX) -> float:
    """How much of a box is covered."""
    left, top, right, bottom = (
        round(side * sides) for side, sides in zip(box, (*SIZE[::-1], *SIZE[::-1]), strict=True)
    )
    return float((mask[top:bottom, left:right] > 0.5).mean())


def test_all_of_the_box_is_covered_and_not_much_more() -> None:
    (mask,) = covered([[face()]])
    assert share_of(mask) == 1
    assert mask.sum() < 2.2 * 16 * 18


def test_gaps_are_filled_where_the_track_goes() -> None:
    moved: Box = (0.7, 0.4, 0.8, 0.6)
    masks = covered([[face()], *[[]] * 9, [face(moved)]])
    half: Box = (0.55, 0.4, 0.65, 0.6)
    assert share_of(masks[5], half) == 1 and share_of(masks[5], BOX) < 0.5
    assert all(mask.any() for mask in masks)


def test_a_box_that_jumps_is_covered_where_it_was_expected_too() -> None:
    jumped: Box = (0.46, 0.45, 0.52, 0.6)
    found = [[face()], [face(jumped)], [face()], *[[]] * 20, [face(jumped)]]
    step = CoverBoxes(INFO, HostTransfer())
    made = list(step(batches(found, length=1)))
    masks = [np.asarray(batch.masks)[0] for batch in made]
    assert share_of(masks[1]) == share_of(masks[1], jumped) == 1 and share_of(masks[0], (0.5, 0.4, 0.53, 0.6)) < 1
    assert [batch.instances[0].instances[0].box for batch in made[:3]] == [BOX, jumped, BOX], "what was found stays"
    assert masks[2].sum() == masks[0].sum(), "the next box is too far away in time"


def test_a_gap_of_more_than_a_second_is_two_appearances() -> None:
    masks = covered([[face()], [face()], *[[]] * 40, [face()], [face()]])
    there = [bool(mask.any()) for mask in masks]
    assert there[:7] == [True] * 7 and there[-7:] == [True] * 7 and not any(there[12:30])


def test_a_track_is_covered_before_its_first_and_behind_its_last_box() -> None:
    masks = covered([*[[]] * 20, [face()], [face()], *[[]] * 20])
    there = [bool(mask.any()) for mask in masks]
    assert there == [False] * 15 + [True] * 12 + [False] * 15


def test_a_doubtful_box_without_a_track_is_covered_alone() -> None:
    masks = covered([[], [face(id=0, score=0.35)], []])
    assert [bool(mask.any()) for mask in masks] == [False, True, False]


def test_of_a_track_of_doubtful_boxes_short_gaps_alone_are_filled() -> None:
    one = face(score=0.35)
    masks = covered([[], [one], *[[]] * 4, [one], *[[]] * 5, [one], []])
    assert [bool(mask.any()) for mask in masks] == [False, *[True] * 6, *[False] * 5, True, False]
    masks = covered([[], [one], *[[]] * 5, [face(score=0.4)], []])
    assert all(bool(mask.any()) for mask in masks), "one better box is enough for all of the track"


def test_a_doubtful_box_holds_those_of_its_track_that_are_near() -> None:
    moved: Box = (0.46, 0.4, 0.56, 0.6)
    for score, held in ((0.55, True), (0.6, False)):
        masks = covered([[face(score=score)], [], [face(moved)], *[[]] * 4, [face((0.7, 0.4, 0.8, 0.6))]])
        assert (share_of(masks[0], moved) == 1) == held and share_of(masks[2], moved) == 1
        assert share_of(masks[0], (0.7, 0.4, 0.8, 0.6)) == 0, "too far away in time"


@pytest.mark.parametrize("length", [1, 3, 16, 64])
def test_batches_change_nothing(length: int) -> None:
    found = [[], [face()], [], [face((0.5, 0.4, 0.6, 0.6))], [], [], [face(id=2)], [], *[[]] * 30, [face(id=2)]]
    np.testing.assert_array_equal(covered(found, length=length), covered(found, length=2))


def test_instances_have_what_is_supposed_too() -> None:
    step = CoverBoxes(INFO, HostTransfer())
    (batch,) = step(batches([[face()], [], [face()]]))
    assert batch.instances
    assert [[(one.id, one.score) for one in frame.instances] for frame in batch.instances] == [
        [(1, 0.9)], [(1, 0.0)], [(1, 0.9)],
    ]  # fmt: skip
    assert all((frame.label_map == 1).any() for frame in batch.instances)


def test_masks_of_people_hold_those_around_them_and_grow() -> None:
    masks = np.zeros((8, *SIZE), np.float32)
    masks[4, 40:50, 70:80] = 0.9
    frames = tuple(Frame(planes=(), pts=i, duration=1) for i in range(8))
    for length in (1, 3, 8):
        parts = [
            MaskedBatch(frames=FrameBatch(frames=frames[i : i + length], index=i), masks=masks[i : i + length])
            for i in range(0, 8, length)
        ]
        step = CoverMasks(INFO, HostTransfer())
        grown = np.concatenate([np.asarray(batch.masks) for batch in step(iter(parts))])
        assert [bool(mask.any()) for mask in grown] == [False, False, True, True, True, True, True, False]
        assert grown[4, 39:51, 70:80].min() == np.float32(0.9)


def test_pictures_are_covered_without_frames_around() -> None:
    (batch,) = batches([[face()]])
    assert share_of(np.asarray(cover_alone(batch, HostTransfer()).masks)[0]) == 1


def test_what_is_to_be_covered_begins_a_track_at_any_score() -> None:
    """Of faces that are small or turned away, no box may be sure."""
    label_map = np.zeros(SIZE, np.uint8)
    label_map[36:54, 64:80] = 1
    frame = FrameInstances(instances=(face(id=0, score=0.35),), first_map=label_map)
    for covering in (False, True):
        tracker = Tracker(moving=True, split=False, covering=covering)
        assert [tracker.update(frame, i / 25).instances[0].id for i in range(3)] == [int(covering)] * 3


def test_a_frame_waits_no_longer_than_it_may() -> None:
    """Of 25 frames a second those of 0.4 s are ten, and of a source of any rate as many as it hands out."""
    seen: list[int] = []

    def counted() -> Iterator[MaskedBatch]:
        for batch in batches([[face()]] * 200, length=1):
            seen.append(batch.frames.index)
            yield batch

    waits = [seen[-1] - made.frames.index for made in CoverBoxes(INFO, HostTransfer(), ahead=0.4)(counted())]
    assert max(waits) in (10, 11), "times are rounded"


def test_a_frame_without_numbers_stays_one() -> None:
    """Whatever covers it whole comes later, and counts it."""
    (batch,) = batches([[face()], [], []])
    assert batch.instances
    unknown = tuple(replace(one, unknown=number == 1) for number, one in enumerate(batch.instances))
    batch = replace(batch, instances=unknown)
    for made in (next(iter(CoverBoxes(INFO, HostTransfer())(iter([batch])))), cover_alone(batch, HostTransfer())):
        assert np.isnan(np.asarray(made.masks)).any(axis=(1, 2)).tolist() == [False, True, False]
        assert [one.unknown for one in made.instances] == [False, True, False]


def test_a_cover_is_the_same_wherever_other_covers_lie() -> None:
    """The part of the pictures that has covers is drawn alone, and its corner moves with them."""
    here, there = face((0.613, 0.427, 0.702, 0.611)), face((0.013, 0.027, 0.102, 0.211), id=2)
    (alone,), (both,), (other,) = covered([[here]]), covered([[here, there]]), covered([[there]])
    assert np.array_equal(both, np.maximum(alone, other)) and alone.any() and other.any()
    assert not covered([[face((1.3, 0.4, 1.4, 0.5))], []]).any(), "it lies beside the picture"
