"""Trackers in processes of their own: with many runs at once on a GPU, one GIL would be the limit of them all.

Following takes a few hundred short steps a frame, and each waits for the lock among the threads that feed the GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import SegmentationError, one_line
from segmentation.frames.instances import FrameInstances
from segmentation.system.child_process import SharedProcesses
from segmentation.system.cores import core_count
from segmentation.system.linked_process import LinkedProcess
from segmentation.system.shared_memory import BlockPool, SharedPlanes
from segmentation.tracking.box_tracker import BoxTracking
from segmentation.tracking.color_histograms import Samples
from segmentation.tracking.mask_tracker import Ids, MaskTracking
from segmentation.tracking.process.tracker_protocol import BoxRequest, Forget, Reply, TrackerRequest

_MOST = 8  # processes: each follows about 2,000 frames a second


class _TrackerProcess:
    """A process that follows the instances of several runs, one batch at a time."""

    def __init__(self) -> None:
        """Returns at once, while the process starts up. Raises `SegmentationError` where it can't be started."""
        self._lock = threading.Lock()
        try:
            self._blocks = BlockPool()
            self._process = LinkedProcess("segmentation.tracking.process.tracker_worker", self._blocks.fd)
        except OSError as exc:
            raise SegmentationError(f"track: no process can be started for it ({one_line(exc)})") from exc

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def shared(self, array: NDArray[np.generic]) -> SharedPlanes:
        """Returns a copy of an array in the memory that the process sees."""
        planes = self._blocks.planes([array.shape], array.dtype)
        np.copyto(planes.arrays[0], array)
        return planes

    def empty(self, shape: tuple[int, ...]) -> SharedPlanes:
        """Returns an array of bytes there, with undefined content."""
        return self._blocks.planes([shape], np.uint8)

    def ask(self, request: TrackerRequest | BoxRequest) -> Reply:
        """Returns the reply. Raises `SegmentationError` when the process has died."""
        try:
            with self._lock:
                self._process.link.send(request)
                reply = self._process.receive()
        except (EOFError, OSError) as exc:
            death = self._process.describe_death()
            raise SegmentationError(f"track: the process that follows instances {death}; start again") from exc
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, Reply)
        return reply

    def forget(self, run: int) -> None:
        """Frees what the process holds of a run."""
        with suppress(OSError), self._lock:  # it is dead
            self._process.link.send(Forget(run))

    def end(self) -> None:
        """Makes the process end."""
        self._process.link.close()

    def close(self) -> None:
        """Waits until the process has ended, and frees the memory that nobody refers to."""
        self.end()
        self._process.close()
        self._blocks.close()


class RemoteTracker:
    """A `MaskTracker` in another process; its calls are the same."""

    def __init__(self, process: _TrackerProcess, run: int, settings: MaskTracking, ids: Ids) -> None:
        self._process, self._run, self._settings, self._ids = process, run, settings, ids

    def __call__(
        self,
        masks: NDArray[np.float32],
        class_map: NDArray[np.uint8] | None,
        samples: Samples | None,
        times: Sequence[float],
    ) -> tuple[FrameInstances, ...]:
        """Returns the instances of the next frames. Raises `SegmentationError` when the process has died."""
        process = self._process
        sent = process.shared(masks)
        classes = None if class_map is None else process.shared(class_map)
        looks = None if samples is None else process.shared(samples)
        maps = process.empty(masks.shape)
        reply = process.ask(
            TrackerRequest(
                run=self._run,
                settings=self._settings,
                masks=sent.locations[0],
                class_map=None if classes is None else classes.locations[0],
                samples=None if looks is None else looks.locations[0],
                label_maps=maps.locations[0],
                times=tuple(times),
                following=self._ids.following,
            )
        )
        self._ids.following = reply.following
        found = zip(reply.instances, maps.arrays[0], reply.unknown, strict=True)
        return tuple(FrameInstances(instances=one, first_map=at, unknown=unknown) for one, at, unknown in found)


class RemoteBoxTracker:
    """A `BoxTracker` in another process, without colors."""

    def __init__(self, process: _TrackerProcess, run: int, settings: BoxTracking, ids: Ids) -> None:
        self._process, self._run, self._settings, self._ids = process, run, settings, ids

    def __call__(
        self, found: Sequence[FrameInstances], times: Sequence[float], shots: Sequence[int]
    ) -> tuple[FrameInstances, ...]:
        """Returns the next frames with ids. Raises `SegmentationError` when the process has died."""
        reply = self._process.ask(
            BoxRequest(
                run=self._run,
                settings=self._settings,
                found=tuple(found),
                times=tuple(times),
                shots=tuple(shots),
                following=self._ids.following,
            )
        )
        self._ids.following = reply.following
        return tuple(replace(frame, instances=one) for frame, one in zip(found, reply.instances, strict=True))


class TrackerProcesses:
    """The processes of a session, which its runs share. For any number of threads."""

    def __init__(self) -> None:
        self._processes = SharedProcesses(_TrackerProcess, min(_MOST, core_count()))
        self._numbers = count()

    @contextmanager
    def tracker(self, settings: MaskTracking, ids: Ids) -> Iterator[RemoteTracker]:
        """A tracker for one run. Raises `SegmentationError` where no process can be started."""
        with self._lent() as (process, run):
            yield RemoteTracker(process, run, settings, ids)

    @contextmanager
    def box_tracker(self, settings: BoxTracking, ids: Ids) -> Iterator[RemoteBoxTracker]:
        """The same for what a network has found."""
        with self._lent() as (process, run):
            yield RemoteBoxTracker(process, run, settings, ids)

    @contextmanager
    def _lent(self) -> Iterator[tuple[_TrackerProcess, int]]:
        """Lends a process, with the number of a run there."""
        with self._processes.lent() as process:
            run = next(self._numbers)
            try:
                yield process, run
            finally:
                process.forget(run)

    def close(self) -> None:
        """Ends all processes."""
        self._processes.close()
