"""Threads behind iterators: order, errors, ends."""

import threading
import time
from collections.abc import Iterator

import cv2
import pytest

from segmentation.flow.threads import StageThreads, opencv_threads


def test_items_arrive_once_and_in_order() -> None:
    with StageThreads() as overlapped:
        squares = overlapped(i * i for i in overlapped(range(1000)))
        assert list(squares) == [i * i for i in range(1000)]


def test_parts_work_at_the_same_time() -> None:
    """Each part waits for the other to have begun its next item, which one thread alone never could."""
    meeting = threading.Barrier(2, timeout=240)

    def waiting(items: Iterator[int] | range) -> Iterator[int]:
        for item in items:
            if item > 0:
                meeting.wait()
            yield item

    with StageThreads() as overlapped:
        first = overlapped(waiting(range(6)))
        assert list(overlapped(i for i in waiting(iter([0, 1, 2, 3, 4, 5])) if next(first) == i)) == [0, 1, 2, 3, 4, 5]


def test_no_more_than_the_queues_hold_are_made_ahead() -> None:
    made = []

    def numbers() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            yield i

    with StageThreads(depth=2) as overlapped:
        items = overlapped(numbers())
        assert next(items) == 0
        time.sleep(0.3)
        assert len(made) <= 1 + 2 + 1  # taken, queued, in the thread's hand


@pytest.mark.parametrize("failing", [0, 3])
def test_an_error_arrives_after_the_items_before_it(failing: int) -> None:
    def numbers() -> Iterator[int]:
        for i in range(10):
            if i == failing:
                raise RuntimeError("broken")
            yield i

    seen = []
    with pytest.raises(RuntimeError, match="broken"), StageThreads() as overlapped:
        for item in overlapped(i for i in overlapped(numbers())):
            seen.append(item)
    assert seen == list(range(failing))


def test_leaving_ends_the_threads_soon() -> None:
    before = set(threading.enumerate())

    def endless() -> Iterator[int]:
        while True:
            yield 1

    with StageThreads() as overlapped:
        assert next(overlapped(i for i in overlapped(endless()))) == 1
    assert set(threading.enumerate()) == before


def test_a_part_that_is_stuck_does_not_hold_up_the_end() -> None:
    release = threading.Event()

    def stuck() -> Iterator[int]:
        yield 1
        release.wait()

    with StageThreads() as overlapped:
        assert next(overlapped(i for i in overlapped(stuck()))) == 1
    release.set()


def test_calls_that_have_begun_are_over_at_the_end() -> None:
    """When one call fails, others may be at work, with all that their run holds."""
    begun, over = threading.Event(), threading.Event()

    def call(i: int) -> None:
        if i == 0:
            begun.wait(240)
            raise ValueError("full")
        begun.set()
        time.sleep(0.3)
        over.set()

    with pytest.raises(ValueError, match="full"), StageThreads() as overlapped:
        list(overlapped.map(call, range(2), 2))
    assert over.is_set()


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_mapped_items_stay_in_order(workers: int, prompt: bool) -> None:
    def square(i: int) -> int:
        time.sleep(0.002 * (i % 3))  # later items are often done first
        return i * i

    with StageThreads(prompt=prompt) as overlapped:
        assert list(overlapped.map(square, overlapped(range(50)), workers)) == [i * i for i in range(50)]


def test_a_prompt_mapping_does_not_wait_for_the_next_item() -> None:
    there = threading.Semaphore(0)

    def slow() -> Iterator[int]:
        for i in range(4):
            assert there.acquire(timeout=240)
            yield i

    with StageThreads(prompt=True) as overlapped:
        squares = overlapped.map(lambda i: i * i, slow(), workers=3)
        for i in range(4):
            there.release()
            assert next(squares) == i * i  # the source has no other item yet


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("workers", [3, 6])
def test_a_mapping_uses_its_workers_and_no_more(workers: int, prompt: bool) -> None:
    meeting = threading.Barrier(workers, timeout=240)
    busy = threading.Semaphore(workers)

    def meet(i: int) -> int:
        assert busy.acquire(blocking=False)
        meeting.wait()
        busy.release()
        return i

    with StageThreads(prompt=prompt) as overlapped:
        assert list(overlapped.map(meet, range(3 * workers), workers=workers)) == list(range(3 * workers))


def test_mappings_share_their_workers() -> None:
    names = set()

    def name(i: int) -> int:
        time.sleep(0.001)
        names.add(threading.current_thread().name)
        return i

    with StageThreads() as overlapped:
        assert list(overlapped.map(name, overlapped.map(name, range(30), workers=2), workers=2)) == list(range(30))
    assert len(names) == 2


@pytest.mark.parametrize("prompt", [False, True])
def test_an_error_in_a_mapping_arrives_in_its_place(prompt: bool) -> None:
    seen = []
    with pytest.raises(ZeroDivisionError), StageThreads(prompt=prompt) as overlapped:
        for item in overlapped.map(lambda i: 6 // (3 - i), range(10), workers=2):
            seen.append(item)
    assert seen == [2, 3, 6]


@pytest.fixture
def three_opencv_threads() -> Iterator[None]:
    before = cv2.getNumThreads()
    cv2.setNumThreads(3)
    yield
    cv2.setNumThreads(before)


@pytest.mark.parametrize(("busy", "threads"), [(False, 3), (True, 1)])
def test_opencv_splits_frames_only_where_the_cores_are_idle(
    busy: bool, threads: int, three_opencv_threads: None
) -> None:
    with pytest.raises(KeyError), opencv_threads.one_a_frame(busy=busy):
        assert cv2.getNumThreads() == threads
        raise KeyError
    assert cv2.getNumThreads() == 3


def test_runs_that_overlap_leave_opencv_as_it_was(three_opencv_threads: None) -> None:
    first, second = (opencv_threads.one_a_frame(busy=True) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert cv2.getNumThreads() == 1  # the second goes on
    second.__exit__(None, None, None)
    assert cv2.getNumThreads() == 3
