"""Steps that find the instances of each frame, follow them, and choose who is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from segmentation.frames import Array, FrameBatch, MaskedBatch, Transfer, VideoInfo
from segmentation.frames.instances import BoxMap, FrameInstances
from segmentation.options.config import Config
from segmentation.options.instances import Keep
from segmentation.tracking.box_tracker import BoxTracker, BoxTracking
from segmentation.tracking.choice import Keeper
from segmentation.tracking.color_histograms import Colors, color_bins
from segmentation.tracking.color_samples import Sampler, make_sampler
from segmentation.tracking.mask_tracker import Ids, MaskTracker, MaskTracking
from segmentation.tracking.process.tracker_processes import RemoteTracker, TrackerProcesses

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

Followed: TypeAlias = tuple[FrameInstances, ...]  # of each frame of a batch
_Follow: TypeAlias = "Callable[[MaskedBatch, Array | None, list[float]], Followed]"


class Tracking:
    """Finds the instances of each frame, unless the network has found them, and gives them ids."""

    def __init__(
        self,
        config: Config,
        info: VideoInfo,
        pix_fmt: str,
        classes: Sequence[str],
        transfer: Transfer,
        ids: Ids,
        processes: TrackerProcesses | None,
        gpu: Gpu | None,
    ) -> None:
        """`processes` follow what masks show, and boxes of files; without them this thread does.

        Batches may lie on `gpu`.
        """
        self._ids, self._processes = ids, processes
        self._transfer, self._info, self._pix_fmt, self._gpu = transfer, info, pix_fmt, gpu
        self._colored = config.tracker == "accurate"
        self._covering = config.covers_boxes
        moving = config.tracker != "fast"
        self._settings = MaskTracking(classes=tuple(classes), threshold=config.threshold, moving=moving)

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        follow: _Follow | None = None
        sample: Sampler | None = None
        with ExitStack() as exits:
            for batch in batches:
                if batch.frames.repeated:  # an old picture, though its time is new: nobody is followed through a loss
                    nobody = FrameInstances(instances=(), first_map=np.zeros(tuple(batch.masks.shape[1:]), np.uint8))
                    yield replace(batch, instances=(nobody,) * len(batch))
                    continue
                if follow is None:  # the first batch shows whether the network has found instances
                    follow = self._given(batch, exits) if batch.instances else self._components(exits)
                    if self._colored:
                        sample = make_sampler(batch.frames, self._info, self._pix_fmt, self._gpu)
                samples = None if sample is None else sample(batch.frames, batch.masks.shape[1:])
                yield replace(batch, instances=follow(batch, samples, _times(batch.frames, self._info)))

    def _components(self, exits: ExitStack) -> _Follow:
        """Returns what follows the components of masks."""
        tracker: MaskTracker | RemoteTracker
        if self._processes is None:
            tracker = MaskTracker(self._settings, self._ids)
        else:
            tracker = exits.enter_context(self._processes.tracker(self._settings, self._ids))

        def follow(batch: MaskedBatch, samples: Array | None, times: list[float]) -> Followed:
            rows = None if batch.class_map is None else batch.class_map[: len(batch)]
            masks, (class_map, looks) = self._transfer.on_host(batch.masks[: len(batch)], rows, samples)
            return tracker(masks, class_map, looks, times)

        return follow

    def _given(self, batch: MaskedBatch, exits: ExitStack) -> _Follow:
        """Returns what follows the instances that the network has found, as in the first `batch`."""
        settings = BoxTracking(moving=self._settings.moving, covering=self._covering)
        boxes = all(isinstance(frame.first_map, BoxMap) for frame in batch.instances)
        # Of files alone: a camera's few frames a second need no process of their own.
        if self._processes is not None and boxes and not self._colored and self._info.live is None:
            remote = exits.enter_context(self._processes.box_tracker(settings, self._ids))
            return lambda batch, samples, times: remote(batch.instances, times, _shots(batch))
        tracker = BoxTracker(settings, self._ids)

        def follow(batch: MaskedBatch, samples: Array | None, times: list[float]) -> Followed:
            looks: Iterable[Colors | None] = repeat(None, len(batch))
            if samples is not None:
                levels, _ = self._transfer.on_host(samples)
                looks = (color_bins(levels[:, row]) for row in range(len(batch)))
            return tracker(batch.instances, times, _shots(batch), looks)

        return follow


def _shots(batch: MaskedBatch) -> tuple[int, ...]:
    return batch.shots or (0,) * len(batch)


class Keeping:
    """Marks those instances of each frame that are kept."""

    def __init__(self, keep: Keep, info: VideoInfo) -> None:
        self._keeper, self._info = Keeper(keep), info

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        for batch in batches:
            times = _times(batch.frames, self._info)
            yield replace(batch, instances=tuple(map(self._keeper.mark, batch.instances, times)))


def _times(batch: FrameBatch, info: VideoInfo) -> list[float]:
    """Returns when each frame is shown, in seconds on the source's clock."""
    return [float(frame.pts * info.time_base) for frame in batch.frames]
