"""The steps that follow instances, where a live source is lost and its last picture is shown again and again."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from child_processes import children
from drawn import batch_of, make_info

from segmentation import Config
from segmentation.frames import Color, HostTransfer, MaskedBatch
from segmentation.frames.instances import BoxMap, FrameInstances, Instance
from segmentation.frames.sinks import FinishedBatch
from segmentation.tracking.counts import CountSink
from segmentation.tracking.mask_tracker import Ids
from segmentation.tracking.process.tracker_processes import TrackerProcesses
from segmentation.tracking.tracker import GAP
from segmentation.tracking.tracking_steps import Tracking

INFO = make_info(96, 64, Color())
RATE = 30  # frames a second
ZONE = "zone:0,0,96,0,96,64,0,64"  # all of the picture


def batches(count: int, first: int, *, repeated: bool = False) -> Iterator[MaskedBatch]:
    """Frames of somebody who stands still, one a batch."""
    mask = np.zeros((1, 32, 48), np.float32)
    mask[:, 8:24, 12:36] = 1
    plane = np.zeros((64, 96), np.uint8)
    for number in range(first, first + count):
        batch = batch_of((plane, plane[::2, ::2], plane[::2, ::2]))
        frames = (replace(batch.frames[0], pts=number),)
        yield MaskedBatch(frames=replace(batch, frames=frames, repeated=repeated), masks=mask.copy())


def followed(*parts: Iterator[MaskedBatch]) -> list[MaskedBatch]:
    step = Tracking(Config(track="balanced"), INFO, "yuv420p", ["person"], HostTransfer(), Ids(), None, None)
    return list(step(batch for part in parts for batch in part))


def ids(batch: MaskedBatch) -> list[int]:
    assert batch.instances
    return [one.id for frame in batch.instances for one in frame.instances]


def test_nobody_keeps_an_id_through_a_long_loss() -> None:
    lost = round(GAP * RATE) + 5
    found = followed(batches(5, 0), batches(lost, 5, repeated=True), batches(5, 5 + lost))
    assert [ids(batch) for batch in found] == [[1]] * 5 + [[]] * lost + [[0]] + [[2]] * 4


def test_a_short_loss_changes_no_id_and_no_count() -> None:
    found = followed(batches(5, 0), batches(10, 5, repeated=True), batches(5, 15))
    sink = CountSink(INFO, Config(count=(ZONE,)))
    counts = []
    for batch in found:
        assert batch.instances
        sink.write(FinishedBatch(frames=batch.frames, instances=batch.instances))
        counts.append(dict(sink.total[ZONE]))
    assert ids(found[-1]) == [1]
    assert counts == [{"inside": 1, "entered": 1}] * 20


def test_boxes_of_files_are_followed_in_the_processes_that_are_there() -> None:
    boxes = np.array([[12, 8, 36, 24]], float)
    one = Instance(label="face", score=0.35, box=(12 / 48, 8 / 32, 36 / 48, 24 / 32))
    found = FrameInstances(instances=(one,), first_map=BoxMap(boxes, (32, 48)))
    given = [replace(batch, instances=(found,), shots=(0,)) for batch in batches(4, 0)]
    config, service, before = Config(anonymize="faces"), TrackerProcesses(), set(children(module="tracker_worker"))
    made = []
    for processes in (None, service):
        step = Tracking(config, INFO, "yuv420p", ["face"], HostTransfer(), Ids(), processes, None)
        made.append([ids(batch) for batch in step(iter(given))])
        started = set(children(module="tracker_worker")) - before
        assert len(started) == (processes is not None)
    service.close()
    assert made == [[[1]] * 4] * 2
