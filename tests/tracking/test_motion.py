"""Where boxes are expected."""

import numpy as np

from segmentation.tracking.motion import EdgeMotion

RATE = 25
FREE = np.ones(4, bool)


def moved(right: float, down: float, *, top: float = 0.0, frames: int = 50) -> EdgeMotion:
    """Returns the motion of a box that goes so many pixels a frame; its upper edge goes `top` more in the last ten."""
    box = np.array([20.0, 20.0, 60.0, 120.0])
    motion = EdgeMotion(box, 0.0)
    for n in range(1, frames):
        bent = top * max(0, n - frames + 10)
        motion.update(box + n * np.array([right, down, right, down]) + [0, bent, 0, 0], n / RATE)
    return motion


def steps(motion: EdgeMotion, seconds: float = 1.0) -> list[float]:
    """Returns how far left and upper edge are expected to go."""
    begin = 49 / RATE
    return [float(v) for v in (motion.at(begin + seconds) - motion.at(begin))[:2]]


def test_who_bends_down_when_meeting_others_is_not_expected_to_sink() -> None:
    bent = moved(2, 0, top=3)
    assert steps(bent)[1] > 40, "alone, the edge is expected to go on"
    bent.steady(FREE)
    right, down = steps(bent)
    assert 45 < right < 55 and abs(down) < 12


def test_who_walks_down_the_picture_is_expected_to_go_on_among_others() -> None:
    walking = moved(0, 2)
    walking.steady(FREE)
    assert 40 < steps(walking)[1] < 55


def test_a_step_from_where_a_thing_was_guessed_to_be_is_no_speed() -> None:
    guessed = moved(2, 0)
    guessed.place(np.array([150.0, 20.0, 190.0, 120.0]), 49 / RATE)
    assert guessed.at(49 / RATE)[0] == 150
    assert 45 < steps(guessed)[0] < 55
