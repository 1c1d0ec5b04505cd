"""Steps that find the instances of each frame, follow them, and choose who is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, FrameBatch, MaskedBatch, Places, Transfer, VideoInfo
from segmentation.instances import FrameInstances
from segmentation.options.config import Config
from segmentation.options.instances import Keep
from segmentation.stages.tracking.appearance import Colors, Samples, color_bins
from segmentation.stages.tracking.choice import Keeper
from segmentation.stages.tracking.mask_tracker import Ids, MaskTracker, MaskTracking
from segmentation.stages.tracking.tracker import Tracker
from segmentation.stages.tracking.tracker_processes import RemoteTracker, TrackerProcesses

Followed: TypeAlias = tuple[FrameInstances, ...]  # of each frame of a batch
_Follow = Callable[[MaskedBatch, Samples | None, list[float]], Followed]


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
                    nobody = FrameInstances(instances=(), first_map=np.zeros(tuple(batch.masks.shape[1:]), np.uint8))
                    yield replace(batch, instances=(nobody,) * len(batch))
                    continue
                if follow is None:  # the first batch shows whether the network has found instances
                    follow = self._components(exits) if batch.instances is None else self._given()
                shape = tuple(batch.masks.shape[1:])
                samples = small_colors(batch.frames, self._info, shape, self._transfer) if self._colored else None
                yield replace(batch, instances=follow(batch, samples, _times(batch.frames, self._info)))

    def _components(self, exits: ExitStack) -> _Follow:
        """Returns what follows the components of masks."""
        tracker: MaskTracker | RemoteTracker
        if self._processes is None:
            tracker = MaskTracker(self._settings, self._ids)
        else:
            tracker = exits.enter_context(self._processes.tracker(self._settings, self._ids))

        def follow(batch: MaskedBatch, samples: Samples | None, times: list[float]) -> Followed:
            masks = _on_host(batch.masks, len(batch), self._transfer)
            class_map = None if batch.class_map is None else _on_host(batch.class_map, len(batch), self._transfer)
            return tracker(masks, class_map, samples, times)

        return follow

    def _given(self) -> _Follow:
        """Returns what follows the instances that the network has found."""
        tracker = Tracker(moving=self._settings.moving, split=False, ids=self._ids)

        def follow(batch: MaskedBatch, samples: Samples | None, times: list[float]) -> Followed:
            found = batch.instances or ()
            looks: Iterable[Colors | None] = repeat(None, len(batch))
            if samples is not None:
                looks = (color_bins(samples[:, row]) for row in range(len(batch)))
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


def small_colors(batch: FrameBatch, info: VideoInfo, shape: tuple[int, ...], transfer: Transfer) -> Samples:
    """Returns one sample of the color for each place of the masks (h, w), upright.

    So it takes no kernel to bring few samples from a GPU to the host.
    """
    turns = info.rotation // 90
    size = shape if turns % 2 == 0 else shape[::-1]
    planes = batch.planes if batch.memory == "cuda" else batch.frames[0].planes
    places = [_places(size, tuple(plane.shape[-2:])) for plane in planes]
    if batch.memory == "cuda":
        samples = transfer.samples([plane[: len(batch)] for plane in planes], places)
    else:
        frames = (transfer.samples(frame.planes, places) for frame in batch.frames)
        samples = [np.stack(plane) for plane in zip(*frames, strict=True)]
    levels = [plane if plane.dtype == np.uint8 else plane >> 2 for plane in samples]
    return np.rot90(np.asarray(levels, np.uint8), turns, (2, 3))


@cache
def _places(size: tuple[int, ...], whole: tuple[int, ...]) -> Places:
    """Returns the rows and the columns of a plane (h, w) that stand for those of a mask."""
    rows, columns = (
        tuple((2 * place + 1) * there // (2 * here) for place in range(here))
        for here, there in zip(size, whole, strict=True)
    )
    return rows, columns
