"""Segments begin at planned times whatever frames are missing, or after a number of frames."""

from segmentation.media.cuts import Cuts, Cutter


def beginnings(cuts: Cuts, pts: list[int]) -> list[int]:
    cutter = Cutter(cuts)
    return [time for time in pts if cutter.begins(time)]


def test_by_number() -> None:
    cutter = Cutter(Cuts(3))
    assert [(cutter.begins(time), cutter.full) for time in range(7)] == [
        (True, False),
        (False, False),
        (False, True),
    ] * 2 + [(True, False)]


def test_by_time_lost_frames_move_no_other_segment() -> None:
    cuts = Cuts(3, (0, 30, 60, 90))
    assert beginnings(cuts, list(range(0, 120, 10))) == [0, 30, 60, 90]
    assert beginnings(cuts, [0, 20, 40, 50, 60, 80, 100]) == [0, 40, 60, 100]
    assert beginnings(cuts, [0, 10, 70, 110]) == [0, 70, 110]
    assert beginnings(cuts, [-10, 0, 10]) == [-10, 0]
    assert not Cutter(cuts).full
