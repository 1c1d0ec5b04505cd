"""Device memory that goes round: what a batch's frames lie in is given out again when nobody refers to it any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # they need libraries that machines without a GPU lack
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.driver import Event


class Planes(tuple[torch.Tensor, ...]):
    """Tensors (N, h, w) in device memory. Who works with one of them, or a part of it, holds on to all of them."""

    pool: PlanePool | None = None

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.take_back(tuple(self))


class PlanePool:
    """Planes of the same shapes, for use on `gpu`'s stream. `reader`: on whose stream, if on another one, others work
    with them, having seen to it that what is written there is in them by then.

    `gpu`'s stream never waits for the reader's: rather there are a few planes more.
    """

    def __init__(
        self, gpu: Gpu, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, reader: Gpu | None = None
    ) -> None:
        self._gpu, self._shapes, self._dtype, self._reader = gpu, shapes, dtype, reader
        self._free: deque[tuple[tuple[torch.Tensor, ...], Event | None]] = deque()  # those that wait longest first

    def take(self) -> Planes:
        """Planes that nobody else has; what was in them is still there."""
        planes = Planes(self._unused() or self._gpu.planes(self._shapes, self._dtype))
        planes.pool = self
        return planes

    def _unused(self) -> tuple[torch.Tensor, ...] | None:
        """Those that were let go of first, if whatever works with them is over."""
        try:
            tensors, read = self._free.popleft()
        except IndexError:
            return None
        if read is None or read.query():
            return tensors
        self._free.appendleft((tensors, read))
        return None

    def take_back(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Whatever works with them is queued. Called by any thread that lets go of them last."""
        if self._reader is None:
            self._free.append((tensors, None))
            return
        with suppress(RuntimeError):  # a GPU that has failed, as those say who work with it; nothing is given out then
            self._reader.enter()
            self._free.append((tensors, self._reader.record_event()))

    def __del__(self) -> None:
        """Makes `gpu`'s stream wait for the reads of all free planes.

        PyTorch may give their memory to the next work on that stream at once, where the next file's pool begins.
        """
        with suppress(RuntimeError):  # a GPU that has failed, which is reported where stages are called
            for _, read in self._free:
                if read is not None and not read.query():
                    self._gpu.enter()
                    self._gpu.wait_event(read)
