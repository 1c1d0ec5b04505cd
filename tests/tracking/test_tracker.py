"""Ids over time, on drawn figures whose ways are known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation.frames.instances import FrameInstances, Instance
from segmentation.tracking.color_histograms import Colors, color_bins
from segmentation.tracking.components import components, shares
from segmentation.tracking.tracker import Tracker

SIZE = (120, 200)  # height, width of the masks
RATE = 25
Figure = tuple[int, int, int, int]  # left, top, right, bottom


def mask(*figures: Figure) -> NDArray[np.float32]:
    """Returns a mask with rectangles; parts beyond its border are cut off."""
    result = np.zeros(SIZE, np.float32)
    for left, top, right, bottom in figures:
        result[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = 0.9
    return result


def found(*figures: Figure) -> FrameInstances:
    return components(mask(*figures), None, ["person"], 0.5)


def ids_at(frame: FrameInstances, *points: tuple[int, int]) -> list[int]:
    """Returns the ids at some pixels (x, y); -1 where nothing is."""
    numbers = [int(frame.label_map[y, x]) for x, y in points]
    return [frame.instances[n - 1].id if n else -1 for n in numbers]


def walker(column: int, top: int = 30, bottom: int = 100) -> Figure:
    return column - 12, top, column + 12, bottom


def test_people_who_pass_each_other_keep_their_ids_and_their_parts_of_the_common_component() -> None:
    tracker, first = Tracker(moving=True, split=True), []
    for n in range(61):
        # The right one is nearer: larger, and its feet are lower.
        left, right = 20 + 2 * n, 180 - 2 * n
        frame = tracker.update(found(walker(left), walker(right, 20, 110)), n / RATE)
        if n >= 2 and abs(left - right) > 30:
            assert sorted(ids_at(frame, (left, 60), (right, 60))) == [1, 2]
            first = first or ids_at(frame, (left, 60), (right, 60))
            assert ids_at(frame, (left, 60), (right, 60)) == first, n
        if 10 < abs(left - right) < 24:  # one component, two instances
            assert len(frame.instances) == 2
            assert ids_at(frame, (left + (10 if left > right else -10), 60)) == first[:1]


def test_an_id_is_never_given_twice() -> None:
    tracker, seen = Tracker(moving=True, split=True), []
    for n in range(5):
        for k in range(5):
            frame = tracker.update(found(walker(40 + 30 * n)), 10.0 * n + k / RATE)
        seen += [one.id for one in frame.instances]
    assert seen == [1, 2, 3, 4, 5]


def test_a_thing_gets_its_id_in_its_second_frame_but_at_once_in_the_first_frame_of_a_run() -> None:
    tracker = Tracker(moving=True, split=True)
    assert [one.id for one in tracker.update(found(walker(40)), 0.0).instances] == [1]
    later = [tracker.update(found(walker(40), walker(150)), n / RATE) for n in (1, 2)]
    assert [ids_at(frame, (40, 60), (150, 60)) for frame in later] == [[1, 0], [1, 2]]


@pytest.mark.parametrize(("seconds", "kept"), [(0.6, True), (1.5, False)])
def test_who_is_lost_for_less_than_a_second_comes_back_with_the_same_id(seconds: float, kept: bool) -> None:
    tracker = Tracker(moving=True, split=True)
    for n in range(10):
        tracker.update(found(walker(40 + 2 * n)), n / RATE)
    for n in range(1, int(seconds * RATE)):
        tracker.update(found(), (9 + n) / RATE)
    place = 58 + round(seconds * RATE * 2)
    for n in range(3):
        frame = tracker.update(found(walker(place + 2 * n)), 9 / RATE + seconds + n / RATE)
    assert [one.id for one in frame.instances] == [1 if kept else 2]


def test_pieces_of_one_thing_are_one_instance() -> None:
    tracker = Tracker(moving=True, split=True)
    for n in range(20):
        body = walker(60 + n)
        # From frame 10 on a bar before the body parts it.
        parts = [body] if n < 10 else [(*body[:3], 62), (body[0], 68, *body[2:])]
        frame = tracker.update(found(*parts), n / RATE)
        assert [one.id for one in frame.instances] == [1]
    assert ids_at(frame, (79, 40), (79, 90)) == [1, 1]


def test_head_and_legs_that_come_into_the_picture_apart_become_one() -> None:
    tracker = Tracker(moving=True, split=True)
    tracker.update(found(), 0.0)
    for n in range(1, 30):
        head, legs = (2 * n - 24, 30, 2 * n, 60), (2 * n - 24, 62 if n < 8 else 60, 2 * n, 100)
        frame = tracker.update(found(head, legs), n / RATE)
    assert len(frame.instances) == 1 and frame.instances[0].id > 0


def test_motion_tells_apart_whom_overlap_alone_confuses() -> None:
    """At 12 pixels a frame, each of two equal figures is nearer to the other's last place when they have passed."""

    def ids(*, moving: bool) -> list[list[int]]:
        tracker = Tracker(moving=moving, split=False)
        frames = []
        for n in range(12):
            figures = (walker(30 + 12 * n, 30, 70), walker(170 - 12 * n, 34, 74))
            boxes = [shares((slice(f[1], f[3]), slice(f[0], f[2])), SIZE) for f in figures]
            given = tuple(Instance(label="person", score=0.9, box=box) for box in boxes)
            frame = tracker.update(FrameInstances(instances=given, first_map=np.zeros(SIZE, np.uint8)), n / RATE)
            frames.append([one.id for one in frame.instances])
        return frames

    assert ids(moving=True) == [[1, 2]] * 12
    assert ids(moving=False) != [[1, 2]] * 12


