"""Networks that are loaded on a thread of their own, run once there, and replayed as a CUDA graph."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import torch

from segmentation.errors import one_line
from segmentation.frames import FORMATS
from segmentation.frames.orientation import UPRIGHT
from segmentation.gpu.capture_lock import capturing
from segmentation.gpu.cuda_calls import make_stream
from segmentation.gpu.discovery import arch_of, enter_context
from segmentation.gpu.kernels import Kernels, KernelSource, Program, begin_compiling, compiled, signatures

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu  # imports libraries that loading a network does not need

log = logging.getLogger(__name__)

T = TypeVar("T")  # what a network returns: tensors, which its next run overwrites

# Streams that no network uses at the moment. cuBLAS keeps 33 MB for each on which it has multiplied, as long as the
# process lives, and the kernels of a CUDA graph write there: so a stream serves one network at a time, and then others.
_idle_streams: defaultdict[torch.device, deque[torch.cuda.Stream]] = defaultdict(deque)

_LAYOUT = FORMATS["yuv420p"]  # all programs are compiled for frames of some layout


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A network in the memory of a GPU."""

    input: torch.Tensor  # (N, 3, H, W)
    net: torch.nn.Module
    run: Callable[[], T]  # runs the network on the input as it is by then


Load: TypeAlias = Callable[[], Loaded[T]]


@dataclass(frozen=True, slots=True)
class Preloaded(Generic[T]):
    """A network that has run once: in that run libraries choose kernels and take memory."""

    network: Loaded[T]
    stream: torch.cuda.Stream  # its own while it is loaded
    thread: ThreadPoolExecutor  # on which it ran: on another one, libraries would choose again


def preload(load: Load[T], device: torch.device) -> Preloaded[T]:
    """Calls `load` and runs the network once. Most of that time the GIL is released. Raises the errors of `load`."""
    thread = ThreadPoolExecutor(1, "network")
    try:
        loaded: Preloaded[T] = thread.submit(_loaded, load, device, thread).result()
    except BaseException:
        thread.shutdown()
        raise
    return loaded


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _loaded(load: Load[T], device: torch.device, thread: ThreadPoolExecutor) -> Preloaded[T]:
    try:
        stream = _idle_streams[device].pop()
    except IndexError:
        stream = own_stream(device)
    with torch.cuda.stream(stream):
        network = load()
        network.run()
    return Preloaded(network, stream, thread)


def own_stream(device: torch.device) -> torch.cuda.Stream:
    """Returns a stream that nothing else uses: a capture would contain the work of others.

    PyTorch has 32 streams, and gives the same ones out again.
    """
    enter_context(device.index)
    return torch.cuda.ExternalStream(make_stream(), device)


class GraphedNetwork(Generic[T]):
    """Runs a network on the stream of a `Gpu`: as a CUDA graph, or as it is where it can't be captured."""

    def __init__(self, preloaded: Preloaded[T], gpu: Gpu, name: str) -> None:
        self._gpu, self._network, self._stream = gpu, preloaded.network, preloaded.stream
        self._closed = False
        with preloaded.thread as thread:
            self._graph, self._result = thread.submit(_captured, self._network.run, self._stream, name).result()

    @property
    def input(self) -> torch.Tensor:
        """The tensor that `run` reads, (N, 3, H, W)."""
        return self._network.input

    @property
    def result(self) -> T:
        """The result of the last run."""
        result: T = self._result
        return result

    def __call__(self, tensor: torch.Tensor) -> T:
        """Returns the result for `tensor` (N, 3, H, W); N may be smaller than the network's. Queues work only."""
        self._gpu.copy(self._network.input, tensor)
        return self.run()

    def run(self) -> T:
        """Returns the result for `input` as it is when the GPU comes to it. Queues work only."""
        with torch.cuda.stream(self._gpu.stream):
            if self._graph is None:
                self._result = self._network.run()
            else:
                self._graph.replay()
        return self.result

    def close(self) -> None:
        """Frees the weights at once: the network's nodes refer to each other, so that Python would do it much later."""
        if self._closed:
            return
        self._closed, self._graph, net = True, None, self._network.net
        with suppress(RuntimeError):  # a GPU that has failed was reported where it failed, and its stream ends here
            self._stream.wait_stream(self._gpu.stream)  # the last batch may still be at work
            for tensor in (*net.parameters(), *net.buffers()):
                tensor.untyped_storage().resize_(0)
            _idle_streams[self._gpu.device].append(self._stream)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _captured(run: Callable[[], T], stream: torch.cuda.Stream, name: str) -> tuple[torch.cuda.CUDAGraph | None, T]:
    """Returns the network `name` as a CUDA graph, `None` if it can't be captured, and the result that it writes."""
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        result = run()  # takes the memory that later runs take, also those that can't be captured
        stream.synchronize()
        try:
            # In this mode other threads, such as the decoders', may allocate memory meanwhile.
            with capturing(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                result = run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as exc:
            log.warning("%s can't be captured as a CUDA graph (%s); it runs slower", name, one_line(exc))
            return None, result
    return graph, result


def kernels_on(device: torch.device, source: KernelSource) -> Kernels:
    """Returns a program's kernels, queued on the stream of `device` that is PyTorch's current one."""
    stream = torch.cuda.current_stream(device).cuda_stream
    program = compiled(arch_of(device.index), source, _LAYOUT, UPRIGHT)
    return Kernels(stream, program, signatures(source, _LAYOUT))


def begin_kernels_on(device: torch.device, sources: Sequence[KernelSource]) -> None:
    """Begins to compile programs side by side, for `kernels_on`."""
    begin_compiling([Program(arch_of(device.index), source, _LAYOUT, UPRIGHT) for source in sources])
