"""Trackers in processes of their own: they find what a tracker of this process finds, and nothing is left behind."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from child_processes import children
from numpy.typing import NDArray
from segmented import descriptors

from segmentation.errors import SegmentationError
from segmentation.frames.instances import BoxMap, FrameInstances, Instance
from segmentation.tracking.box_tracker import BoxTracker, BoxTracking
from segmentation.tracking.mask_tracker import Ids, MaskTracker, MaskTracking
from segmentation.tracking.process import tracker_processes
from segmentation.tracking.process.tracker_processes import RemoteTracker, TrackerProcesses

RATE, BATCH = 25, 4
SETTINGS = MaskTracking(classes=("person",), threshold=0.5, moving=True)
SIZE = (48, 80)  # height, width of the masks
Seen = list[tuple[tuple[Instance, ...], NDArray[np.uint8], bool]]


@pytest.fixture
def processes() -> Iterator[TrackerProcesses]:
    service = TrackerProcesses()
    yield service
    service.close()


def trackers() -> set[int]:
    """Returns the trackers' processes that this one has started and that are not over."""
    return set(children(module="tracker_worker"))


def batches(speed: int) -> Iterator[tuple[NDArray[np.float32], list[float]]]:
    """Yields masks of two people who pass each other, and a third who comes later."""
    for first in range(0, 40, BATCH):
        masks = np.zeros((BATCH, *SIZE), np.float32)
        for mask, frame in zip(masks, range(first, first + BATCH), strict=True):
            for left, top in ((2 + speed * frame, 10), (66 - speed * frame, 14)):
                mask[top : top + 30, max(0, left) : max(0, left + 8)] = 0.9
            if frame > 20:
                mask[4:20, 70:78] = 0.8
        yield masks, [frame / RATE for frame in range(first, first + BATCH)]


def followed(tracker: MaskTracker | RemoteTracker, ids: Ids, speed: int = 1) -> Seen:
    """Returns what a tracker finds, while another step of the run takes an id behind each batch."""
    seen: Seen = []
    for masks, times in batches(speed):
        for frame in tracker(masks, (masks > 0.85).astype(np.uint8) if speed == 3 else None, None, times):
            seen.append((frame.instances, frame.label_map.copy(), frame.unknown))
        next(ids)
    return seen


def local(speed: int = 1) -> Seen:
    ids = Ids()
    return followed(MaskTracker(settings(speed), ids), ids, speed)


def remote(service: TrackerProcesses, speed: int = 1) -> Seen:
    ids = Ids()
    with service.tracker(settings(speed), ids) as tracker:
        return followed(tracker, ids, speed)


def settings(speed: int) -> MaskTracking:
    return MaskTracking(classes=("cat", "dog") if speed == 3 else ("person",), threshold=0.5, moving=speed != 2)


def assert_same(one: Seen, other: Seen) -> None:
    for (instances, label_map, unknown), (others, others_map, others_unknown) in zip(one, other, strict=True):
        assert instances == others and unknown == others_unknown
        np.testing.assert_array_equal(label_map, others_map)


def test_another_process_finds_the_same(processes: TrackerProcesses) -> None:
    found = remote(processes)
    assert {one.id for instances, _, _ in found for one in instances} > {1, 2}
    assert_same(found, local())


