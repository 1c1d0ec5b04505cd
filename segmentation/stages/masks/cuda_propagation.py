"""Propagates masks on a GPU. The formulas are in `propagation.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from segmentation.frames import FORMATS
from segmentation.models.model import Model
from segmentation.stages.masks import propagation, smoothing
from segmentation.stages.masks.mask_kernels import PROPAGATION
from segmentation.stages.masks.propagation import RADII, Doubt, Found, FrameBetween, Later

if TYPE_CHECKING:  # the tests run this class on machines that lack the libraries of `Gpu`
    from segmentation.gpu.context import Gpu

_NONE = np.uint64(0)  # an address


@dataclass(frozen=True, slots=True)
class CudaLuma:
    """A frame's luma as in `propagation.HostLuma`, in CUDA tensors."""

    values: torch.Tensor
    pyramid: tuple[torch.Tensor, ...]


class CudaPropagation(propagation.Propagation[CudaLuma]):
    """A `Propagation` with CUDA tensors. All frames of a call go through each kernel together."""

    def __init__(self, model: Model, gpu: Gpu) -> None:
        self._gpu = gpu
        self._kernels = gpu.kernels(PROPAGATION, FORMATS["yuv420p"])  # they read no frames: any layout will do
        shares = smoothing.luma_shares(model)
        constant = sum(share * mean for share, mean in zip(smoothing.LUMA, model.mean, strict=True))
        self._shares = torch.tensor([*shares, constant], dtype=torch.float32, device=gpu.device)

    def keep(self, tensor: torch.Tensor, count: int) -> tuple[torch.Tensor, list[CudaLuma]]:
        with torch.cuda.stream(self._gpu.stream):
            rows = tensor[:count].clone(memory_format=torch.contiguous_format)
            large = rows.float()
        height, width = rows.shape[2:]
        values, levels = [], []
        for number in range(len(RADII)):
            given = (large, width, height, self._shares) if number == 0 else (large, width, height)
            height, width = -(-height // 2), -(-width // 2)
            large = self._gpu.empty((count, height, width), torch.float32)
            level = self._gpu.empty((count, height, width), torch.uint8)
            kernel = "downsample" if number == 0 else "halve"
            self._kernels(kernel, (width, height, count), *given, large, level, width, height)
            values.append(large)
            levels.append(level)
        return rows, [
            CudaLuma(values[0][frame], tuple(level[frame] for level in reversed(levels))) for frame in range(count)
        ]

    def changes(self, lumas: Sequence[CudaLuma]) -> Later[float]:
        self._gpu.enter()
        with torch.cuda.stream(self._gpu.stream):
            levels = torch.stack([luma.pyramid[0] for luma in lumas]).float()
            return self._later((levels[1:] - levels[:-1]).abs().mean((1, 2)) / 255)

    def gather(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        return self._stacked(rows)

    def split(self, masks: torch.Tensor, class_map: torch.Tensor | None, count: int) -> list[Found]:
        with torch.cuda.stream(self._gpu.stream):
            own = masks[:count].clone()
            maps = [None] * count if class_map is None else list(class_map[:count].clone())
        return [Found(mask, one) for mask, one in zip(own, maps, strict=True)]

    def propagate(self, frames: Sequence[FrameBetween[CudaLuma]], *, doubt: bool) -> tuple[list[Found], Later[Doubt]]:
        stacked, launch, count = self._stacked, self._kernels, len(frames)
        keys = [luma for frame in frames for luma in frame.lumas]
        flow = self._flow([frame.luma for frame in frames], keys)
        rows, columns = flow.shape[2:]
        small = (columns, rows)
        means = self._gpu.empty(tuple(flow.shape), torch.float32)
        residuals, weights = (self._gpu.empty((2 * count, rows, columns), torch.float32) for _ in range(2))
        here, there = stacked([frame.luma.values for frame in frames]), stacked([luma.values for luma in keys])
        launch("match", (*small, 2 * count), here, there, flow, means, residuals, *small)
        shares = self._gpu.pinned((2 * count,), torch.float32)
        shares.numpy()[:] = [s for frame in frames for s in (frame.share, 1 - frame.share)]
        with torch.cuda.stream(self._gpu.stream):
            shares = shares.to(self._gpu.device, non_blocking=True)
        launch("weigh_keys", (*small, 2 * count), residuals, shares, weights, *small)
        warped, warped_maps = self._warped([found for frame in frames for found in frame.found], means)
        height, width = warped.shape[1:]
        masks = self._gpu.empty((count, height, width), torch.float32)
        maps = None if warped_maps is None else self._gpu.empty((count, height, width), torch.uint8)
        given = (warped, _NONE if warped_maps is None else warped_maps, weights, *small)
        launch("blend", (width, height, count), *given, masks, _NONE if maps is None else maps, width, height)
        return self.split(masks, maps, count), self._doubts(warped, shares, weights) if doubt else list

    def join(self, found: Sequence[Found]) -> tuple[torch.Tensor, torch.Tensor | None]:
        masks, maps = zip(*found, strict=True)
        return self._stacked(masks), None if maps[0] is None else self._stacked(maps)

    def _flow(self, frames: Sequence[CudaLuma], keys: Sequence[CudaLuma]) -> torch.Tensor:
        """Returns the flow (2 F, 2, h, w) from F frames to the two keys of each."""
        flow: torch.Tensor | None = None
        for level, radius in enumerate(RADII):
            here, there = (self._stacked([luma.pyramid[level] for luma in lumas]) for lumas in (frames, keys))
            coarse = (_NONE, 0, 0) if flow is None else (flow, flow.shape[3], flow.shape[2])
            height, width = here.shape[1:]
            flow = self._gpu.empty((len(keys), 2, height, width), torch.int32)
            self._kernels("search", (width, height, len(keys)), here, there, *coarse, radius, flow, width, height)
        assert flow is not None
        return flow

    def _warped(self, found: Sequence[Found], flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the masks and class maps of keys in the places of the frames between them."""
        masks, maps = self.join(found)
        count, height, width = masks.shape
        rows, columns = flow.shape[2:]
        warped = self._gpu.empty((count, height, width), torch.float32)
        warped_maps = None if maps is None else self._gpu.empty((count, height, width), torch.uint8)
        given = (masks, _NONE if maps is None else maps, flow, columns, rows)
        target = (warped, _NONE if warped_maps is None else warped_maps, width, height)
        self._kernels("warp", (width, height, count), *given, *target)
        return warped, warped_maps

    def _doubts(self, warped: torch.Tensor, shares: torch.Tensor, weights: torch.Tensor) -> Later[Doubt]:
        """Begins to compute the doubt about each frame from its keys' warped masks, shares and weights."""
        with torch.cuda.stream(self._gpu.stream):
            first, second = warped[0::2], warped[1::2]
            larger = torch.maximum(first.mean((1, 2)), second.mean((1, 2))).clamp_min(propagation.SMALLEST)
            residual = (shares[:, None, None] / weights).sqrt() - propagation.RESIDUAL
            unseen = torch.minimum(residual[0::2], residual[1::2]) > propagation.UNLIKE
            both = torch.stack([(first - second).abs().mean((1, 2)) / larger, unseen.float().mean((1, 2))], dim=1)
        later = self._later(both)
        return lambda: [Doubt(*values) for values in later()]

    def _later(self, values: torch.Tensor) -> Callable[[], list[Any]]:
        """Queues the copy of numbers to the host. Returns a function that waits for them."""
        (host,) = self._gpu.download(values, wait=False)
        copied = self._gpu.record_event()

        def wait() -> list[Any]:
            copied.synchronize()
            numbers: list[Any] = host.tolist()
            return numbers

        return wait

    def _stacked(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        with torch.cuda.stream(self._gpu.stream):
            return torch.stack(tuple(rows))
