"""The GPU of a run: one device, with the stream that the stages share, its memory and the project's own kernels."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import PixelFormat
from segmentation.frames.event import Event
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.gpu import cuda_calls
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.discovery import arch_of, enter_context
from segmentation.gpu.kernels import Kernels, KernelSource, compiled, signatures
from segmentation.gpu.pinned_pool import PinnedPool
from segmentation.gpu.plane_pool import PlanePool

try:
    import cvcuda
except BaseException:
    # After an import that failed, as it does where a GPU's memory is full, the next one would abort the process.
    sys.modules["cvcuda"] = None  # type: ignore[assignment]
    raise

_ALIGNMENT = 512  # samples: libraries read many bytes at a time, from addresses that are multiples of their number
_MOST_CONSTANTS = 256  # arrays


class Gpu:
    """One device and a stream. Work that is queued on the stream happens in the order of queueing.

    Device memory is PyTorch's. A freed block goes to the next request of its size without a wait, because both use the
    block on the same stream. Memory of batches comes from a `plane_pool.PlanePool` instead: a request to PyTorch takes
    the host longer than queueing a kernel.
    """

    def __init__(self, index: int = 0, *, priority: int = 0) -> None:
        """`index` is the number of the device, `priority` the stream's: the GPU prefers work of lower numbers."""
        self.index = index
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        enter_context(index)
        self._context = cuda_calls.current_context()
        self.stream = torch.cuda.Stream(self.device, priority=priority)
        self.cvcuda_stream = cvcuda.as_stream(self.stream.cuda_stream)
        self._pools: WeakValueDictionary[object, PlanePool] = WeakValueDictionary()
        self._pinned_pool: Callable[[], PinnedPool | None] = lambda: None  # a weak reference, once there is one
        self._pools_lock = threading.Lock()
        self._kernels: dict[tuple[KernelSource, PixelFormat, Orientation], Kernels] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], torch.Tensor] = {}  # the oldest one first

    def enter(self) -> None:
        """Makes this device the current one of the calling thread. Every thread that queues work calls it first.

        `enter_context` would ask for the device anew in each thread, and give up the GIL each time. A thread of the
        program may have chosen another device meanwhile.
        """
        if cuda_calls.current_context() != self._context:
            torch.cuda.set_device(self.device)
            cuda_calls.make_current(self._context)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Makes this device the current one meanwhile, in a thread that may be the program's own."""
        before = cuda_calls.current_context()
        cuda_calls.make_current(self._context)
        try:
            yield
        finally:
            cuda_calls.make_current(before)

    def with_own_stream(self) -> Gpu:
        """Returns the same device with another stream, whose work the GPU prefers to the stages' work."""
        return Gpu(self.index, priority=-1)

    def free_bytes(self) -> int:
        """Returns how much of the device's memory no process has taken."""
        free: int = torch.cuda.mem_get_info(self.device)[0]
        return free

    def record_event(self, *, timed: bool = False) -> cuda_calls.Event:
        """Returns an event that passes when all work that is on the stream by now is over."""
        event = cuda_calls.Event(_spare_events(self.index, timed), timed=timed)
        event.record(self.stream.cuda_stream)
        return event

    def wait_event(self, event: Event) -> None:
        """Makes work that is queued on the stream from now on wait for an event of any stream."""
        event.wait(self.stream.cuda_stream)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Queues a copy of `source` to the beginning of `target`. Both have one dtype, and no gaps."""
        assert target.dtype is source.dtype and source.nbytes <= target.nbytes
        self.copy_bytes(target.data_ptr(), source.data_ptr(), source.nbytes)

    def copy_bytes(self, target: int, source: int, size: int) -> None:
        """Queues a copy between two addresses, each in device memory or in page-locked memory of the host."""
        cuda_calls.copy(target, source, size, self.stream.cuda_stream)

    def kernels(self, source: KernelSource, layout: PixelFormat, orientation: Orientation = UPRIGHT) -> Kernels:
        """Returns a program's kernels, for frames of this layout that are stored so: the same ones for all callers.

        To look up a kernel by its name gives up the GIL, and a run looks up fifteen.
        """
        key = (source, layout, orientation)
        found = self._kernels.get(key)
        if found is None:
            program = compiled(arch_of(self.index), source, layout, orientation)
            found = self._kernels[key] = Kernels(self.stream.cuda_stream, program, signatures(source, layout))
        return found

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Returns device memory for use on the stream, with arbitrary content."""
        with torch.cuda.stream(self.stream):
            return torch.empty(shape, dtype=dtype, device=self.device)

    def constant(self, array: NDArray[np.generic]) -> torch.Tensor:
        """Returns an array in device memory to which nobody writes: one and the same for all of the same content.

        An upload gives up the GIL twice and waits for the device, where other runs are at work.
        """
        key = (array.dtype.str, array.shape, array.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = torch.from_numpy(array.copy()).to(self.device)
            if len(self._constants) > _MOST_CONSTANTS:
                self._constants.pop(next(iter(self._constants)), None)
        return found

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Returns page-locked memory of the host, with arbitrary content. Kernels may read and write it where it is."""
        with capture_unsafe():
            return torch.empty(shape, dtype=dtype, pin_memory=True)

    def download(self, *tensors: torch.Tensor, rows: int | None = None, wait: bool = True) -> list[NDArray[Any]]:
        """Returns tensors on the host. Waits for what was queued before the copies, not for what others queue behind.

        Without `wait` the copies are queued. The arrays are those of a `PinnedPool`. `rows` is how many of each tensor
        are wanted, by default all: a slice of a tensor would give up the GIL.
        """
        pool = self.pinned_pool()
        arrays = []
        for tensor in tensors:
            if not tensor.is_contiguous():
                with torch.cuda.stream(self.stream):
                    tensor = tensor.contiguous()
            shape = tuple(tensor.shape) if rows is None else (min(rows, len(tensor)), *tensor.shape[1:])
            (array,) = pool.arrays([shape], _numpy_dtype(tensor.dtype))
            self.copy_bytes(array.ctypes.data, tensor.data_ptr(), array.nbytes)
            arrays.append(array)
        if wait:
            self.record_event().synchronize()
        return arrays

    def pinned_pool(self) -> PinnedPool:
        """Returns the pool of page-locked arrays. All who hold it at the same time share it."""
        with self._pools_lock:
            pool = self._pinned_pool()
            if pool is None:
                pool = PinnedPool(self)
                self._pinned_pool = ref(pool)
            return pool

    def plane_pool(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, reader: Gpu | None = None) -> PlanePool:
        """Returns the pool of such planes, see `PlanePool`. All who hold it at the same time share it.

        So the runs of a session take the memory of what they use together, not of the most that each has ever used.
        """
        key = (tuple(shapes), dtype, reader)
        with self._pools_lock:
            pool = self._pools.get(key)
            if pool is None:
                pool = self._pools[key] = PlanePool(self, shapes, dtype, reader)
            return pool

    def empty_planes(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        """Returns tensors of these shapes in one block: blocks of several sizes would break the memory up."""
        sizes = [math.prod(shape) for shape in shapes]
        spaced = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
        parts = self.empty((sum(spaced),), dtype).split(spaced)
        return tuple(part[:size].view(shape) for part, size, shape in zip(parts, sizes, shapes, strict=True))


@cache
def _spare_events(device: int, timed: bool) -> deque[int]:
    """Returns the handles of the process's events of one kind that can be used again."""
    return deque()


def torch_dtype(layout: PixelFormat) -> torch.dtype:
    """Returns the dtype of samples: uint8 for 8 bits, uint16 for 10."""
    return torch.uint8 if layout.bits == 8 else torch.uint16


@cache
def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Returns NumPy's dtype for one of PyTorch."""
    found: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    return found
