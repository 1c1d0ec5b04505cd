"""Planes are reused, but not while a reference to them is left, nor before another stream has read them."""

import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import stages

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from segmentation.gpu.plane_pool import PlanePool  # noqa: E402

SHAPES = ((2, 4, 6), (2, 2, 3), (2, 2, 3))


class FakeGpu:
    """Allocates host memory, and records the calls and the threads that enter."""

    def __init__(self) -> None:
        self.made = 0
        self.threads: list[str] = []
        self.over = False
        self.awaited: list[Any] = []

    def empty_planes(self, shapes: Any, dtype: Any) -> tuple[Any, ...]:
        self.made += 1
        return tuple(torch.zeros(shape, dtype=dtype) for shape in shapes)

    @contextmanager
    def entered(self) -> Iterator[None]:
        self.threads.append(threading.current_thread().name)
        yield

    def record_event(self) -> Any:
        return SimpleNamespace(query=lambda: self.over)

    def wait_event(self, event: Any) -> None:
        self.awaited.append(event)


def test_planes_come_back_with_their_last_reference() -> None:
    gpu: Any = FakeGpu()
    pool = PlanePool(gpu, SHAPES, torch.uint8)
    first, second = pool.take(), pool.take()
    assert [tuple(p.shape) for p in first] == list(SHAPES) and gpu.made == 2
    address = first[0].data_ptr()
    holder = [first]
    del first
    assert pool.take()[0].data_ptr() != address and gpu.made == 3  # `holder` refers to the first
    holder.clear()
    again = {pool.take()[0].data_ptr() for _ in range(2)}  # each is dropped at once
    assert address in again and gpu.made == 3
    assert second[0].data_ptr() not in again
    assert not gpu.threads  # one stream keeps the order


def test_nobody_writes_where_another_stream_still_reads() -> None:
    writer, reader = FakeGpu(), FakeGpu()
    pool = PlanePool(writer, SHAPES, torch.uint8, reader)  # type: ignore[arg-type]
    holder = [pool.take()]
    address = holder[0][0].data_ptr()
    thread = threading.Thread(target=holder.clear, name="elsewhere")
    thread.start()
    thread.join()
    assert reader.threads == ["elsewhere"]
    other = pool.take()
    assert other[0].data_ptr() != address and writer.made == 2
    reader.over = True
    assert pool.take()[0].data_ptr() == address and writer.made == 2


@pytest.mark.parametrize(("over", "awaited"), [(False, 1), (True, 0)])
def test_memory_of_a_pool_that_ends_is_not_overwritten_before_it_is_read(over: bool, awaited: int) -> None:
    """The pool of the next file may get that memory at once, on the same stream."""
    writer, reader = FakeGpu(), FakeGpu()
    pool = PlanePool(writer, SHAPES, torch.uint8, reader)  # type: ignore[arg-type]
    holder = [pool.take()]
    del pool
    assert not writer.awaited
    reader.over = over
    holder.clear()
    assert len(writer.awaited) == awaited


def test_planes_of_a_gpu_that_has_failed_are_let_go_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints exceptions of `__del__`, which no caller can catch."""
    writer, reader = FakeGpu(), FakeGpu()

    def failing() -> Any:
        raise RuntimeError("CUDA_ERROR_LAUNCH_FAILED where an event is recorded")

    reader.record_event = failing  # type: ignore[method-assign]
    pool = PlanePool(writer, SHAPES, torch.uint8, reader)  # type: ignore[arg-type]
    holder = [pool.take()]
    unraised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    holder.clear()
    assert not unraised and not pool._free


@pytest.mark.gpu
def test_runs_share_the_planes_of_a_size_while_one_of_them_needs_such() -> None:
    gpu = stages.gpu()
    other = gpu.with_own_stream()
    pool = gpu.plane_pool(SHAPES, torch.uint8)
    assert gpu.plane_pool(list(SHAPES), torch.uint8) is pool
    assert gpu.plane_pool(SHAPES, torch.uint8, other) is not pool  # which another stream reads
    assert gpu.plane_pool(SHAPES[:1], torch.uint8) is not pool
    assert gpu.plane_pool(SHAPES, torch.uint16) is not pool
    assert other.plane_pool(SHAPES, torch.uint8) is not pool  # which another stream writes
    planes, gone = pool.take(), weakref.ref(pool)
    del pool
    assert gone() is not None  # where these planes go back to
    del planes
    assert gone() is None


@pytest.mark.gpu
def test_no_stream_overtakes_another_on_the_gpu() -> None:
    """The reader's copy is queued behind much work. The writer's next write comes after the copy all the same."""
    reader = stages.gpu()
    writer = reader.with_own_stream()
    pool = PlanePool(writer, ((1 << 22,),), torch.uint8, reader)
    busy = torch.rand((4096, 4096), device=reader.device)
    torch.cuda.synchronize()
    seen = []
    for value in range(1, 9):
        planes = pool.take()
        with torch.cuda.stream(writer.stream):
            planes[0].fill_(value)
        reader.wait_event(writer.record_event())
        with torch.cuda.stream(reader.stream):
            for _ in range(5):
                busy = busy @ busy / busy.norm()
            seen.append(planes[0].clone())
        del planes
    torch.cuda.synchronize()
    assert 1 < len(pool._free) <= 8
    assert [(int(x.min()), int(x.max())) for x in seen] == [(value, value) for value in range(1, 9)]


@pytest.mark.gpu
def test_events_and_copies_without_giving_up_the_lock() -> None:
    gpu = stages.gpu()
    source = torch.arange(1000, dtype=torch.float32, device=gpu.device)
    target = torch.zeros(2000, dtype=torch.float32, device=gpu.device)
    busy = torch.rand((8192, 8192), device=gpu.device)
    torch.cuda.synchronize()
    begin = gpu.record_event(timed=True)
    with torch.cuda.stream(gpu.stream):
        busy @ busy
    gpu.copy(target, source)
    end = gpu.record_event(timed=True)
    assert not end.query()
    end.synchronize()
    assert end.query() and begin.query() and begin.elapsed_time(end) > 1
    assert torch.equal(target[:1000], source) and not target[1000:].any()
    with pytest.raises(AssertionError):
        gpu.copy(source, target)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_HANDLE where events are compared"):
        gpu.record_event().elapsed_time(end)
