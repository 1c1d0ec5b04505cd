"""Tests blocks of memory that two processes share: allocation, reuse, trimming, and the end."""

import gc
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from paths import SAMPLE
from program import TIMEOUT, start

from segmentation.system.shared_memory import BlockPool, planes_size

SHAPES = [(4, 64, 96), (4, 32, 48), (4, 32, 48)]


@pytest.fixture
def pool() -> Iterator[BlockPool]:
    pool = BlockPool()
    yield pool
    pool.close()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shapes", [SHAPES, [(1, 65, 97), (1, 33, 49), (1, 33, 49)]])
def test_planes_lie_at_their_locations(pool: BlockPool, shapes: list[tuple[int, ...]], dtype: type[np.uint8]) -> None:
    """Each plane has aligned memory of its own, and another mapping of the file shows its content."""
    shared = pool.planes(shapes, dtype)
    other = mmap.mmap(pool.fd, pool.size)
    for i, array in enumerate(shared.arrays):
        array[:] = np.arange(array.size, dtype=np.uint32).reshape(array.shape) * (i + 1) % 251
    for i, (array, (offset, shape)) in enumerate(zip(shared.arrays, shared.locations, strict=True)):
        assert array.shape == shape == shapes[i] and array.dtype == dtype and array.ctypes.data % 64 == 0
        seen = np.frombuffer(other, dtype, array.size, offset).reshape(shape)
        assert np.array_equal(seen, np.arange(array.size).reshape(shape) * (i + 1) % 251)
        assert shared.block.address <= array.ctypes.data < shared.block.address + shared.block.size


def test_several_planes_in_one_block(pool: BlockPool) -> None:
    size = planes_size(SHAPES, np.uint8)
    block = pool.take(2 * size)
    first, second = block.planes(SHAPES, np.uint8), block.planes(SHAPES, np.uint8, size)
    for array in first.arrays:
        array[:] = 1
    for array in second.arrays:
        array[:] = 2
    assert all((array == 1).all() for array in first.arrays)
    with pytest.raises(AssertionError):
        block.planes(SHAPES, np.uint8, size + 64)


def test_a_block_is_reclaimed_with_its_last_array(pool: BlockPool) -> None:
    shared = pool.planes(SHAPES, np.uint8)
    offset, row = shared.block.offset, shared.arrays[1][2, 5:, :7]
    row[:] = 7
    del shared
    others = [pool.planes(SHAPES, np.uint8) for _ in range(3)]
    assert offset not in {other.block.offset for other in others} and (row == 7).all()
    used = pool.used
    del row
    assert pool.planes(SHAPES, np.uint8).block.offset == offset and pool.used == used


