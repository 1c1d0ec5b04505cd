"""Between the host's memory and the GPU's, where one stage hands over to one that lives elsewhere.

Copies go through page-locked memory, from and to which the GPU copies by itself. That memory is PyTorch's: a block
comes back when nobody refers to it any more and the copies that it was part of are over, and is given out again.
For an encoder in a process of its own it is a block of a `BlockPool`, which comes back likewise, but does not wait for
copies: all of them are queued on one stream, so a later one into the same block comes later.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import ON_GPU, Array, FrameBatch, Memory, PixelFormat, Transfer, VideoInfo
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.plane_pool import PlanePool
from segmentation.shared_memory import BlockPool, SharedPlanes

_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for all devices


class GpuTransfer(Transfer):
    """See `frames.Transfer`."""

    def __init__(self, gpu: Gpu, info: VideoInfo, layout: PixelFormat, batch_size: int) -> None:
        self._gpu = gpu
        self._layout = layout
        self._dtype = torch_dtype(layout)
        self._shapes = [(batch_size, *shape) for shape in layout.shapes(info.width, info.height)]
        self._pool = PlanePool(gpu, self._shapes, self._dtype)

    def enter(self) -> None:
        """To be called first by each thread that moves something."""
        self._gpu.enter()

    def frames(
        self, batch: FrameBatch, memory: Memory, *, wait: bool = True, blocks: BlockPool | None = None
    ) -> FrameBatch:
        """The batch in that memory: as it is if it is there, else a copy; on the host in one of `blocks`, if given.

        Unless `wait`, the GPU may still be at work on it; `ready` says when it is there.
        """
        if batch.memory == memory:
            return batch if wait or memory == "host" else replace(batch, ready=self._gpu.record_event())
        return self._upload(batch) if memory == "cuda" else self._download(batch, wait, blocks)

    def rows(self, array: Array, memory: Memory, count: int) -> Array:
        """The first `count` rows of a NumPy array or CUDA tensor in that memory, likewise."""
        if isinstance(array, torch.Tensor) == (memory == "cuda"):
            return array if memory == "cuda" else array[:count]
        with torch.cuda.stream(self._gpu.stream):
            if memory == "cuda":
                pinned = torch.empty(array.shape, dtype=torch.from_numpy(array[:0]).dtype, pin_memory=True)
                pinned.numpy()[:] = array
                return pinned.to(self._gpu.device, non_blocking=True)
            host: NDArray[Any] = array[:count].cpu().numpy()  # type: ignore[union-attr]
            return host

    def _upload(self, batch: FrameBatch) -> FrameBatch:
        count = len(batch)
        planes = self._pool.take()
        for i, (pinned, plane) in enumerate(zip(self._pinned(self._shapes), planes, strict=True)):
            rows: NDArray[Any] = pinned.numpy()
            for row, frame in zip(rows, batch.frames, strict=False):
                row[:] = frame.planes[i]
            with torch.cuda.stream(self._gpu.stream):
                plane[:count].copy_(pinned[:count], non_blocking=True)
        return replace(batch, frames=tuple(replace(f, planes=ON_GPU) for f in batch.frames), planes=planes, shared=None)

    def _pinned(self, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
        """Page-locked planes for a batch, in one block: locking takes time, and blocks are rounded up."""
        sizes = [math.prod(shape) for shape in shapes]
        block = torch.empty(sum(sizes), dtype=self._dtype, pin_memory=True)
        return [part.view(shape) for part, shape in zip(block.split(sizes), shapes, strict=True)]

    def _lent(self, shapes: Sequence[tuple[int, ...]], blocks: BlockPool) -> SharedPlanes:
        """Page-locked planes for a batch, in a block; blocks are locked when they are given out for the first time."""
        shared = blocks.planes(shapes, self._layout.dtype)
        blocks.lock_once(shared.block, self._lock_pages)
        return shared

    def _lock_pages(self, address: int, size: int) -> Callable[[], None]:
        """Lets the GPU copy to this memory by itself. Returns what ends that."""
        cuda = torch.cuda.cudart()
        with capture_unsafe():
            status = cuda.cudaHostRegister(address, size, _PORTABLE)
        if int(status) != 0:
            raise RuntimeError(f"CUDA error {int(status)}: {size} bytes of the host's memory can't be page-locked")

        gpu = self._gpu  # not `self`: the pool outlives this run, whose planes would take GPU memory as long

        def unlock() -> None:
            with torch.cuda.device(gpu.device), suppress(RuntimeError):  # where the GPU has failed, nothing helps
                gpu.stream.synchronize()  # it may still be copying there
                cuda.cudaHostUnregister(address)

        return unlock

    def _download(self, batch: FrameBatch, wait: bool, blocks: BlockPool | None) -> FrameBatch:
        count = len(batch)
        planes: list[NDArray[np.generic]] = []
        shared = None
        with torch.cuda.stream(self._gpu.stream):
            shapes = [tuple(plane.shape) for plane in batch.planes]  # of a cut-out, alpha too
            if blocks is None:
                pinned_planes = self._pinned(shapes)
            else:
                shared = self._lent(shapes, blocks)
                pinned_planes = [torch.from_numpy(array) for array in shared.arrays]
            for plane, pinned in zip(batch.planes, pinned_planes, strict=True):
                pinned[:count].copy_(plane[:count], non_blocking=True)
                planes.append(pinned.numpy())
            ready = self._gpu.record_event()
        if wait:
            ready.synchronize()
        frames: Any = (replace(f, planes=tuple(plane[i] for plane in planes)) for i, f in enumerate(batch.frames))
        return replace(batch, frames=tuple(frames), planes=(), ready=None if wait else ready, shared=shared)
