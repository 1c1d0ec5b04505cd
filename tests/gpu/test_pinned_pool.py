"""Page-locked memory is given out again when no array refers to it and the GPU no longer uses it."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stages
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from segmentation.gpu.pinned_pool import PinnedPool  # noqa: E402

SHAPES = [(6, 10), (3, 5), (3, 5)]


class FakeGpu:
    """Allocates memory that is not page-locked, and says when its work is over."""

    def __init__(self) -> None:
        self.made = self.awaited = 0
        self.over = True

    def enter(self) -> None: ...

    entered = nullcontext

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.made += 1
        return torch.zeros(shape, dtype=dtype)

    def record_event(self) -> Any:
        return SimpleNamespace(query=lambda: self.over, synchronize=self._wait)

    def _wait(self) -> None:
        self.awaited += 1


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_arrays_have_the_shapes_and_share_no_byte() -> None:
    gpu: Any = FakeGpu()
    arrays = PinnedPool(gpu).arrays(SHAPES, np.uint16)
    assert [array.shape for array in arrays] == SHAPES and gpu.made == 1
    for number, array in enumerate(arrays):
        array[...] = number
    assert [set(array.ravel().tolist()) for array in arrays] == [{0}, {1}, {2}]


def test_memory_comes_back_with_the_last_array() -> None:
    gpu: Any = FakeGpu()
    pool = PinnedPool(gpu)
    held = pool.arrays(SHAPES, np.uint8)[1:]
    part = held[0][1:]
    place = address(held[0])
    held.clear()
    assert address(pool.arrays(SHAPES, np.uint8)[1]) != place and gpu.made == 2  # `part` refers to the first block
    del part
    again = [pool.arrays(SHAPES, np.uint8) for _ in range(2)]
    assert place in [address(arrays[1]) for arrays in again] and gpu.made == 2


def test_sizes_of_one_power_of_two_share_memory() -> None:
    gpu: Any = FakeGpu()
    pool = PinnedPool(gpu)
    pool.arrays([(300,)], np.uint8)
    pool.arrays([(500,)], np.uint8)
    assert gpu.made == 1
    pool.arrays([(513,)], np.uint8)
    assert gpu.made == 2


def test_nothing_is_given_out_that_the_gpu_still_uses() -> None:
    gpu: Any = FakeGpu()
    pool = PinnedPool(gpu)
    gpu.over = False
    pool.arrays(SHAPES, np.uint8)
    pool.arrays(SHAPES, np.uint8)
    assert gpu.made == 2
    gpu.over = True
    pool.arrays(SHAPES, np.uint8)
    assert gpu.made == 2
    del pool
    assert gpu.awaited == 2  # before PyTorch may give the memory to others


@pytest.mark.gpu
def test_threads_that_copy_back_and_forth_get_what_they_sent() -> None:
    from stages import gpu as shared_gpu

    gpu = shared_gpu()
    wrong: list[str] = []

    def work(seed: int) -> None:
        gpu.enter()
        generator = np.random.default_rng(seed)
        pool = gpu.pinned_pool()
        for _ in range(200):
            shape = (int(generator.integers(1, 400)), 640)
            sent = generator.integers(0, 256, shape, np.uint8)
            (pinned,) = pool.arrays([shape], np.uint8)
            pinned[...] = sent
            there = gpu.empty(shape, torch.uint8)
            gpu.copy_bytes(there.data_ptr(), pinned.ctypes.data, pinned.nbytes)
            del pinned  # while the copy may still be under way
            (back,) = gpu.download(there)
            if not np.array_equal(back, sent):
                wrong.append(f"{seed}: {shape}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.gpu
def test_tensors_with_gaps_are_downloaded_as_they_are() -> None:
    from stages import gpu as shared_gpu

    gpu = shared_gpu()
    values = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    with torch.cuda.stream(gpu.stream):
        there = values.to(gpu.device)
        columns = there[:, ::2]
    np.testing.assert_array_equal(gpu.download(columns)[0], values[:, ::2].numpy())
    np.testing.assert_array_equal(gpu.download(columns, there, rows=3)[1], values[:3].numpy())
    np.testing.assert_array_equal(gpu.download(columns, rows=3)[0], values[:3, ::2].numpy())


@pytest.mark.gpu
def test_a_thread_that_drops_arrays_gets_no_device_by_that() -> None:
    from segmentation.gpu.cuda_calls import current_context

    pool = PinnedPool(stages.gpu())
    holder = [pool.arrays(SHAPES, np.uint16)]
    seen = []

    def drop() -> None:
        holder.clear()
        seen.append(current_context())

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()
    assert seen == [0] and sum(map(len, pool._free.values())) == 1