def test_blocks_do_not_overlap_and_are_few(pool: BlockPool) -> None:
    """Several threads take blocks, another one trims, and garbage collection reclaims blocks at any moment."""
    errors: list[str] = []
    over = threading.Event()

    def trim() -> None:
        while not over.is_set():
            pool.trim(keep=100_000)

    def work(number: int) -> None:
        held = []
        for i in range(300):
            shared = pool.planes(SHAPES, np.uint8)
            shared.arrays[0][:] = number
            cycle = [shared]
            cycle.append(cycle)  # type: ignore[arg-type]
            held.append(shared)
            if len(held) > 5 and not (held.pop(0).arrays[0] == number).all():
                errors.append(f"{number} at {i}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    trimming = threading.Thread(target=trim)
    trimming.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    trimming.join()
    assert not errors
    gc.collect()
    pool.trim(keep=0)
    assert pool.used == 0
    held = [pool.planes(SHAPES, np.uint8) for _ in range(24)]
    used = pool.used
    del held
    held = [pool.planes(SHAPES, np.uint8) for _ in range(24)]
    assert pool.used == used and len({shared.block.offset for shared in held}) == 24


def test_locking_once_and_unlocking_in_the_end(pool: BlockPool) -> None:
    """Free blocks are unlocked when the pool is closed, the others when they are reclaimed."""
    locked: list[tuple[int, int]] = []

    def lock(address: int, size: int) -> Callable[[], None]:
        assert (address, size) not in locked
        locked.append((address, size))
        return lambda: locked.remove((address, size))

    for _ in range(3):
        shared = pool.planes(SHAPES, np.uint8)
        pool.lock_once(shared.block, lock)
        del shared
    kept, gone = (pool.planes(SHAPES, np.uint8) for _ in range(2))
    for shared in (kept, gone):
        pool.lock_once(shared.block, lock)
    assert len(locked) == 2
    del gone, shared
    pool.close()
    assert locked == [(kept.block.address, kept.block.size)]
    array = kept.arrays[0]
    del kept
    array[:] = 5  # it is still there
    assert len(locked) == 1
    del array
    assert not locked
    pool.close()


def test_trimming_frees_memory_behind_the_part_that_is_kept(pool: BlockPool) -> None:
    """Blocks in use keep their content, and free blocks within `keep` their pages."""

    def memory() -> int:
        return os.fstat(pool.fd).st_blocks * 512

    size = 1 << 20
    blocks = [pool.take(size) for _ in range(8)]
    for number, block in enumerate(blocks):
        np.asarray(block)[:] = number
    unlocked: list[int] = []
    for block in blocks:
        pool.lock_once(block, lambda address, size: lambda: unlocked.append(address))
    addresses = [block.address for block in blocks]
    used, block = blocks[5], blocks[5]
    blocks.clear()
    del block
    pool.trim(keep=2 * size)
    assert memory() == 3 * size and pool.used == 6 * size and (np.asarray(used) == 5).all()
    assert sorted(unlocked) == [address for number, address in enumerate(addresses) if number not in (0, 1, 5)]
    assert {pool.take(size).offset for _ in range(2)} <= {0, size}
    del used
    pool.trim(keep=2 * size)
    assert memory() == 2 * size == pool.used
    mmap.mmap(pool.fd, pool.size)[3 * size] = 1  # as if it was faulted in for the next file
    pool.trim(keep=2 * size)
    assert memory() == 2 * size
    pool.trim(keep=0)
    assert memory() == pool.used == 0 and len(unlocked) == 8 and pool.take(3 * size).offset == 0
    pool.close()
    pool.trim(keep=0)


def test_nothing_is_left(pool: BlockPool) -> None:
    before = len(os.listdir("/proc/self/fd"))
    another = BlockPool()
    shared = another.planes(SHAPES, np.uint8)
    another.close()
    with pytest.raises(ValueError, match="any more"):
        another.take(1)
    assert Path("/proc/self/maps").read_text().count("segmentation frames") == 2
    del shared
    assert Path("/proc/self/maps").read_text().count("segmentation frames") == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_is_taken_when_it_is_written_to() -> None:
    pool = BlockPool()
    block = pool.take(1 << 34)
    assert os.fstat(pool.fd).st_blocks == 0
    np.asarray(block)[: 1 << 20] = 1
    assert 1 << 20 <= os.fstat(pool.fd).st_blocks * 512 < 8 << 20  # pages may be of 2 MB
    pool.close()


def test_more_than_there_are_addresses_for(pool: BlockPool) -> None:
    with pytest.raises(MemoryError, match="are held"):
        pool.take(pool.size + 1)


def test_addresses_that_cannot_be_had_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmentation.system.shared_memory._SPACE", 1 << 62)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"GiB of addresses .* and does not get them"):
        BlockPool()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_FSIZE"])
def test_under_a_limit_segments_refuse_and_leave_nothing(tmp_path: Path, limit: str) -> None:
    before = f"import resource; resource.setrlimit(resource.{limit}, (16 << 30, 16 << 30))"
    with start(SAMPLE, "-o", tmp_path / "a.mp4", "--baseline", "--encode", "x264-segments", before=before) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1 and len(stderr.splitlines()) == 1, stderr
    assert "needs 64 GiB of addresses" in stderr and "--encode x264 does without" in stderr
    assert not list(tmp_path.iterdir())
