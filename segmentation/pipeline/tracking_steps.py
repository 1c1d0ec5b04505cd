"""Steps that find the instances of each frame, follow them, and choose who is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, FrameBatch, MaskedBatch, Plane, Transfer, VideoInfo
from segmentation.instances import FrameInstances
from segmentation.options.config import Config
from segmentation.options.instances import Keep
from segmentation.stages.tracking.appearance import Colors, color_bins
from segmentation.stages.tracking.choice import Keeper
from segmentation.stages.tracking.components import components
from segmentation.stages.tracking.tracker import Tracker


class Tracking:
    """Finds the instances of each frame, unless the network has found them, and gives them ids."""

    def __init__(
        self, config: Config, info: VideoInfo, classes: Sequence[str], transfer: Transfer, ids: Iterator[int]
    ) -> None:
        self._ids = ids
        self._transfer, self._info, self._classes = transfer, info, classes
        self._threshold = config.threshold
        self._moving = config.tracker != "fast"
        self._colored = config.tracker == "accurate"
        self._tracker: Tracker | None = None  # the first batch shows whether the network has found instances

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        for batch in batches:
            if batch.frames.repeated:  # an old picture, though its time is new: nobody is followed through a loss
                nobody = FrameInstances(instances=(), label_map=np.zeros(tuple(batch.masks.shape[1:]), np.uint8))
                yield replace(batch, instances=(nobody,) * len(batch))
                continue
            if self._tracker is None:
                self._tracker = Tracker(moving=self._moving, split=batch.instances is None, ids=self._ids)
            found = self._found(batch) if batch.instances is None else batch.instances
            looks: Sequence[Colors | None] = [None] * len(batch)
            if self._colored:
                looks = small_colors(batch.frames, self._info, found[0].label_map.shape, self._transfer)
            times = _times(batch.frames, self._info)
            followed = map(self._tracker.update, found, times, looks)
            marked = (replace(made, unknown=one.unknown) for made, one in zip(followed, found, strict=True))
            yield replace(batch, instances=tuple(marked))

    def _found(self, batch: MaskedBatch) -> tuple[FrameInstances, ...]:
        count = len(batch)
        masks = _on_host(batch.masks, count, self._transfer)
        if batch.class_map is None:
            label = ", ".join(self._classes)
            return tuple(components(mask, None, [label], self._threshold) for mask in masks)
        maps = _on_host(batch.class_map, count, self._transfer)
        return tuple(
            components(mask, class_map, self._classes, self._threshold)
            for mask, class_map in zip(masks, maps, strict=True)
        )


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


def _on_host(array: Array, count: int, transfer: Transfer) -> NDArray[np.generic]:
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
