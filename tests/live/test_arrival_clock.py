"""Times of a live source's frames."""

from itertools import pairwise

import pytest

from segmentation.live.arrival_clock import ArrivalClock


def test_frames_keep_the_distance_of_their_pts_whatever_the_network_does() -> None:
    clock = ArrivalClock()
    arrivals = [100.0, 100.3, 100.31, 100.32]
    assert [clock.place(7 + n / 10, at) for n, at in enumerate(arrivals)] == pytest.approx([100, 100.1, 100.2, 100.3])


def test_frames_without_pts_are_shown_when_they_arrive() -> None:
    clock = ArrivalClock()
    assert [clock.place(None, 5.0), clock.place(0.0, 5.1), clock.place(0.1, 5.3)] == pytest.approx([5, 5.1, 5.2])


def test_a_new_connection_begins_where_it_arrives() -> None:
    clock = ArrivalClock()
    clock.place(1000.0, 50.0)
    clock.restart()
    assert clock.place(3.0, 58.0) == 58.0


def test_a_clock_that_jumps_is_not_believed() -> None:
    clock = ArrivalClock()
    times = [clock.place(0.0, 10.0), clock.place(90000.0, 10.1), clock.place(90000.1, 10.3)]
    assert times == pytest.approx([10, 10.1, 10.2])
    assert clock.place(-5.0, 10.4) == 10.4


def test_frames_that_a_server_had_and_sends_at_once_keep_their_distance() -> None:
    clock = ArrivalClock()
    times = [clock.place(n / 25, 10.0 if n < 75 else 10.0 + (n - 75) / 25) for n in range(150)]
    assert times == pytest.approx([10 + n / 25 for n in range(150)])


def test_times_rise() -> None:
    clock = ArrivalClock()
    times = [clock.place(pts, 20.0) for pts in (1.0, 1.0, 0.9, None, None)]
    assert all(a < b for a, b in pairwise(times))


def test_what_a_stalled_connection_brings_at_once_keeps_its_time() -> None:
    """Frames 25 to 100 come at 14.0, those after it on time again."""
    clock = ArrivalClock()
    times = [clock.place(n / 25, 10 + n / 25 if not 25 <= n <= 100 else 14.0) for n in range(150)]
    assert times == pytest.approx([10 + n / 25 for n in range(150)])


def test_a_source_that_stays_late_is_believed_after_a_while() -> None:
    """It has paused for 3 s, and its clock too."""
    clock = ArrivalClock()
    clock.place(0.0, 10.0)
    times = [clock.place(n / 25, 13.0 + n / 25) for n in range(1, 200)]
    assert times[:100] == pytest.approx([10 + n / 25 for n in range(1, 101)])
    assert times[-50:] == pytest.approx([13 + n / 25 for n in range(150, 200)])