def test_boxes_are_followed_there_too(processes: TrackerProcesses) -> None:
    settings, ids, others = BoxTracking(moving=True, covering=True), Ids(), Ids()
    here = BoxTracker(settings, others)
    with processes.box_tracker(settings, ids) as there:
        for first in range(0, 40, BATCH):
            numbers = range(first, first + BATCH)
            found, times, shots = (
                [boxes(frame) for frame in numbers],
                [n / RATE for n in numbers],
                [first // 24] * BATCH,
            )
            for one, other in zip(there(found, times, shots), here(found, times, shots), strict=True):
                assert one.instances == other.instances and np.array_equal(one.label_map, other.label_map)
            assert next(ids) == next(others), "another step of the run takes one"
    assert ids.following > 10


def boxes(frame: int) -> FrameInstances:
    """Returns two faces that pass each other, one of them in doubt."""
    corners = [(2 + frame, 10), (66 - frame, 14)]
    places = np.array([[left, top, left + 9, top + 12] for left, top in corners], float)
    instances = tuple(
        Instance(label="face", score=score, box=tuple(place))
        for place, score in zip((places / (SIZE[::-1] * 2)).tolist(), (0.9, 0.35), strict=True)
    )
    return FrameInstances(instances=instances, first_map=BoxMap(places, SIZE))


def test_colors_go_there_too(processes: TrackerProcesses) -> None:
    generator, ids = np.random.default_rng(1), Ids()
    with processes.tracker(SETTINGS, ids) as tracker:
        here = MaskTracker(SETTINGS, Ids())
        for masks, times in batches(1):
            samples = generator.integers(0, 255, (3, *masks.shape), np.uint8)
            for one, other in zip(tracker(masks, None, samples, times), here(masks, None, samples, times), strict=True):
                assert one.instances == other.instances


def test_runs_at_once_share_processes_and_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_processes, "_MOST", 2)
    service, before = TrackerProcesses(), len(trackers())
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda number: remote(service, 1 + number % 3), range(6)))
    assert 1 <= len(trackers()) - before <= 2
    service.close()
    for number, one in enumerate(found):
        assert_same(one, local(1 + number % 3))


def test_masks_without_a_number_are_unknown(processes: TrackerProcesses) -> None:
    masks = np.full((1, *SIZE), np.nan, np.float32)
    with processes.tracker(SETTINGS, Ids()) as tracker:
        assert tracker(masks, None, None, [0.0])[0].unknown


def test_a_process_has_one_thread_however_many_cores_there_are(processes: TrackerProcesses) -> None:
    """OpenCV's own would spin while they wait for each other."""
    before, masks = trackers(), np.zeros((4, 512, 512), np.float32)
    masks[:, 64:256, 64:256] = 1
    with processes.tracker(SETTINGS, Ids()) as tracker:
        tracker(masks, None, None, [0.0, 0.1, 0.2, 0.3])
        (pid,) = trackers() - before
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1


def test_a_process_that_dies_is_one_line_and_the_next_run_has_another(processes: TrackerProcesses) -> None:
    masks = np.zeros((1, *SIZE), np.float32)
    before = trackers()
    with processes.tracker(SETTINGS, Ids()) as tracker:
        tracker(masks, None, None, [0.0])
        (pid,) = trackers() - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SegmentationError, match=r"^track: the process .* signal 9 .*; start again$"):
            tracker(masks, None, None, [0.1])
    assert_same(remote(processes), local())


def test_each_run_of_a_dead_process_gets_the_line_though_another_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_processes, "_MOST", 1)
    masks, service, before = np.zeros((1, *SIZE), np.float32), TrackerProcesses(), trackers()
    with service.tracker(SETTINGS, Ids()) as one, service.tracker(SETTINGS, Ids()) as other:
        one(masks, None, None, [0.0])
        (pid,) = trackers() - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SegmentationError, match="start again"):
            one(masks, None, None, [0.1])
        assert_same(remote(service), local())
        with pytest.raises(SegmentationError, match="start again"):
            other(masks, None, None, [0.0])
    service.close()
    assert trackers() == before


def test_a_fault_there_is_told_here(processes: TrackerProcesses) -> None:
    masks = np.ones((1, *SIZE), np.float32)
    with processes.tracker(SETTINGS, Ids()) as tracker:
        with pytest.raises(IndexError) as caught:
            tracker(masks, np.full(masks.shape, 7, np.uint8), None, [0.0])
        assert "tracker_worker.py" in caught.value.__notes__[0]
        assert len(tracker(masks, None, None, [0.1])) == 1


def test_nothing_is_left() -> None:
    before, opened = trackers(), descriptors()
    service = TrackerProcesses()
    kept = remote(service)
    assert trackers() > before
    service.close()
    assert trackers() == before and descriptors() == opened
    assert kept
