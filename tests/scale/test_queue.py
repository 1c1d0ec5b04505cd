"""The queue gives each piece to somebody, whoever dies, and gives up on what always fails."""

import random
from collections import Counter

import pytest

from segmentation.scale.queue import ATTEMPTS, Queue, Work


def queue(*videos: tuple[str, int]) -> Queue:
    made = Queue()
    for name, pieces in videos:
        made.add(name, pieces, set())
    return made


def given(work: tuple[Work | None, tuple[str, int] | None]) -> tuple[str, int, int] | None:
    return None if work[0] is None else (work[0].video, work[0].begin, work[0].end)


def test_the_first_worker_gets_all_and_others_steal_the_second_half_of_the_longest_rest() -> None:
    made = queue(("a", 16))
    assert given(made.next("1", {})) == ("a", 0, 16)
    work, shortened = made.next("2", {})
    assert (work, shortened) == (Work("a", 8, 16), ("1", 8))
    made.done("1", "a", 0)
    assert made.next("3", {}) == (Work("a", 12, 16), ("2", 12))
    assert made.next("4", {}) == (Work("a", 5, 8), ("1", 5))


def test_a_piece_that_is_begun_is_not_stolen() -> None:
    made = queue(("a", 2))
    made.next("1", {})
    assert made.next("2", {}) == (Work("a", 1, 2), ("1", 1))
    assert made.next("3", {}) == (None, None)


def test_pieces_between_decoder_and_encoders_are_not_stolen() -> None:
    """Stolen, they would be thrown away and made again."""
    made = queue(("a", 10))
    made.next("1", {})
    for piece in range(7):
        made.begun("1", "a", piece)
    made.begun("1", "b", 9)
    made.done("1", "a", 0)
    assert made.next("2", {}) == (Work("a", 8, 10), ("1", 8))
    made.begun("1", "a", 7)
    assert made.next("3", {}) == (Work("a", 9, 10), ("2", 9))
    assert made.next("4", {}) == (None, None)
    assert made.failed("1", "no") is None
    assert given(made.next("4", {})) == ("a", 1, 2) and given(made.next("5", {})) == ("a", 2, 8)


@pytest.mark.parametrize("rest", range(1, 12))
@pytest.mark.parametrize("spare", [0, 0.3, 1, 2.7, 8])
def test_as_many_are_stolen_as_end_the_video_soonest(rest: int, spare: float) -> None:
    """Times in units of a piece: the thief begins after `spare`, and its victim is at the beginning of a piece."""
    made = queue(("a", rest))
    made.next("1", {})
    work, _ = made.next("2", {"1": spare})
    stolen = 0 if work is None else work.end - work.begin
    ends = [max(rest - count, spare + count if count else 0) for count in range(rest)]
    assert ends[stolen] == min(ends)


def test_videos_come_in_order_and_each_worker_has_one() -> None:
    made = queue(("long", 3), ("short", 1))
    assert given(made.next("1", {})) == ("long", 0, 3)
    assert given(made.next("2", {})) == ("short", 0, 1)
    made.done("2", "short", 0)
    assert given(made.next("2", {})) == ("long", 2, 3)


def test_pieces_that_are_there_are_left_out() -> None:
    made = Queue()
    made.add("a", 6, {0, 3})
    assert [given(made.next(name, {})) for name in "12"] == [("a", 1, 3), ("a", 4, 6)]


def test_the_first_of_two_counts() -> None:
    made = queue(("a", 1))
    made.next("1", {})
    made.lost("1", "died")
    made.next("2", {})
    assert made.done("1", "a", 0)
    assert not made.done("2", "a", 0)
    assert not made.done("2", "a", 7) and not made.done("2", "b", 0)


def test_lost_pieces_come_first_and_the_one_that_failed_alone() -> None:
    made = queue(("a", 5), ("b", 1))
    made.next("1", {})
    made.done("1", "a", 0)
    assert made.lost("1", "died") is None
    assert given(made.next("2", {})) == ("a", 1, 2)
    assert given(made.next("3", {})) == ("a", 2, 5)
    assert given(made.next("4", {})) == ("b", 0, 1)
    assert made.redone == 1


def test_a_piece_that_failed_goes_to_another_worker() -> None:
    made = queue(("a", 2), ("b", 1))
    for name in "12":
        made.next(name, {})
    assert made.failed("1", "no") is None
    assert given(made.next("1", {})) == ("a", 1, 2)
    assert made.failed("2", "no") is None  # at b
    assert given(made.next("2", {})) == ("a", 0, 1)


def test_a_worker_tries_again_but_for_the_last_time() -> None:
    made = queue(("a", 1))
    made.workers = {"1", "2"}
    for _ in range(ATTEMPTS - 1):
        assert given(made.next("1", {})) == ("a", 0, 1)
        assert made.failed("1", "no") is None
    assert made.next("1", {}) == (None, None)
    assert given(made.next("2", {})) == ("a", 0, 1)
    assert made.failed("2", "no") is not None


def test_a_piece_that_always_fails_ends_its_video_alone() -> None:
    made = queue(("a", 1), ("b", 1))
    made.workers = {"1", "2"}
    for name in "12":
        assert given(made.next(name, {})) == ("a", 0, 1)
        assert made.failed(name, "no memory") is None
    assert given(made.next("1", {})) == ("b", 0, 1)
    assert given(made.next("2", {})) == ("a", 0, 1)
    assert made.failed("2", "no memory") == f"piece 0 failed {ATTEMPTS} times: no memory"
    made.drop("a")
    assert made.next("2", {}) == (None, None) and made.done("1", "b", 0)


def test_one_worker_alone_is_enough_to_give_up() -> None:
    made = queue(("a", 1))
    results = []
    for _ in range(ATTEMPTS):
        assert given(made.next("1", {})) == ("a", 0, 1)
        results.append(made.lost("1", "died"))
    assert results[:-1] == [None] * (ATTEMPTS - 1) and results[-1] is not None


def test_a_dropped_video_leaves_nothing() -> None:
    made = queue(("a", 8), ("b", 1))
    made.next("1", {})
    made.next("2", {})
    made.drop("a")
    assert made.failed("1", "stopped") is None
    assert made.done("2", "b", 0)
    assert made.next("1", {}) == (None, None)


@pytest.mark.parametrize("seed", range(40))
def test_all_pieces_are_made_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that finish pieces, die, come back and report late, in any order."""
    monkeypatch.setattr("segmentation.scale.queue.ATTEMPTS", 100)
    dice = random.Random(seed)
    videos = {f"video {i}": dice.randint(1, 30) for i in range(dice.randint(1, 4))}
    made = queue(*videos.items())
    at_work: dict[str, list[tuple[str, int]]] = {}  # what each has still to do, next first
    complete: Counter[tuple[str, int]] = Counter()
    deaths = 30
    for _ in range(10_000):
        if complete.total() == sum(videos.values()):
            break
        name = dice.choice("1234")
        chance = dice.random()
        if chance < 0.05 and deaths:
            deaths -= 1
            if at_work.pop(name, None):
                made.lost(name, "died")
        elif at_work.get(name):
            video, piece = at_work[name].pop(0)
            complete[video, piece] += made.done(name, video, piece)
        else:
            work, shortened = made.next(name, {})
            if shortened is not None and dice.random() < 0.7:  # else it is late, and pieces are made twice
                victim, end = shortened
                at_work[victim] = [one for one in at_work[victim] if one[1] < end]
            at_work[name] = [] if work is None else [(work.video, n) for n in range(work.begin, work.end)]
    assert complete == {(video, piece): 1 for video, pieces in videos.items() for piece in range(pieces)}