def test_colors_tell_who_is_who_after_a_meeting() -> None:
    """Two who meet, stand together and go back where they came from look like two who have passed each other."""

    def colors(left: int, right: int) -> Colors:
        samples = np.full((3, 1, *SIZE), 128, np.uint8)
        samples[1, 0, :, : (left + right) // 2], samples[1, 0, :, (left + right) // 2 :] = 90, 170
        return color_bins(samples[:, 0])

    def ids(*, colored: bool) -> tuple[list[int], list[int]]:
        tracker = Tracker(moving=True, split=True)
        for n in range(70):
            step = min(n, 69 - n)
            left, right = 40 + 2 * min(step, 29), 160 - 2 * min(step, 29)
            frame = tracker.update(
                found(walker(left), walker(right)), n / RATE, colors(left, right) if colored else None
            )
            if n == 5:
                first = ids_at(frame, (left, 60), (right, 60))
        return first, ids_at(frame, (left, 60), (right, 60))

    before, after = ids(colored=True)
    assert before == after
    before, after = ids(colored=False)
    assert before == after[::-1]


def test_colors_tell_who_has_left_while_the_others_stay_together() -> None:
    """Two go behind a third, who stays; the one of them that comes out again is the one that it looks like."""

    def ids(leaver: int) -> tuple[list[int], int]:
        shades = (60, 200, 128)  # of the two and of the third
        tracker = Tracker(moving=True, split=True)
        for n in range(90):
            step = min(n, 30)
            two = [20 + 2 * step, 180 - 2 * step]  # at the third in the end
            if n >= 60:  # out again, to the right
                two[leaver] = 110 + 2 * (n - 60)
            samples = np.full((3, 1, *SIZE), 128, np.uint8)
            for column, shade in zip((*two, 100), shades, strict=True):
                left, top, right, bottom = walker(column)
                samples[1, 0, top:bottom, left:right] = shade
            figures = (*map(walker, two), walker(100, 20, 110))
            frame = tracker.update(found(*figures), n / RATE, color_bins(samples[:, 0]))
            if n == 5:
                before = ids_at(frame, (two[0], 60), (two[1], 60))
        return before, ids_at(frame, (two[leaver], 60))[0]

    for leaver in (0, 1):
        before, after = ids(leaver)
        assert after == before[leaver], leaver


def test_who_comes_out_far_from_the_place_that_was_guessed_keeps_the_id() -> None:
    """One stands behind another, whose coat beside them looks like the one behind until that one is elsewhere."""
    tracker = Tracker(moving=True, split=True)
    for n in range(70):
        column = min(30 + 2 * n, 100) if n < 60 else 146
        coat = [(80, 40, 126, 100)] if n > 30 else []
        frame = tracker.update(found(walker(column), walker(100, 20, 110), *coat), n / RATE)
        if n == 5:
            first = ids_at(frame, (column, 60), (100, 60))
    assert ids_at(frame, (column, 60), (100, 60)) == first


def test_where_two_overlap_colors_say_who_is_in_front() -> None:
    """The one whose feet are higher, as on a step, goes in front of the other."""

    def overlap(*, colored: bool) -> tuple[int, list[int]]:
        tracker = Tracker(moving=True, split=True)
        for n in range(36):
            left, right = 30 + 2 * n, 110
            samples = np.full((3, 1, *SIZE), 128, np.uint8)
            samples[1, 0, 30:110, right - 12 : right + 12] = 200
            samples[1, 0, 20:100, left - 12 : left + 12] = 60  # it covers the other
            colors = color_bins(samples[:, 0]) if colored else None
            frame = tracker.update(found(walker(left, 20, 100), walker(right, 30, 110)), n / RATE, colors)
            if n == 5:
                first = ids_at(frame, (left, 60), (right, 60))
        assert left + 12 > right - 12 + 10, "they overlap"
        (inside,) = ids_at(frame, (left + 8, 60))
        return inside, first

    inside, (in_front, behind) = overlap(colored=True)
    assert inside == in_front
    inside, (in_front, behind) = overlap(colored=False)
    assert inside == behind, "without colors, the lower feet decide"


def test_instances_of_a_network_keep_their_boxes_and_their_label_map() -> None:
    tracker = Tracker(moving=True, split=False)
    label_map = np.zeros(SIZE, np.uint8)
    label_map[30:100, 40:60] = 1
    label_map[50:90, 60:70] = 2
    boxes = (shares(np.s_[30:100, 40:65], SIZE), shares(np.s_[50:90, 55:70], SIZE))
    given = FrameInstances(
        instances=tuple(
            Instance(label=name, score=0.9, box=box) for name, box in zip(("person", "dog"), boxes, strict=True)
        ),
        first_map=label_map,
    )
    frame = tracker.update(given, 0.0)
    assert frame.label_map is label_map
    assert [(one.label, one.box, one.id) for one in frame.instances] == [("person", boxes[0], 1), ("dog", boxes[1], 2)]


def test_an_instance_whose_box_is_beside_the_picture_hinders_no_other() -> None:
    tracker = Tracker(moving=True, split=False)
    one = found(walker(40))
    beside = Instance(label="person", score=0.9, box=(1.0, 0.2, 1.0, 0.9))
    other = found(walker(150))
    tracker.update(one, 0.0)
    given = FrameInstances(instances=(beside, *other.instances), first_map=other.label_map * 2)
    frame = tracker.update(given, 1 / RATE)
    assert [one.id for one in frame.instances] == [0, 0]
    assert [one.id for one in tracker.update(given, 2 / RATE).instances] == [0, 2]


def test_weak_instances_keep_a_track_but_begin_none() -> None:
    def weak(score: float, *figures: Figure) -> FrameInstances:
        return components(mask(*figures) / np.float32(0.9) * np.float32(score), None, ["person"], 0.3)

    tracker = Tracker(moving=True, split=True)
    for n in range(5):
        tracker.update(weak(0.9, walker(40)), n / RATE)
    frames = [tracker.update(weak(0.5, walker(40), walker(150)), (5 + n) / RATE) for n in range(5)]
    assert [ids_at(frame, (40, 60), (150, 60)) for frame in frames] == [[1, 0]] * 5
