"""When frames are repeated while a live source is lost."""

from fractions import Fraction

import numpy as np
import pytest
from videos import video_info

from segmentation.frames import Frame, FrameBatch
from segmentation.live.repeats import Repeats

INFO = video_info(rate=Fraction(50))


def picture(value: int) -> FrameBatch:
    plane = np.full((4, 4), value, np.uint8)
    return FrameBatch(frames=(Frame(planes=(plane, plane, plane), pts=0, duration=0),), index=0)


def test_the_first_comes_at_once_and_the_others_as_far_apart_as_the_sources() -> None:
    repeats = Repeats("freeze", INFO, "yuv420p")
    assert repeats.next(1.0) is None  # there was no picture yet
    for number in range(5):
        repeats.keep(picture(number), 10 + number / 10)
    assert repeats.patience(10.45) == pytest.approx(10.55)
    found = repeats.next(11.0)
    assert found is not None and found[0].frames[0].planes[0][0, 0] == 4 and found[1:] == (None, 11.0)
    assert repeats.patience(11.01) == pytest.approx(11.1)
    assert repeats.next(11.05) is None
    assert (late := repeats.next(11.17)) is not None and late[2] == pytest.approx(11.1)
    assert (after := repeats.next(15.0)) is not None and after[2] == 15.0  # as if frames were dropped


def test_a_loss_is_no_distance_of_frames() -> None:
    repeats = Repeats("freeze", INFO, "yuv420p")
    repeats.keep(picture(0), 1.0)
    assert repeats.step == pytest.approx(1 / 50)  # the rate that the source states, for want of a better one
    repeats.next(2.0)
    for number in range(3):
        repeats.keep(picture(1), 60 + number / 25)
    assert repeats.step == pytest.approx(1 / 25)
    assert repeats.next(60.09) is None  # the source's next frame would have come at 60.12
    found = repeats.next(60.13)
    assert found is not None and found[2] == pytest.approx(60.12)


@pytest.mark.parametrize(("distance", "step"), [(0.0001, 1 / 60), (30.0, 1.0)])
def test_steps_are_bounded(distance: float, step: float) -> None:
    repeats = Repeats("freeze", INFO, "yuv420p")
    for number in range(3):
        repeats.keep(picture(0), number * distance)
    assert repeats.step == pytest.approx(step)


def test_each_loss_has_a_card_of_its_own() -> None:
    repeats = Repeats("card", INFO, "yuv420p")
    cards = []
    for loss in range(2):
        repeats.keep(picture(0), 10.0 * loss)
        found = [repeats.next(10.0 * loss + second) for second in (1, 2, 3)]
        assert all(one is not None and one[1] is not None for one in found)
        cards.append({id(one[1]) for one in found if one is not None})
    assert [len(one) for one in cards] == [1, 1]
