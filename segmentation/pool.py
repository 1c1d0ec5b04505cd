"""Device memory that goes round: what a batch's frames lie in is given out again when nobody refers to it any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # they need libraries that machines without a GPU lack
    from segmentation.driver import Event
    from segmentation.gpu import Gpu


class Planes(tuple[torch.Tensor, ...]):
    """Tensors (N, h, w) in device memory. Who works with one of them, or a part of it, holds on to all of them."""

    pool: PlanePool | None = None

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.take_back(tuple(self))


class PlanePool:
    """Planes of the same shapes, for use on `gpu`'s stream. `reader`: on whose stream, if on another one, others work
    with them, having seen to it that what is written there is in them by then."""

    def __init__(
        self, gpu: Gpu, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, reader: Gpu | None = None
    ) -> None:
        self._gpu, self._shapes, self._dtype, self._reader = gpu, shapes, dtype, reader
        self._free: deque[tuple[tuple[torch.Tensor, ...], Event | None]] = deque()  # those that wait longest first

    def take(self) -> Planes:
        """Planes that nobody else has; what was in them is still there."""
        try:
            tensors, read = self._free.popleft()
        except IndexError:
            tensors, read = self._gpu.planes(self._shapes, self._dtype), None
        if read is not None:
            self._gpu.wait_event(read)
        planes = Planes(tensors)
        planes.pool = self
        return planes

    def take_back(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Whatever works with them is queued. Called by any thread that lets go of them last."""
        if self._reader is None:
            self._free.append((tensors, None))
            return
        self._reader.enter()
        self._free.append((tensors, self._reader.recorded()))
