"""Hands out device memory for the planes of batches, and takes it back when no reference is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:  # it imports libraries that machines without a GPU lack
    from segmentation.gpu.cuda_calls import Event
    from segmentation.gpu.stream import GpuStream


class DevicePlanes(tuple[torch.Tensor, ...]):
    """Tensors (N, h, w) in device memory. A user of one tensor, or of a view, must hold on to the whole object."""

    pool: PlanePool | None = None

    def __del__(self) -> None:
        if self.pool is not None:
            self.pool.take_back(tuple(self))


class PlanePool:
    """Planes of the same shapes, written on `gpu`'s stream.

    `reader` is the `Gpu` whose stream reads the planes, if that is another stream. Its work must have been made to wait
    for the writes. `gpu`'s stream never waits for reads: the pool grows by a few planes instead.

    Several threads may take planes.
    """

    def __init__(
        self, gpu: GpuStream, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, reader: GpuStream | None = None
    ) -> None:
        self._gpu, self._shapes, self._dtype, self._reader = gpu, shapes, dtype, reader
        # With the event after which nothing reads the planes; the planes that came back first are first.
        self._free: deque[tuple[tuple[torch.Tensor, ...], Event | None]] = deque()

    def take(self) -> DevicePlanes:
        """Returns planes that no other object uses, with their old content."""
        planes = DevicePlanes(self._take_free() or self._gpu.empty_planes(self._shapes, self._dtype))
        planes.pool = self
        return planes

    def _take_free(self) -> tuple[torch.Tensor, ...] | None:
        """Returns the planes that came back first; `None` while the GPU may still read them."""
        try:
            tensors, read = self._free.popleft()
        except IndexError:
            return None
        if read is None or read.query():
            return tensors
        self._free.appendleft((tensors, read))
        return None

    def take_back(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Takes planes whose last use is queued. Called by any thread: by the thread that drops the last reference."""
        if self._reader is None:
            self._free.append((tensors, None))
            return
        with suppress(RuntimeError), self._reader.entered():  # a failed GPU is reported where stages are called
            self._free.append((tensors, self._reader.record_event()))

    def __del__(self) -> None:
        """Makes `gpu`'s stream wait for the reads of all free planes.

        PyTorch may give their memory to the next work on that stream at once, where the next file's pool begins.
        """
        with suppress(RuntimeError):  # a GPU that has failed, which is reported where stages are called
            for _, read in self._free:
                if read is not None and not read.query():
                    with self._gpu.entered():
                        self._gpu.wait_event(read)
