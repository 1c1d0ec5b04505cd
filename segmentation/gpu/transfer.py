"""Copies batches between the host's memory and the GPU's, where two successive stages work in different memory.

Copies go through page-locked memory, which the GPU accesses without the host: arrays of a `PinnedPool`. For an encoder
in a process of its own, a block of a `BlockPool` takes their place. Such a block is used again without waiting for its
copies, because all copies are queued on one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import ON_GPU, Array, Frame, FrameBatch, HostArray, Memory, PixelFormat, Transfer, VideoInfo
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.system.shared_memory import BlockPool, SharedPlanes

_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all devices


class GpuTransfer(Transfer):
    """Copies on the stream of a `Gpu`; see `frames.Transfer` for the methods."""

    def __init__(self, gpu: Gpu, info: VideoInfo, layout: PixelFormat, batch_size: int) -> None:
        self._gpu = gpu
        self._layout = layout
        shapes = [(batch_size, *shape) for shape in layout.shapes(info.width, info.height)]
        self._pool = gpu.plane_pool(shapes, torch_dtype(layout))
        self._pinned = gpu.pinned_pool()

    def enter(self) -> None:
        self._gpu.enter()

    def on_stream(self) -> AbstractContextManager[object]:
        stream: AbstractContextManager[object] = torch.cuda.stream(self._gpu.stream)
        return stream

    def frames(
        self, batch: FrameBatch, memory: Memory, *, wait: bool = True, blocks: BlockPool | None = None
    ) -> FrameBatch:
        if batch.memory == memory:
            return batch if wait or memory == "host" else replace(batch, ready=self._gpu.record_event())
        return self._upload(batch) if memory == "cuda" else self._download(batch, wait, blocks)

    def rows(self, array: Array, memory: Memory, count: int, *, wait: bool = True) -> Array:
        """Returns the first `count` rows of an array in that memory; of an array on the GPU all rows."""
        if isinstance(array, torch.Tensor):
            return array if memory == "cuda" else self._gpu.download(array, rows=count, wait=wait)[0]
        return array[:count] if memory == "host" else self._upload_rows(array)

    def on_host(self, array: Array, *more: Array | None) -> tuple[HostArray, list[HostArray | None]]:
        there = [one for one in (array, *more) if isinstance(one, torch.Tensor)]
        copies = iter(self._gpu.download(*there) if there else ())  # without a wait for nothing
        first = next(copies) if isinstance(array, torch.Tensor) else array
        return first, [next(copies) if isinstance(one, torch.Tensor) else one for one in more]

    def _upload_rows(self, array: NDArray[np.generic]) -> torch.Tensor:
        (pinned,) = self._pinned.arrays([array.shape], array.dtype)
        pinned[...] = array
        there = self._gpu.empty(array.shape, torch.from_numpy(array[:0]).dtype)
        self._gpu.copy_bytes(there.data_ptr(), pinned.ctypes.data, pinned.nbytes)
        return there

    def _upload(self, batch: FrameBatch) -> FrameBatch:
        """Returns the batch in device memory; the copies are queued."""
        planes = self._pool.take()
        assert len(batch) <= len(planes[0]), "the batch has more frames than the planes"
        for row, frame in enumerate(batch.frames):
            arrays = self._frame_arrays(planes)
            for plane, pinned, source in zip(planes, arrays, frame.planes, strict=True):
                pinned[...] = source
                self._gpu.copy_bytes(plane.data_ptr() + row * pinned.nbytes, pinned.ctypes.data, pinned.nbytes)
        return replace(batch, frames=tuple(replace(f, planes=ON_GPU) for f in batch.frames), planes=planes, shared=None)

    def _frame_arrays(self, planes: Sequence[torch.Tensor]) -> list[NDArray[np.generic]]:
        """Returns page-locked arrays for one frame of a batch.

        Blocks of one frame are what batches of all lengths, and all runs, can share.
        """
        return self._pinned.arrays([tuple(plane.shape[1:]) for plane in planes], self._layout.dtype)

    def _shared(self, shapes: Sequence[tuple[int, ...]], blocks: BlockPool) -> SharedPlanes:
        """Returns page-locked planes in a block of `blocks`; a block is locked at its first use."""
        shared = blocks.planes(shapes, self._layout.dtype)
        blocks.lock_once(shared.block, self._lock_pages)
        return shared

    def _lock_pages(self, address: int, size: int) -> Callable[[], None]:
        """Page-locks `size` bytes from `address` on. Returns the function that unlocks them."""
        cuda = torch.cuda.cudart()
        with capture_unsafe():
            status = cuda.cudaHostRegister(address, size, _PORTABLE)
        if int(status) != 0:
            raise RuntimeError(f"CUDA error {int(status)}: {size} bytes of the host's memory can't be page-locked")

        gpu = self._gpu  # not `self`: the pool outlives this run, and would keep the run's planes in GPU memory

        def unlock() -> None:
            with torch.cuda.device(gpu.device), suppress(RuntimeError):  # a GPU that has failed
                gpu.stream.synchronize()  # the GPU may still copy to this memory
                cuda.cudaHostUnregister(address)

        return unlock

    def _downloaded(self, planes: Sequence[torch.Tensor], row: int) -> list[NDArray[np.generic]]:
        """Returns the planes of one frame of a batch on the host; the copies are queued."""
        arrays = self._frame_arrays(planes)
        for plane, pinned in zip(planes, arrays, strict=True):
            self._gpu.copy_bytes(pinned.ctypes.data, plane.data_ptr() + row * pinned.nbytes, pinned.nbytes)
        return arrays

    def _download(self, batch: FrameBatch, wait: bool, blocks: BlockPool | None) -> FrameBatch:
        """Returns the batch on the host, see `frames`; without `wait` the copies are queued."""
        count, planes = len(batch), batch.planes
        assert all(plane.is_contiguous() for plane in planes)
        shared = None if blocks is None else self._shared([tuple(plane.shape) for plane in planes], blocks)
        arrays: list[Sequence[NDArray[np.generic]]]  # of each frame its planes: three, of a cut-out four
        if shared is None:
            arrays = [self._downloaded(planes, row) for row in range(count)]
        else:
            for plane, array in zip(planes, shared.arrays, strict=True):
                self._gpu.copy_bytes(array.ctypes.data, plane.data_ptr(), array[:count].nbytes)
            arrays = [[array[row] for array in shared.arrays] for row in range(count)]
        ready = self._gpu.record_event()
        if wait:
            ready.synchronize()
        frames = tuple(map(_with_planes, batch.frames, arrays))
        return replace(batch, frames=frames, planes=(), ready=None if wait else ready, shared=shared)


def _with_planes(frame: Frame, planes: Sequence[NDArray[np.generic]]) -> Frame:
    return replace(frame, planes=tuple(planes))  # type: ignore[arg-type]  # three, of a cut-out four
