"""Frames of several runs in one batch of a network on a GPU, which the host's memory stands for where there is none."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from mask_sides import SIDES, gpu_of  # noqa: E402

from segmentation.frames import Memory  # noqa: E402
from segmentation.models.model import load_model  # noqa: E402
from segmentation.options.config import Config  # noqa: E402
from segmentation.stages.inference import Inference, InferenceResult  # noqa: E402
from segmentation.stages.inference.batched_network import BatchedNetwork  # noqa: E402

SIZE = 8
TIMEOUT = 240.0  # seconds: far more than anything here takes


class Means(Inference):
    """The mean of each picture's channels. Like a CUDA graph, it always works on a whole batch, in the same memory.

    In place of a picture's instances there is its mean.
    """

    memory: ClassVar[Memory] = "cuda"
    workers = 1

    def __init__(self, gpu: Any) -> None:
        self.calls = 0
        self._gpu = gpu
        self._masks = torch.empty((SIZE, 4, 6), device=gpu.device)

    @staticmethod
    def describe(config: Config, info: Any = None) -> str:
        return "means"

    def __call__(self, tensor: Any) -> InferenceResult:
        assert tensor.shape == (SIZE, 3, 4, 6)
        self.calls += 1
        with torch.cuda.stream(self._gpu.stream):
            self._masks.copy_(tensor.mean(1))
            means = self._masks.mean((1, 2)).tolist()
            return InferenceResult(self._masks, (tensor[:, 0] > 0.5).byte(), means)


class Several:
    """A network that several threads call, each with pictures of its own."""

    def __init__(self, side: str) -> None:
        self.gpu = gpu_of(side)
        self.turn = threading.RLock()
        self.infer = Means(self.gpu)
        self.network = BatchedNetwork(self.infer, SIZE, self.turn, self.gpu)
        self._pool = ThreadPoolExecutor(SIZE)

    def ask(self, value: float, count: int, rows: int = SIZE, **options: Any) -> InferenceResult:
        """Returns the masks of `count` pictures of this value, which are `rows` of the network's input."""
        self.gpu.enter()
        with torch.cuda.stream(self.gpu.stream):
            tensor = torch.full((rows, 3, 4, 6), value, device=self.gpu.device)
            tensor[count:] = float("nan")  # rows that hold no frame
        call: Callable[..., InferenceResult] = options.get("call", lambda infer, rows: infer(rows))
        result = self.network(tensor, count, call)
        with torch.cuda.stream(self.gpu.stream):
            tensor.fill_(-1)  # the next batch of this run
        return result

    def begin(self, value: float, count: int, **options: Any) -> "Future[InferenceResult]":
        """Asks on another thread, and returns once that waits for its turn, or is done."""
        waiting = len(self.network._gather._waiting)
        future = self._pool.submit(self.ask, value, count, **options)
        until(lambda: len(self.network._gather._waiting) > waiting or future.done())
        return future

    def check(self, result: InferenceResult, value: float, count: int) -> None:
        """Fails unless the first `count` masks are those of pictures of this value."""
        assert result.class_map is not None
        self.gpu.enter()
        with torch.cuda.stream(self.gpu.stream):
            masks, classes = (torch.as_tensor(array)[:count].cpu().numpy() for array in result[:2])
        assert masks.shape == classes.shape == (count, 4, 6)
        assert np.allclose(masks, value) and (classes == (value > 0.5)).all()
        assert result.instances == pytest.approx([value] * count)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Nobody else has the turn meanwhile."""
        with self.turn:
            yield


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("side", SIDES)
def test_results_stay_when_the_network_runs_again(side: str) -> None:
    several = Several(side)
    first = several.ask(0.25, SIZE)
    second = several.ask(0.75, 3)
    third = several.ask(0.5, 2, rows=2)  # a batch that is made for these frames alone
    for result, value, count in ((first, 0.25, SIZE), (second, 0.75, 3), (third, 0.5, 2)):
        several.check(result, value, count)


@pytest.mark.parametrize("side", SIDES)
def test_those_who_wait_share_a_batch(side: str) -> None:
    several = Several(side)
    with several.held_up():
        asked = [several.begin(0.1 * number, count) for number, count in enumerate((3, 1, 4))]
    for number, (future, count) in enumerate(zip(asked, (3, 1, 4), strict=True)):
        several.check(future.result(TIMEOUT), 0.1 * number, count)
    assert several.infer.calls == 1


@pytest.mark.parametrize("side", SIDES)
def test_what_does_not_fit_waits_for_the_next_batch(side: str) -> None:
    several = Several(side)
    with several.held_up():
        asked = [several.begin(0.1 * number, 5) for number in range(3)]
    for number, future in enumerate(asked):
        several.check(future.result(TIMEOUT), 0.1 * number, 5)
    assert several.infer.calls == 3


def test_a_failure_is_that_of_one() -> None:
    several, calls = Several("host"), []

    def fail_once(infer: Inference, tensor: Any) -> InferenceResult:
        calls.append(tensor)
        if len(calls) == 1:
            raise ValueError("of this run alone")
        return infer(tensor)

    values = (0.1, 0.2, 0.3)
    with several.held_up():
        asked = [several.begin(value, 2, call=fail_once) for value in values]
    failed = [future.exception(TIMEOUT) is not None for future in asked]
    assert sum(failed) == 1
    for future, value, fault in zip(asked, values, failed, strict=True):
        if not fault:
            several.check(future.result(), value, 2)
    assert not several.network._gather._waiting


class Busy:
    """An event of a GPU that has not come to it yet."""

    def __init__(self) -> None:
        self.passed = threading.Event()
        self.waiters = 0

    def synchronize(self) -> None:
        self.waiters += 1
        assert self.passed.wait(TIMEOUT)


def test_frames_gather_while_the_gpu_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    several, event = Several("host"), Busy()
    monkeypatch.setattr(several.gpu, "record_event", lambda: event)
    several.check(several.ask(0.1, 1), 0.1, 1)  # alone: waits for nothing
    asked = [several.begin(0.2, 1), several.begin(0.3, 1)]
    until(lambda: event.waiters == 2)
    assert several.infer.calls == 1
    monkeypatch.setattr(several.gpu, "record_event", lambda: SimpleNamespace(synchronize=lambda: None))
    several.check(several.ask(0.4, SIZE - 2), 0.4, SIZE - 2)  # fills the batch
    assert several.infer.calls == 2
    event.passed.set()
    for future, value in zip(asked, (0.2, 0.3), strict=True):
        several.check(future.result(TIMEOUT), value, 1)
    assert several.infer.calls == 2


def test_what_follows_a_full_batch_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    several, event = Several("host"), Busy()
    monkeypatch.setattr(several.gpu, "record_event", lambda: event)
    several.check(several.ask(0.1, SIZE), 0.1, SIZE)
    several.check(several.ask(0.2, SIZE - 2), 0.2, SIZE - 2)  # the end of a chunk
    assert several.infer.calls == 2 and not event.waiters


@pytest.mark.parametrize("side", SIDES)
def test_many_threads_get_their_own(side: str) -> None:
    several = Several(side)

    def run(seed: int) -> None:
        dice = np.random.default_rng(seed)
        for _ in range(50):
            value, count = float(dice.random()), int(dice.integers(1, SIZE + 1))
            several.check(several.ask(value, count), value, count)

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(run, seed) for seed in range(6)]:
            done.result(TIMEOUT)
    assert several.infer.calls <= 6 * 50 and not several.network._gather._waiting


@pytest.mark.gpu
def test_the_result_does_not_depend_on_the_company() -> None:
    from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

    gpu = gpu_of("gpu")
    model, count = load_model(Config()), 16
    network = BatchedNetwork(TorchFp16Inference(model, Config(batch_size=count), gpu), count, threading.RLock(), gpu)
    dice = torch.Generator().manual_seed(1)
    pictures = torch.rand((count, 3, model.height, model.width), generator=dice)

    def found(rows: Any) -> Any:
        with torch.cuda.stream(gpu.stream):
            masks = network(rows.to(gpu.device), len(rows), lambda infer, tensor: infer(tensor)).masks
            return torch.as_tensor(masks)[: len(rows)].cpu()

    together = found(pictures)
    for place in range(count):
        assert torch.equal(found(pictures[place : place + 1]), together[place : place + 1])
        turned = found(pictures.roll(place, 0))
        assert torch.equal(turned.roll(-place, 0), together)


@pytest.mark.gpu
def test_a_network_has_a_stream_of_its_own() -> None:
    """A capture would contain what runs queue on PyTorch's streams, which it gives out again and again."""
    from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

    gpu = gpu_of("gpu")
    preloaded = TorchFp16Inference.preload(load_model(Config()), Config(batch_size=2))
    others = {torch.cuda.Stream(gpu.device).cuda_stream for _ in range(64)}
    assert len(others) < 64 and preloaded.stream.cuda_stream not in others


@pytest.mark.parametrize("side", SIDES)
def test_its_memory_comes_back_at_once_and_not_when_python_looks_for_garbage(side: str) -> None:
    several = Several(side)
    assert several.ask(0.5, 3).masks[0, 0, 0] == 0.5
    network = weakref.ref(several.network)
    gc.disable()
    try:
        del several.network
        assert network() is None
    finally:
        gc.enable()
