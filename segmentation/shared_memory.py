"""Frames in memory that another process sees too, given out in blocks and taken back when nobody refers to them.

It is one file without a name and without a place (memfd), as large as memory could ever be and taking only what was
written to. So the other process is told of it once, and a block is no more than a place in it; files and mappings of
their own, one for each block, would be a thousand. Linux only. (/dev/shm would not do: in containers it has 64 MB.)
"""

import ctypes
import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from segmentation.errors import OutputError

_SPACE = 1 << 36  # bytes of addresses, not of memory: who uses the blocks bounds how much of it they take
_ALIGNED = 64  # bytes: planes begin at multiples of it
PlaneLocation = tuple[int, tuple[int, ...]]  # a plane: bytes from the beginning of the file, shape (N, h, w)


class BlockPool:
    """Gives out blocks. A block is given out again when nobody refers to it any more, nor to arrays in it."""

    def __init__(self) -> None:
        """Raises `OutputError` where the process is not allowed so much."""
        self.size = _SPACE
        self.file = os.memfd_create("segmentation frames")
        try:
            os.ftruncate(self.file, self.size)
            self._map: mmap.mmap | None = mmap.mmap(self.file, self.size)
        except OSError as exc:
            os.close(self.file)
            raise OutputError(
                f"encoding in segments needs {self.size >> 30} GiB of addresses (of memory far less) and does not get "
                f"them ({exc.strerror}), as under ulimit -v or -f; --encode x264 does without"
            ) from exc
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._lock = threading.Lock()
        self._end = 0  # bytes that were ever given out
        self._closed = False
        # By size, the places of blocks that wait. Python may take a block back at any moment, also in the midst of
        # `take`: so nothing here waits for a lock by then.
        self._free: dict[int, deque[int]] = {}
        self._unlock: dict[int, Callable[[], None]] = {}  # by place

    def take(self, size: int) -> "Block":
        """A block of at least `size` bytes, whose content is whatever was there. Raises `ValueError` after `close`."""
        memory = self._map  # first: while a block has it, it stays
        if memory is None:
            raise ValueError("nothing is given out any more")
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            place = self._free.setdefault(size, deque()).pop()
        except IndexError:
            with self._lock:
                place, self._end = self._end, self._end + size
                if self._end > self.size:
                    raise MemoryError(f"more than {self.size} bytes of frames are held") from None
        return Block(self, memory, place, size, self._address + place)

    def planes(self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> "SharedPlanes":
        """Planes of these shapes in a block of their own."""
        return self.take(planes_size(shapes, dtype)).planes(shapes, dtype)

    def close(self) -> None:
        """Gives out nothing from now on. What is still referred to stays valid; the rest is given up."""
        if not self._closed:
            self._closed = True
            self._map = None
            os.close(self.file)
        self._give_up()

    @property
    def used(self) -> int:
        """Bytes that were ever given out: the most that were referred to at one time, if all are of one size."""
        return self._end

    def lock_once(self, block: "Block", lock: Callable[[int, int], Callable[[], None]]) -> None:
        """Calls `lock(address, size)` when this block is seen for the first time, and what that returned in the end."""
        if block.place not in self._unlock:
            self._unlock[block.place] = lock(block.address, block.size)

    def take_back(self, place: int, size: int) -> None:
        """For `Block` alone."""
        self._free[size].append(place)
        if self._closed:
            self._give_up()

    def _give_up(self) -> None:
        for free in list(self._free.values()):
            while free:
                unlock = self._unlock.pop(free.pop(), None)
                if unlock is not None:
                    unlock()


class Block:
    """A stretch of a pool's memory. NumPy arrays in it keep it, and it goes back with the last of them."""

    def __init__(self, pool: BlockPool, memory: mmap.mmap, place: int, size: int, address: int) -> None:
        self.pool, self.place, self.size, self.address = pool, place, size, address
        self._memory = memory  # unmapped with the last block

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}

    def planes(self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, begin: int = 0) -> "SharedPlanes":
        """Planes of these shapes in it, one after the other, from byte `begin` on."""
        whole: NDArray[np.uint8] = np.asarray(self)
        spots, arrays = [], []
        for shape, size in zip(shapes, _sizes(shapes, dtype), strict=True):
            assert begin + size <= self.size
            spots.append((self.place + begin, shape))
            arrays.append(whole[begin : begin + size].view(dtype)[: math.prod(shape)].reshape(shape))
            begin += size
        return SharedPlanes(self, tuple(spots), tuple(arrays))

    def __del__(self) -> None:
        self.pool.take_back(self.place, self.size)


@dataclass(frozen=True, slots=True)
class SharedPlanes:
    """The planes of a batch of frames in a block: (N, h, w) uint8 or uint16, and where the other process finds them."""

    block: Block
    spots: tuple[PlaneLocation, ...]
    arrays: tuple[NDArray[Any], ...]


def planes_size(shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> int:
    """Bytes that planes take in a block."""
    return sum(_sizes(shapes, dtype))


def _sizes(shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> list[int]:
    return [-(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNED) * _ALIGNED for shape in shapes]
