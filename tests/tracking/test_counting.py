"""Counts over lines and in zones."""

import numpy as np
import pytest

from segmentation.errors import ConfigError
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.instances import CountPlace
from segmentation.tracking.counting import Counter

SIZE = (1000, 500)


def frame(*feet: tuple[int, int, int]) -> FrameInstances:
    """Returns a frame with instances of 100 x 200 pixels by id and the place of their feet."""
    return FrameInstances(
        instances=tuple(
            Instance(label="person", score=1, id=id, box=((x - 50) / 1000, (y - 200) / 500, (x + 50) / 1000, y / 500))
            for id, x, y in feet
        ),
        first_map=np.zeros((5, 10), np.uint8),
    )


def counter(*texts: str) -> Counter:
    return Counter([CountPlace.parse(text) for text in texts], SIZE)


def test_a_line_counts_each_crossing_by_its_side() -> None:
    line = "line:500,500,500,0"  # upwards: its right side is the picture's right
    counts = counter(line)
    for x in range(300, 701, 20):
        last = counts.update(frame((1, x, 400)))
    assert last == {line: {"left": 0, "right": 1}}
    for x in range(700, 299, -20):
        last = counts.update(frame((1, x, 400), (2, 1000 - x, 300)))
    assert last == {line: {"left": 1, "right": 2}}


def test_who_passes_beyond_the_ends_of_a_line_or_stands_on_it_does_not_count() -> None:
    line = "line:500,500,500,300"
    counts = counter(line)
    for x in range(300, 701, 20):
        last = counts.update(frame((1, x, 250)))
    for x in (400, 480, 497, 503, 498, 502, 497, 480):
        last = counts.update(frame((2, x, 400)))
    assert last == {line: {"left": 0, "right": 0}}


@pytest.mark.parametrize("place", ["line:1001,0,1100,500", "line:0,-1,900,-5", "zone:-9,0,-1,0,-1,500,-9,500"])
def test_a_place_outside_of_the_picture_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=f"count {place}: lies outside of the picture, which is 1000x500"):
        counter("line:0,0,1000,500", place)


def test_a_zone_counts_who_is_inside_and_who_has_been() -> None:
    zone = "zone:0,0,500,0,500,500,0,500"
    counts = counter(zone)
    assert counts.update(frame((1, 100, 300), (2, 700, 300))) == {zone: {"inside": 1, "entered": 1}}
    assert counts.update(frame((1, 600, 300), (2, 400, 300))) == {zone: {"inside": 1, "entered": 2}}
    assert counts.update(frame((1, 100, 300), (0, 100, 300))) == {zone: {"inside": 1, "entered": 2}}
