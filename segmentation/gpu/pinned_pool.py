"""Hands out page-locked memory of the host, and takes it back when no array refers to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from segmentation.system.shared_memory import arrays_in, planes_size

if TYPE_CHECKING:  # it imports libraries that machines without a GPU lack
    from segmentation.gpu.cuda_calls import Event
    from segmentation.gpu.stream import GpuStream


class PinnedPool:
    """Arrays to which the GPU copies, and from which it copies, without the host. All copies are on `gpu`'s stream.

    Memory is given out again when no array refers to it, and what was queued by then is over. Blocks have sizes that
    are powers of 2, so that frames of several sizes share them. Any thread may take arrays, and drop them.

    PyTorch has such memory too. It releases the GIL in each call, and many threads that compete for the GIL then
    wait for it far longer than a call takes.
    """

    def __init__(self, gpu: GpuStream) -> None:
        self._gpu = gpu
        # By size: with the event after which the GPU uses them no longer; the block that came back first is first.
        self._free: dict[int, deque[tuple[torch.Tensor, Event]]] = {}

    def arrays(self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> list[NDArray[np.generic]]:
        """Returns arrays of these shapes in one block, with arbitrary content."""
        self._gpu.enter()  # copies follow, perhaps the first work of this thread
        size = 1 << (planes_size(shapes, dtype) - 1).bit_length()
        memory = self._take_free(size)
        block = _Block(self, self._gpu.pinned((size,), torch.uint8) if memory is None else memory)
        return [array for _, array in arrays_in(np.asarray(block), shapes, dtype)]

    def _take_free(self, size: int) -> torch.Tensor | None:
        """Returns the block that came back first; `None` while the GPU may still use it."""
        free = self._free.setdefault(size, deque())
        try:
            memory, over = free.popleft()
        except IndexError:
            return None
        if over.query():
            return memory
        free.appendleft((memory, over))
        return None

    def take_back(self, memory: torch.Tensor) -> None:
        """Takes a block whose last use is queued. Called by the thread that drops the last array."""
        with suppress(RuntimeError), self._gpu.entered():  # a failed GPU is reported where stages are called
            self._free[len(memory)].append((memory, self._gpu.record_event()))

    def __del__(self) -> None:
        """Waits for the GPU: PyTorch gives free blocks to others at once."""
        with suppress(RuntimeError):  # a GPU that has failed, which is reported where stages are called
            for free in self._free.values():
                for _, over in free:
                    over.synchronize()


class _Block:
    """Page-locked memory. NumPy arrays in it refer to it."""

    def __init__(self, pool: PinnedPool, memory: torch.Tensor) -> None:
        self._pool, self._memory = pool, memory

    @property
    def __array_interface__(self) -> dict[str, object]:
        shape, address = (len(self._memory),), self._memory.data_ptr()
        return {"version": 3, "shape": shape, "typestr": "|u1", "data": (address, False)}

    def __del__(self) -> None:
        self._pool.take_back(self._memory)
