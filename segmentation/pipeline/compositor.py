"""Refinement and the postprocessors of all outputs, as one step. Without a video it is refinement alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, FrameBatch, MaskedBatch, Memory, Transfer, VideoInfo
from segmentation.options.config import Config
from segmentation.options.effect import CUTTING, Effect
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.postprocess import Postprocessor
from segmentation.tracking.selected_masks import with_selected_masks

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class Composed(NamedTuple):
    """The frames that a batch has become, and the masks for it."""

    made: list[FrameBatch]  # the frames of each output
    refined: MaskedBatch  # the masks that results state: those of the first output, whatever its effect
    shown: tuple[NDArray[np.float32], ...]  # (N, h, w) of each output if they are verified; the GPU may be copying them


class Compositor:
    """Makes the frames of every output from one batch. All postprocessors work in the same memory."""

    def __init__(
        self,
        outputs: Sequence[tuple[Effect, Postprocessor | None]],
        memory: Memory,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu | None,
        transfer: Transfer,
    ) -> None:
        """`outputs` are what makes the frames of each output, with its effect; without a video one effect and `None`.

        `memory` is that of all postprocessors, and of the masks.
        """
        self.memory = memory
        self._outputs = outputs
        self._config, self._transfer = config, transfer
        by_color = any(effect.kind in CUTTING for effect, _ in outputs)
        self._refine = make_refiner(memory, info, pix_fmt, config, gpu, by_color=by_color) if config.refine else None

    def __call__(self, batch: MaskedBatch) -> Composed:
        """Composites a batch. Effects that cut the background away get edges by color, as if each output were alone."""
        made: list[FrameBatch] = []
        copies: list[NDArray[np.float32]] = []
        shown = selected = cut = batch
        copied: MaskedBatch | None = None
        # From last to first, since the refiner on a GPU overwrites the masks before.
        for effect, postprocess in reversed(self._outputs):
            if shown is batch or self._selects:
                selected = self._selected(batch, effect)
                shown = cut = self._refined(selected)
            if postprocess is None:
                continue
            if effect.kind in CUTTING and cut is shown:
                cut = self._drawn_by_color(selected, shown)
            drawn = cut if effect.kind in CUTTING else shown
            made.insert(0, postprocess(drawn))
            if self._config.verify:
                copies.insert(0, copies[0] if drawn is copied else self._on_host(drawn))
                copied = drawn
        return Composed(made, shown, tuple(copies))

    @property
    def _selects(self) -> bool:
        """Whether outputs may differ in what their masks show."""
        return any(effect.label for effect, _ in self._outputs)

    def _selected(self, batch: MaskedBatch, effect: Effect) -> MaskedBatch:
        config = self._config
        return with_selected_masks(batch, effect, config.threshold, self._transfer, keeping=config.keep is not None)

    def _on_host(self, batch: MaskedBatch) -> NDArray[np.float32]:
        rows = self._transfer.rows(batch.masks, "host", len(batch), wait=False)
        assert isinstance(rows, np.ndarray)
        return rows

    def _refined(self, batch: MaskedBatch) -> MaskedBatch:
        return batch if self._refine is None else replace(batch, masks=self._refine(batch.frames, batch.masks))

    def _drawn_by_color(self, batch: MaskedBatch, refined: MaskedBatch) -> MaskedBatch:
        if self._refine is None:
            return refined
        return replace(refined, masks=self._refine.by_color(batch.frames, batch.masks, refined.masks))


class MaskRefiner(Protocol):
    """See `refinement.Refiner`."""

    def __call__(self, batch: FrameBatch, masks: Array, /) -> Array: ...

    def by_color(self, batch: FrameBatch, masks: Array, refined: Array, /) -> Array: ...


def make_refiner(
    memory: Memory, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu | None, *, by_color: bool
) -> MaskRefiner:
    """Returns the refiner of masks in that memory. `by_color` says whether the method of that name will be called."""
    if gpu is None or memory == "host":
        return Refiner(info, pix_fmt)
    from segmentation.stages.masks.cuda import CudaRefiner  # needs PyTorch

    return CudaRefiner(info, pix_fmt, config, gpu, by_color)
