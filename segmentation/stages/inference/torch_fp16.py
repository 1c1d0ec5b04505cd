"""Inference with PyTorch in FP16, channels last, replayed as a CUDA graph: for GPUs that no TensorRT here serves.

The network is the same FP16 graph that engines are built from, see `half.py`: what overflows FP16 stays in FP32.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch

from segmentation.config import Config
from segmentation.errors import ModelError, one_line
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.capture_lock import capturing
from segmentation.gpu.discovery import device_index
from segmentation.models.fp16_cache import fp16_graph
from segmentation.models.model import ENGINE, Model
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.conv_fusion import fuse
from segmentation.stages.inference.onnx_to_torch import convert, likeliest, probabilities

if TYPE_CHECKING:  # it imports much that a network can be loaded without
    from segmentation.gpu.context import Gpu

log = logging.getLogger(__name__)


class Preloaded(NamedTuple):
    """A network that has run before, on a stream of its own: libraries choose kernels and take memory then."""

    net: Any
    input: torch.Tensor  # (N, 3, H, W)
    stream: torch.cuda.Stream


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _wake_libraries(device: torch.device) -> None:
    """The first convolution has cuDNN loaded, which takes a third of a second, but not Python's lock."""
    picture, weights = (torch.zeros((8, 8, side, side), dtype=torch.float16, device=device) for side in (8, 1))
    torch.nn.functional.conv2d(picture.to(memory_format=torch.channels_last), weights)


class TorchFp16Inference(Inference):
    """See `segmentation.stages.inference`. The masks returned are written again by the next call."""

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: Preloaded | None = None) -> None:
        self._gpu = gpu
        self._model = model
        self._wants_class_map = wants_class_map(model, config)
        self._net, self._input, stream = preloaded or self.preload(model, config)
        with torch.cuda.stream(stream), torch.inference_mode():
            self._graph = self._captured(stream)

    @classmethod
    def preload(cls, model: Model, config: Config) -> Preloaded:
        """Makes the network and runs it, which takes most of a second, but not Python's lock."""
        if model.path.suffix == ENGINE:
            raise ModelError(f"{model.path}: PyTorch can't run an engine; give the ONNX, or use --infer tensorrt")
        device = torch.device("cuda", device_index(config))
        count = config.batch_size or 1
        dtype = torch.float16 if model.dtype is np.float16 else torch.float32
        # A stream apart: on the pipeline's own, decoders may be at work already, and theirs must not be captured.
        stream = torch.cuda.Stream(device)
        with ThreadPoolExecutor(1) as aside, torch.cuda.stream(stream), torch.inference_mode():
            aside.submit(_wake_libraries, device)  # while others are imported
            net: Any = convert(fp16_graph(model, count), device).to(memory_format=torch.channels_last)
            if config.compile:
                net = torch.compile(net, dynamic=False)
            else:
                fuse(net)
            given = torch.zeros((count, 3, model.height, model.width), dtype=dtype, device=device)
            net(given)
        return Preloaded(net, given, stream)

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
                self._found = self._run()
            else:
                self._graph.replay()
            masks, class_map = self._found
            return InferenceResult(masks, None if class_map is None else class_map.clone())  # type: ignore[union-attr]

    def _run(self) -> InferenceResult:
        scores = self._net(self._input)
        class_map = likeliest(scores, self._model) if self._wants_class_map else None
        return InferenceResult(probabilities(scores, self._model), class_map)

    def _captured(self, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph | None:
        """The network as a CUDA graph: one launch for a hundred kernels. `None` if it can't be captured."""
        self._found = self._run()  # libraries make their handles for each thread anew, which can't be captured
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # The mode leaves other threads' work alone: decoders allocate when they please.
            with capturing(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._found = self._run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as exc:
            log.warning("%s can't be captured as a CUDA graph (%s); it runs slower", self._model.name, one_line(exc))
            return None
        return graph
