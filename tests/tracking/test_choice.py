"""Who is kept."""

from dataclasses import replace

import numpy as np
import pytest

from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.instances import Keep
from segmentation.tracking.choice import Keeper, selection


def frame(**areas: int) -> FrameInstances:
    """Returns a frame with instances of so many pixels by id, as `id1=5`; each stands one row lower than the last."""
    label_map = np.zeros((10, 100), np.uint8)
    instances = []
    for n, (name, area) in enumerate(areas.items(), 1):
        label_map[n - 1, :area] = n
        box = (0.0, (n - 1) / 10, area / 100, n / 10)
        instances.append(Instance(label="person", score=1, id=int(name[2:]), box=box))
    return FrameInstances(instances=tuple(instances), first_map=label_map)


def kept(given: FrameInstances) -> list[int]:
    return [one.id for one in given.instances if one.kept]


def test_ids_are_kept_with_what_was_found_within_them() -> None:
    given = frame(id3=5, id4=6, id8=2)
    face = replace(given.instances[2], label="face", parent=3)
    given = replace(given, instances=(*given.instances[:2], face))
    marked = Keeper(Keep.parse("id:3,9")).mark(given, 0.0)
    assert kept(marked) == [3, 8]
    assert np.unique(given.label_map[selection(marked, "", keeping=True)]).tolist() == [1, 3]
    assert not selection(marked, "face", keeping=True).any()  # the face of somebody who is kept
    assert np.unique(given.label_map[selection(marked, "face", keeping=False)]).tolist() == [3]


def test_the_largest_is_kept_until_another_is_clearly_larger() -> None:
    keeper = Keeper(Keep.parse("largest"))
    assert kept(keeper.mark(frame(id1=50, id2=40), 0.0)) == [1]
    assert kept(keeper.mark(frame(id1=50, id2=60), 0.1)) == [1]
    assert kept(keeper.mark(frame(id1=50, id2=70), 0.2)) == [2]


def test_nobody_takes_the_place_of_one_who_is_out_of_sight_for_a_moment() -> None:
    keeper = Keeper(Keep.parse("largest"))
    keeper.mark(frame(id1=50, id2=40), 0.0)
    assert kept(keeper.mark(frame(id2=40), 0.5)) == []
    assert kept(keeper.mark(frame(id2=40), 1.5)) == [2]


@pytest.mark.parametrize(("criterion", "expected"), [("nearest", [2]), ("first", [1])])
def test_the_nearest_stands_lowest_and_the_first_came_first(criterion: str, expected: list[int]) -> None:
    keeper = Keeper(Keep.parse(criterion))
    assert kept(keeper.mark(frame(id1=50), 0.0)) == [1]
    assert kept(keeper.mark(frame(id1=50, id2=20), 5.0)) == expected
    if criterion == "first":
        assert kept(keeper.mark(frame(id2=20), 9.0)) == []  # nobody else, ever
