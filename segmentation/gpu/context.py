"""The GPU of a run: its memory, the stream that all stages share, and the project's own kernels."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from functools import cache

import cvcuda
import torch
from cuda.core import Device

from segmentation.frames import PixelFormat
from segmentation.gpu import driver
from segmentation.gpu.kernels import Kernels, KernelSource, compiled, signatures

_ALIGNED = 512  # samples: libraries read many bytes at a time, from addresses that are multiples of that


@cache
def _spent(device: int, timed: bool) -> deque[int]:
    """Events of that kind that nobody needs any more, of all runs in the process."""
    return deque()


class Gpu:
    """One device and a stream. Whatever is queued on the stream happens in the order of queueing.

    Device memory is PyTorch's: it goes back to PyTorch when its last reference is gone, and the next that asks for as
    much gets it again, without a wait, because both use it on the same stream. What each batch needs comes from a
    `pool.PlanePool`, because asking PyTorch takes the host longer than queueing a kernel.
    """

    def __init__(self, index: int = 0, *, priority: int = 0) -> None:
        """`priority` of the stream's work on the GPU: less goes first."""
        self.index = index
        self.device = torch.device("cuda", index)
        self._entered = threading.local()
        self.enter()
        self.stream = torch.cuda.Stream(self.device, priority=priority)
        self.cvcuda_stream = cvcuda.as_stream(self.stream.cuda_stream)

    def enter(self) -> None:
        """Makes this device the current one of the calling thread, as every thread that queues work must."""
        if not hasattr(self._entered, "yes"):
            torch.cuda.set_device(self.device)
            Device(self.index).set_current()
            self._entered.yes = True

    def with_own_stream(self) -> Gpu:
        """The same device with a stream of its own, for small things that are not to wait for the stages' work."""
        return Gpu(self.index, priority=-1)

    def free_bytes(self) -> int:
        """Memory that nobody has taken."""
        free: int = torch.cuda.mem_get_info(self.device)[0]
        return free

    def record_event(self, *, timed: bool = False) -> driver.Event:
        """An event that passes when all that is queued on the stream by now is over."""
        event = driver.Event(_spent(self.index, timed), timed=timed)
        event.record(self.stream.cuda_stream)
        return event

    def wait_event(self, event: driver.Event) -> None:
        """Lets what is queued on the stream from now on wait for an event, of whichever stream."""
        event.wait(self.stream.cuda_stream)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Queues a copy of `source` to the beginning of `target`: device memory without gaps, of one type."""
        assert target.dtype is source.dtype and source.nbytes <= target.nbytes
        driver.copy(target.data_ptr(), source.data_ptr(), source.nbytes, self.stream.cuda_stream)

    def kernels(self, source: KernelSource, layout: PixelFormat, turns: int = 0) -> Kernels:
        """Returns a program's kernels, for frames of this layout that stand upright after `turns` quarter turns."""
        program = compiled(Device(self.index).arch, source, layout, turns)
        return Kernels(self.stream.cuda_stream, program, signatures(source, layout))

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Device memory for use on the stream."""
        with torch.cuda.stream(self.stream):
            return torch.empty(shape, dtype=dtype, device=self.device)

    def planes(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        """Tensors in one block: memory in blocks of one size goes round, while pieces of several sizes break it up."""
        sizes = [math.prod(shape) for shape in shapes]
        spaced = [-(-size // _ALIGNED) * _ALIGNED for size in sizes]
        parts = self.empty((sum(spaced),), dtype).split(spaced)
        return tuple(part[:size].view(shape) for part, size, shape in zip(parts, sizes, shapes, strict=True))


def torch_dtype(layout: PixelFormat) -> torch.dtype:
    """uint8 for 8 bits, uint16 for 10."""
    return torch.uint8 if layout.bits == 8 else torch.uint16
