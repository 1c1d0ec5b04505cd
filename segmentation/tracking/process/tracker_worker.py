"""The process that follows the instances of several runs: `python -m segmentation.tracking.process.tracker_worker`.

Its arguments are two descriptors: of the connection to the process that started it (`tracker_processes` holds the other
end), and of the memory that both map, in which the arrays of a message lie.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import FrameInstances
from segmentation.system.child_process import ignore_interrupts, picklable, with_traceback
from segmentation.system.shared_memory import PlaneLocation
from segmentation.tracking.box_tracker import BoxTracker
from segmentation.tracking.mask_tracker import Ids, MaskTracker
from segmentation.tracking.process.tracker_protocol import BoxRequest, Forget, Reply, TrackerRequest


class _Trackers:
    """The trackers of all runs."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._trackers: dict[int, tuple[MaskTracker | BoxTracker, Ids]] = {}

    def forget(self, run: int) -> None:
        self._trackers.pop(run, None)

    def reply(self, request: TrackerRequest | BoxRequest) -> Reply:
        """Returns what a request finds."""
        if request.run not in self._trackers:
            self._trackers[request.run] = _tracker_of(request)
        tracker, ids = self._trackers[request.run]
        ids.following = request.following
        if isinstance(request, BoxRequest):
            assert isinstance(tracker, BoxTracker)
            found = tracker(request.found, request.times, request.shots)
        else:
            assert isinstance(tracker, MaskTracker)
            masks = self._array(request.masks, np.float32)
            found = tracker(masks, self._bytes(request.class_map), self._bytes(request.samples), request.times)
            self._write(request.label_maps, found)
        return Reply(
            instances=tuple(frame.instances for frame in found),
            unknown=tuple(frame.unknown for frame in found),
            following=ids.following,
        )

    def _write(self, place: PlaneLocation, found: tuple[FrameInstances, ...]) -> None:
        for target, frame in zip(self._array(place, np.uint8), found, strict=True):
            target[:] = frame.label_map

    def _bytes(self, place: PlaneLocation | None) -> NDArray[np.uint8] | None:
        return None if place is None else self._array(place, np.uint8)

    def _array(self, place: PlaneLocation, dtype: type[np.generic]) -> NDArray[Any]:
        count = int(np.prod(place.shape))
        return np.frombuffer(self._memory, dtype, count, place.offset).reshape(place.shape)


def _tracker_of(request: TrackerRequest | BoxRequest) -> tuple[MaskTracker | BoxTracker, Ids]:
    """Returns the tracker for a run, and the ids that it takes from."""
    ids = Ids()
    if isinstance(request, BoxRequest):
        return BoxTracker(request.settings, ids), ids
    return MaskTracker(request.settings, ids), ids


def main(link: Connection, memory: mmap.mmap) -> None:
    """Answers until the other end of the connection is closed. A fault is an answer, too."""
    cv2.setNumThreads(1)  # several would spin while they wait for each other, as many as all cores in each process
    trackers = _Trackers(memory)
    with suppress(EOFError, ConnectionError):
        while True:
            message = link.recv()
            if isinstance(message, Forget):
                trackers.forget(message.run)
                continue
            try:
                link.send(trackers.reply(message))
            except Exception as exc:
                link.send(picklable(with_traceback(exc, "tracker's")))


if __name__ == "__main__":
    ignore_interrupts()
    connection, shared = map(int, sys.argv[1:])
    main(Connection(connection), mmap.mmap(shared, os.fstat(shared).st_size))
