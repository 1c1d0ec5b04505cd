"""Memory for frames that two processes share, allocated in blocks and reused when no array refers to them.

A pool is one anonymous file (memfd), far longer than any run needs: only pages that were written to take memory. The
other process maps the file once, and a block is an offset in it. A file for each block would mean a thousand mappings.
Linux only. (/dev/shm is too small: 64 MB in containers.)
"""

import ctypes
import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

_SPACE = 1 << 36  # bytes of addresses, not of memory: the users of the blocks bound how much memory they take
_ALIGNED = 64  # bytes: planes begin at multiples of it


@cache
def _process_library() -> ctypes.CDLL:
    """Returns what the process has loaded; not at import, since Windows has no such library."""
    return ctypes.CDLL(None, use_errno=True)


def advise(address: int, size: int, advice: int) -> None:
    """Calls madvise(2). Other threads run meanwhile: `mmap.madvise` keeps the GIL. Raises `OSError`."""
    if _process_library().madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(advice)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class PlaneLocation(NamedTuple):
    """A plane's place: bytes from the beginning of the file, and its shape (N, h, w)."""

    offset: int
    shape: tuple[int, ...]


class BlockPool:
    """Allocates blocks. A block is allocated again when the last reference to it, or to an array in it, is gone."""

    def __init__(self) -> None:
        """Reserves the addresses. Raises `OSError` where the process may not have that many."""
        self.size = _SPACE
        self.fd = os.memfd_create("segmentation frames")
        try:
            os.ftruncate(self.fd, self.size)
            self._map: mmap.mmap | None = mmap.mmap(self.fd, self.size)
        except OSError as exc:
            os.close(self.fd)
            reason = f"does not get them ({exc.strerror}), as under ulimit -v or -f"
            needed = f"a process beside this one needs {self.size >> 30} GiB of addresses (of memory far less)"
            raise OSError(exc.errno, f"{needed} and {reason}") from exc
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._lock = threading.Lock()  # never taken by `reclaim`: garbage collection runs it at any moment
        self._end = 0  # bytes: everything beyond was never allocated, or was trimmed
        self._closed = False
        self._taken = 0  # blocks since the beginning
        self._in_use: dict[int, int] = {}  # number of the block -> its end
        self._free: dict[int, deque[int]] = {}  # size -> offsets
        self._unlock: dict[int, Callable[[], None]] = {}  # by offset, ends what `lock_once` began

    def take(self, size: int) -> "Block":
        """Returns a block of at least `size` bytes, with undefined content. Raises `ValueError` after `close`."""
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        with self._lock:
            memory = self._map
            if memory is None:
                raise ValueError("nothing is given out any more")
            try:
                offset = self._free.setdefault(size, deque()).pop()
            except IndexError:
                if self._end + size > self.size:
                    raise MemoryError(f"more than {self.size} bytes of frames are held") from None
                offset, self._end = self._end, self._end + size
            self._taken += 1
            block = Block(self, memory, self._taken, offset, size, self._address + offset)
            self._in_use[block.number] = offset + size
        return block

    def planes(self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> "SharedPlanes":
        """Returns planes of these shapes in a block of their own."""
        return self.take(planes_size(shapes, dtype)).planes(shapes, dtype)

    def trim(self, keep: int) -> None:
        """Returns the memory of free blocks to the system, except within the first `keep` bytes of the file.

        Blocks in use keep their content. Memory that was faulted in but never allocated is returned likewise.
        """
        with self._lock:
            if self._map is None:
                return
            in_use = self._in_use.copy()  # before `_free` is read, see `reclaim`
            end = max(in_use.values(), default=0)
            for size, free in list(self._free.items()):
                offsets = [free.pop() for _ in range(len(free))]
                kept = [offset for offset in offsets if offset + size <= keep]
                end = max([end, *(offset + size for offset in kept)])
                free.extend(kept)
                for offset in set(offsets) - set(kept):
                    self._end_lock(offset)
                    advise(self._address + offset, size, mmap.MADV_REMOVE)
                if not kept and not in_use:
                    del self._free[size]
            self._end = end
            tail = -(-max(end, keep) // mmap.PAGESIZE) * mmap.PAGESIZE
            advise(self._address + tail, self.size - tail, mmap.MADV_REMOVE)

    def close(self) -> None:
        """Ends the pool. Arrays that are still referenced stay valid; all other memory is freed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._map = None
                os.close(self.fd)
        self._unlock_free()

    @property
    def used(self) -> int:
        """Bytes that are allocated or free for reuse: with blocks of one size, the most ever in use at a time."""
        return self._end

    def lock_once(self, block: "Block", lock: Callable[[int, int], Callable[[], None]]) -> None:
        """Calls `lock(address, size)` at a block's first use, and the function it returned when the memory is freed."""
        if block.offset not in self._unlock:
            self._unlock[block.offset] = lock(block.address, block.size)

    def reclaim(self, block: "Block") -> None:
        """Frees a block. For `Block` alone.

        The block is in `_free` before it leaves `_in_use`. So `trim`, in another thread, finds it in one of the two.
        """
        self._free[block.size].append(block.offset)
        del self._in_use[block.number]  # by number: its memory may be in use again by now
        if self._closed:
            self._unlock_free()

    def _unlock_free(self) -> None:
        for free in list(self._free.values()):
            while free:
                self._end_lock(free.pop())

    def _end_lock(self, offset: int) -> None:
        unlock = self._unlock.pop(offset, None)
        if unlock is not None:
            unlock()


class Block:
    """A part of a pool's memory. NumPy arrays in it refer to it, and it is reclaimed after the last of them."""

    def __init__(self, pool: BlockPool, memory: mmap.mmap, number: int, offset: int, size: int, address: int) -> None:
        self.pool, self.number, self.offset, self.size, self.address = pool, number, offset, size, address
        self._memory = memory  # unmapped with the last block

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": (self.address, False)}

    def planes(self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, begin: int = 0) -> "SharedPlanes":
        """Returns planes of these shapes in the block, one after the other, from byte `begin` on."""
        placed = list(arrays_in(np.asarray(self), shapes, dtype, begin))
        locations = [PlaneLocation(self.offset + place, array.shape) for place, array in placed]
        return SharedPlanes(self, tuple(locations), tuple(array for _, array in placed))

    def __del__(self) -> None:
        self.pool.reclaim(self)


@dataclass(frozen=True, slots=True)
class SharedPlanes:
    """The planes of a batch of frames in a block: arrays (N, h, w) uint8 or uint16, and their places in the file."""

    block: Block
    locations: tuple[PlaneLocation, ...]
    arrays: tuple[NDArray[np.generic], ...]


def arrays_in(
    memory: NDArray[np.uint8], shapes: Sequence[tuple[int, ...]], dtype: DTypeLike, begin: int = 0
) -> Iterator[tuple[int, NDArray[np.generic]]]:
    """Yields an array of each shape in `memory`, one after the other from byte `begin` on, and its place in bytes."""
    for shape, size in zip(shapes, _sizes(shapes, dtype), strict=True):
        assert begin + size <= len(memory)
        yield begin, memory[begin : begin + size].view(dtype)[: math.prod(shape)].reshape(shape)
        begin += size


def planes_size(shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> int:
    """Returns the bytes that planes of these shapes take in a block."""
    return sum(_sizes(shapes, dtype))


def _sizes(shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> list[int]:
    return [-(-math.prod(shape) * np.dtype(dtype).itemsize // _ALIGNED) * _ALIGNED for shape in shapes]
