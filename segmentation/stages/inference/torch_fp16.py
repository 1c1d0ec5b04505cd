"""Inference with PyTorch in FP16, channels last, replayed as a CUDA graph: for GPUs that no TensorRT here serves.

The network is the same FP16 graph that engines are built from, see `models/fp16.py`: nodes that overflow stay in FP32.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.fx import GraphModule

from segmentation.errors import ModelError, one_line
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.capture_lock import capturing
from segmentation.gpu.discovery import device_index
from segmentation.models.fp16_cache import fp16_graph
from segmentation.models.model import ENGINE, Model
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.conv_fusion import fuse
from segmentation.stages.inference.onnx_to_torch import cached_network, convert, likeliest, probabilities
from segmentation.stages.inference.pointwise import pointwise

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu  # imports libraries that loading a network does not need

log = logging.getLogger(__name__)

# Streams that no network uses at the moment. cuBLAS keeps 33 MB for each on which it has multiplied, as long as the
# process lives, and the kernels of a CUDA graph write there: so a stream serves one network at a time, and then others.
_idle_streams: defaultdict[torch.device, deque[torch.cuda.Stream]] = defaultdict(deque)

_Result: TypeAlias = "tuple[torch.Tensor, torch.Tensor | None]"  # masks and, where asked for, the class map


class Preloaded(NamedTuple):
    """A network that has run once: in that run libraries choose kernels and take memory."""

    input: torch.Tensor  # (N, 3, H, W)
    net: torch.nn.Module
    run: Callable[[], _Result]
    stream: torch.cuda.Stream  # its own while it is loaded
    thread: ThreadPoolExecutor  # on which it ran: on another one, libraries would choose again


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _wake_libraries(device: torch.device) -> None:
    """Runs a convolution and a product, so that cuDNN and cuBLAS are loaded while another thread loads the network."""
    picture, weights = (torch.zeros((8, 8, side, side), dtype=torch.float16, device=device) for side in (8, 1))
    torch.nn.functional.conv2d(picture.to(memory_format=torch.channels_last), weights)
    pointwise(picture, weights, None)


class TorchFp16Inference(Inference):
    """See `segmentation.stages.inference`. The masks returned are written again by the next call."""

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: Preloaded | None = None) -> None:
        self._gpu = gpu
        self._preloaded: Preloaded | None = preloaded or self.preload(model, config)
        self._input, _, self._run, stream, thread = self._preloaded
        with thread:
            self._graph, self._result = thread.submit(_captured, self._run, stream, model.name).result()

    @classmethod
    def preload(cls, model: Model, config: Config) -> Preloaded:
        """Loads the network and runs it once. Most of that time the GIL is released."""
        if model.path.suffix == ENGINE:
            raise ModelError(f"{model.path}: PyTorch can't run an engine; give the ONNX, or use --infer tensorrt")
        thread = ThreadPoolExecutor(1, "network")
        try:
            preloaded: Preloaded = thread.submit(_loaded, model, config, thread).result()
        except BaseException:
            thread.shutdown()
            raise
        return preloaded

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        name = torch.cuda.get_device_name(torch.device(config.device or "cuda:0"))
        how = "compiled" if config.compile else "CUDA graph"
        return f"PyTorch {torch.__version__}, {name}, FP16, channels last, {how}"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        with torch.cuda.stream(self._gpu.stream):
            self._gpu.copy(self._input, tensor)
            if self._graph is None:
                self._result = self._run()
            else:
                self._graph.replay()
            masks, class_map = self._result
            return InferenceResult(masks, None if class_map is None else class_map.clone())

    def close(self) -> None:
        """Frees the weights at once: the network's nodes refer to each other, so that Python would do it much later."""
        preloaded, self._preloaded = self._preloaded, None
        if preloaded is None:
            return
        self._graph = None
        with suppress(RuntimeError):  # a GPU that has failed was reported where it failed, and its stream ends here
            preloaded.stream.wait_stream(self._gpu.stream)  # the last batch may still be at work
            for tensor in (*preloaded.net.parameters(), *preloaded.net.buffers()):
                tensor.untyped_storage().resize_(0)
            _idle_streams[preloaded.input.device].append(preloaded.stream)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _loaded(model: Model, config: Config, thread: ThreadPoolExecutor) -> Preloaded:
    """Loads the network on the calling thread, `thread`'s, and runs it."""
    device = torch.device("cuda", device_index(config))
    count = config.batch_size or 1
    dtype = torch.float16 if model.dtype is np.float16 else torch.float32
    # On the pipeline's own stream, decoders may be at work already, and the capture would contain their work.
    try:
        stream = _idle_streams[device].pop()
    except IndexError:
        stream = torch.cuda.Stream(device)
    with ThreadPoolExecutor(1) as pool, torch.cuda.stream(stream):
        pool.submit(_wake_libraries, device)
        path = fp16_graph(model, count)  # the name is another for another content
        example = torch.zeros((count, 3, model.height, model.width), dtype=dtype, device=device)

        def converted() -> GraphModule:
            return convert(path, device).to(memory_format=torch.channels_last)

        net = cached_network(path.stem, (), example, converted)
        if config.compile:
            net = torch.compile(net, dynamic=False)
        else:
            fuse(net)
        wants_classes = wants_class_map(model, config)

        def run() -> _Result:
            scores = net(example)
            return probabilities(scores, model), likeliest(scores, model) if wants_classes else None

        run()
    return Preloaded(example, net, run, stream, thread)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _captured(
    run: Callable[[], _Result], stream: torch.cuda.Stream, name: str
) -> tuple[torch.cuda.CUDAGraph | None, _Result]:
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
