"""The spans of covered tracks that a person should look at."""

import numpy as np

from segmentation.frames.instances import Box, FrameInstances, Instance
from segmentation.tracking.anonymize.doubts import DoubtFinder, DoubtfulSpan

AMID: Box = (0.4, 0.4, 0.5, 0.6)
AT_EDGE: Box = (0.0, 0.4, 0.1, 0.6)


def doubts(scores: dict[int, float], frames: int = 50, box: Box = AMID) -> list[DoubtfulSpan]:
    """Those of a thing with these scores by frame, 25 a second; 0 is supposed."""
    finder = DoubtFinder()
    for number in range(frames):
        there = [Instance(label="face", score=scores[number], box=box, id=3)] if number in scores else []
        finder.add(number / 25, FrameInstances(instances=tuple(there), first_map=np.zeros((9, 16), np.uint8)))
    return finder.doubts()


def test_a_face_that_is_always_found_is_not_doubtful() -> None:
    assert doubts(dict.fromkeys(range(50), 0.9)) == []


def test_a_face_that_comes_and_goes_amid_the_picture_is() -> None:
    found = doubts({**dict.fromkeys(range(15, 20), 0.0), **dict.fromkeys(range(20, 30), 0.9), 30: 0.0, 31: 0.0})
    assert [(one.kind, one.id, one.look) for one in found] == [("appears", 3, 14 / 25), ("vanishes", 3, 32 / 25)]
    assert doubts(dict.fromkeys(range(20, 30), 0.9), box=AT_EDGE) == []


def test_a_long_gap_is_and_a_short_one_is_not() -> None:
    gap = {number: 0.0 if 10 < number < 25 else 0.9 for number in range(50)}
    (found,) = doubts(gap)
    assert (found.kind, found.begin, found.end) == ("gap", 10 / 25, 25 / 25)
    assert doubts({number: 0.0 if number in (10, 11) else 0.9 for number in range(50)}) == []


def test_the_most_doubtful_comes_first() -> None:
    found = doubts({number: 0.0 if 20 < number < 30 else 0.5 for number in range(10, 50)})
    assert [one.kind for one in found] == ["appears", "gap", "weak"]
    assert [one.doubt for one in found] == sorted((one.doubt for one in found), reverse=True)
