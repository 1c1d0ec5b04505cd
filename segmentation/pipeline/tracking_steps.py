"""Steps that find the instances of each frame, follow them, and choose who is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, FrameBatch, MaskedBatch, Plane, Transfer, VideoInfo
from segmentation.instances import FrameInstances
from segmentation.options.config import Config
from segmentation.options.instances import Keep
from segmentation.stages.tracking.appearance import Colors, color_bins
from segmentation.stages.tracking.choice import Keeper
from segmentation.stages.tracking.mask_tracker import Ids, MaskTracker, MaskTracking
from segmentation.stages.tracking.tracker import Tracker
from segmentation.stages.tracking.tracker_processes import RemoteTracker, TrackerProcesses

Followed: TypeAlias = tuple[FrameInstances, ...]  # of each frame of a batch
_Follow = Callable[[MaskedBatch, Sequence[Colors] | None, list[float]], Followed]


class Tracking:
    """Finds the instances of each frame, unless the network has found them, and gives them ids."""

    def __init__(
        self,
        config: Config,
        info: VideoInfo,
        classes: Sequence[str],
        transfer: Transfer,
        ids: Ids,
        processes: TrackerProcesses | None,
    ) -> None:
        """`processes` follow what masks show; without them this thread does."""
        self._ids, self._processes = ids, processes
        self._transfer, self._info = transfer, info
        self._colored = config.tracker == "accurate"
        moving = config.tracker != "fast"
        self._settings = MaskTracking(classes=tuple(classes), threshold=config.threshold, moving=moving)

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        follow: _Follow | None = None
        with ExitStack() as exits:
            for batch in batches:
                if batch.frames.repeated:  # an old picture, though its time is new: nobody is followed through a loss
                    nobody = FrameInstances(instances=(), label_map=np.zeros(tuple(batch.masks.shape[1:]), np.uint8))
                    yield replace(batch, instances=(nobody,) * len(batch))
                    continue
                if follow is None:  # the first batch shows whether the network has found instances
                    follow = self._components(exits) if batch.instances is None else self._given()
                shape = tuple(batch.masks.shape[1:])
                colors = small_colors(batch.frames, self._info, shape, self._transfer) if self._colored else None
                yield replace(batch, instances=follow(batch, colors, _times(batch.frames, self._info)))

    def _components(self, exits: ExitStack) -> _Follow:
        """Returns what follows the components of masks."""
        tracker: MaskTracker | RemoteTracker
        if self._processes is None:
            tracker = MaskTracker(self._settings, self._ids)
        else:
            tracker = exits.enter_context(self._processes.tracker(self._settings, self._ids))

        def follow(batch: MaskedBatch, colors: Sequence[Colors] | None, times: list[float]) -> Followed:
            masks = _on_host(batch.masks, len(batch), self._transfer)
            class_map = None if batch.class_map is None else _on_host(batch.class_map, len(batch), self._transfer)
            return tracker(masks, class_map, colors, times)

        return follow

    def _given(self) -> _Follow:
        """Returns what follows the instances that the network has found."""
        tracker = Tracker(moving=self._settings.moving, split=False, ids=self._ids)

        def follow(batch: MaskedBatch, colors: Sequence[Colors] | None, times: list[float]) -> Followed:
            found = batch.instances or ()
            looks: Sequence[Colors | None] = colors or [None] * len(batch)
            followed = map(tracker.update, found, times, looks)
            return tuple(replace(made, unknown=one.unknown) for made, one in zip(followed, found, strict=True))

        return follow


class Keeping:
    """Marks those instances of each frame that are kept."""

    def __init__(self, keep: Keep, info: VideoInfo) -> None:
        self._keeper, self._info = Keeper(keep), info

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        for batch in batches:
            assert batch.instances is not None
            times = _times(batch.frames, self._info)
            yield replace(batch, instances=tuple(map(self._keeper.mark, batch.instances, times)))


def _times(batch: FrameBatch, info: VideoInfo) -> list[float]:
    """Returns when each frame is shown, in seconds on the source's clock."""
    return [float(frame.pts * info.time_base) for frame in batch.frames]


def _on_host(array: Array, count: int, transfer: Transfer) -> NDArray[Any]:
    rows = transfer.rows(array, "host", count)
    assert isinstance(rows, np.ndarray)
    return rows


def small_colors(batch: FrameBatch, info: VideoInfo, shape: tuple[int, ...], transfer: Transfer) -> list[Colors]:
    """Returns the color bins of each frame at the places of its mask (h, w), upright.

    One sample stands for each place. So it takes no kernel to bring few samples from a GPU to the host.
    """
    turns = info.rotation // 90
    height, width = shape if turns % 2 == 0 else shape[::-1]
    pictures: list[Sequence[Plane]] = []  # Y, U and V, each of all frames
    for k in range(3):
        if batch.memory == "cuda":
            plane = batch.planes[k]
            sparse = plane[:, :: max(1, plane.shape[1] // height), :: max(1, plane.shape[2] // width)]
            pictures.append(list(_on_host(sparse, len(batch), transfer)))
        else:
            pictures.append([frame.planes[k] for frame in batch.frames])
    y, u, v = (np.stack([_sampled(plane, (height, width)) for plane in planes]) for planes in pictures)
    return [np.rot90(bins, turns) for bins in color_bins(y, u, v)]


def _sampled(plane: Plane, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns one sample in 8 bits for each place of a mask of that size (h, w)."""
    rows, columns = ((2 * np.arange(n) + 1) * whole // (2 * n) for n, whole in zip(size, plane.shape, strict=True))
    samples = plane[rows[:, None], columns]
    return np.asarray(samples if samples.dtype == np.uint8 else samples >> 2, np.uint8)
