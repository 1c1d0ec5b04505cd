"""The step from masks to what encoders and sinks take: covers, composites, and copies to the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from segmentation.flow.threads import GpuTurn
from segmentation.frames import Array, FrameBatch, MaskedBatch, Memory, Transfer
from segmentation.frames.instances import FrameInstances
from segmentation.frames.sinks import UNREAD, UNSAVED, FinishedBatch
from segmentation.gpu.errors import gpu_errors
from segmentation.live.card import with_card
from segmentation.options.config import Config
from segmentation.pipeline.compositor import Composed, Compositor
from segmentation.pipeline.fail_closed import FailClosed
from segmentation.pipeline.opened_run import OpenedRun
from segmentation.pipeline.outputs import EncodingBatch, Outputs
from segmentation.pipeline.resources import Resources
from segmentation.pipeline.stream_status import StreamMonitor
from segmentation.pipeline.verification.thumbnails import thumbnails
from segmentation.stages.mask_source import MaskSource
from segmentation.stages.masks.quantize import quantize

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class CompositeStep:
    """Makes the frames of all outputs, and brings to the host whatever a sink reads."""

    def __init__(
        self,
        resources: Resources,
        opened: OpenedRun,
        outputs: Outputs,
        compositor: Compositor,
        masks: MaskSource,
        transfer: Transfer,
        monitor: StreamMonitor | None,
    ) -> None:
        """`masks` is where the batches come from. `monitor` shows some of the pictures.

        Raises `ConfigError` for a region outside of the picture.
        """
        config = opened.config
        # Masks and results have buffers of their run alone, whose threads share them.
        self._turn = resources.composites_turn if config.video else GpuTurn()
        self._clock, self._gpu, self._config = opened.clock, opened.gpu, config
        self._outputs, self._compositor, self._masks, self._transfer = outputs, compositor, masks, transfer
        self._monitor, self._pix_fmt = monitor, opened.plan.pix_fmt
        self._lines = config.results is not None and config.results_format == "lines"  # others read instances alone
        self._cover = FailClosed(config, opened.info, transfer, masks.memory, opened.gpu)
        self._quantize = _quantizer(masks.memory, config, opened.gpu) if config.save_masks is not None else None

    def __call__(self, batch: MaskedBatch) -> EncodingBatch:
        """Returns the batch for the encoders. The GPU may still be making it."""
        transfer = self._transfer
        transfer.enter()
        with gpu_errors():
            levels: Array | None = None
            with self._turn.of(self._masks):
                batch = self._cover(batch)
                if self._quantize is not None:
                    levels, masks = self._quantize(batch.masks)
                    batch = replace(batch, masks=masks)  # the composite shows the masks that are saved
            with self._turn.of(self._compositor):
                composed = self._composed(batch)
                looked_at = transfer.frames(composed.made[0], "host", wait=False) if self._is_looked_at else None
                finished = self._finished(batch, composed, levels)
                copied = None if self._gpu is None else self._gpu.record_event()
            if looked_at is not None:
                self._show(looked_at)
            # The frames are in memory of their own. Page-locked memory takes time, which other runs need not wait for.
            frames = [
                output.for_encoder(made, transfer) for made, output in zip(composed.made, self._outputs, strict=True)
            ]
            if any(made.memory == "host" and made.ready is not None for made in frames):
                copied = None  # frames are copied after the arrays, and the encoder waits for them
        return EncodingBatch(finished=finished, copied=copied, frames=deque(frames))

    def _composed(self, batch: MaskedBatch) -> Composed:
        if not (self._config.video or self._lines):
            return Composed([], batch, ())
        moved = batch.to(self._compositor.memory, self._transfer)
        composed = self._clock.stage("postprocess", batch.frames, self._compositor, moved)
        if (card := batch.frames.card) is None:
            return composed
        every = zip(composed.made, self._outputs, strict=True)
        return composed._replace(made=[with_card(made, card) if one.shows_cards else made for made, one in every])

    def _finished(self, batch: MaskedBatch, composed: Composed, levels: Array | None) -> FinishedBatch:
        """Returns what sinks take. The GPU may still be copying it."""
        verify, count, class_map = self._config.verify, len(batch), composed.refined.class_map
        return FinishedBatch(
            frames=batch.frames.without_pictures(),
            found=batch.found,
            unknown=batch.unknown,
            masks=self._on_host(composed.refined.masks, count) if self._lines else UNREAD,
            shown=composed.shown,
            levels=UNSAVED if levels is None else self._on_host(levels, count),
            class_map=self._on_host(class_map, count) if self._lines and class_map is not None else None,
            instances=self._instances_read(batch),
            shots=batch.shots,
            bare=batch.bare,
            thumbnails=self._on_host(thumbnails(batch.frames, self._gpu), count) if verify else UNREAD,
        )

    @property
    def _is_looked_at(self) -> bool:
        """Whether a small picture of the first output is asked for."""
        return self._config.video and self._monitor is not None and self._monitor.wants_picture

    def _show(self, batch: FrameBatch) -> None:
        """Shows the last frame of a batch to who looks, once the GPU has copied it to the host."""
        if batch.ready is not None:
            batch.ready.synchronize()
        if self._monitor is not None:
            self._monitor.show(batch.frames[-1].planes, self._pix_fmt)

    def _instances_read(self, batch: MaskedBatch) -> tuple[FrameInstances, ...]:
        """Returns the instances if a sink reads them: those without ids go to results alone."""
        read = self._config.results is not None or self._config.tracker is not None
        return tuple(batch.instances) if read else ()

    def _on_host(self, array: Array, count: int) -> NDArray[Any]:
        """Returns the first rows of an array on the host. The GPU may still be copying them."""
        rows = self._transfer.rows(array, "host", count, wait=False)
        assert isinstance(rows, np.ndarray)
        return rows


def _quantizer(memory: Memory, config: Config, gpu: Gpu | None) -> Callable[[Array], tuple[Array, Array]]:
    if gpu is None or memory == "host":
        return quantize
    from segmentation.stages.masks.cuda import CudaQuantizer  # needs PyTorch

    return CudaQuantizer(config, gpu)
