"""Inference with PyTorch in FP16, channels last, replayed as a CUDA graph: for GPUs that no TensorRT here serves.

The network is the same FP16 graph that engines are built from, see `models/graph/fp16.py`: nodes that overflow stay in
FP32.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import torch
from torch.fx import GraphModule

from segmentation.errors import ModelError
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.discovery import device_index
from segmentation.models.graph.fp16_cache import fp16_graph
from segmentation.models.model import ENGINE, Model
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.compiler.conv_fusion import fuse
from segmentation.stages.inference.compiler.cuda_graph import GraphedNetwork, Loaded, Preloaded, preload
from segmentation.stages.inference.compiler.onnx_to_torch import cached_network, convert, likeliest, probabilities
from segmentation.stages.inference.compiler.pointwise import pointwise
from segmentation.stages.inference.compiler.translation import translate

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu  # imports libraries that loading a network does not need

_Result: TypeAlias = "tuple[torch.Tensor, torch.Tensor | None]"  # masks and, where asked for, the class map


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _wake_libraries(device: torch.device) -> None:
    """Runs a convolution and a product: cuDNN and cuBLAS load while another thread loads the network and runs it."""
    picture, weights = (torch.zeros((8, 8, side, side), dtype=torch.float16, device=device) for side in (8, 1))
    torch.nn.functional.conv2d(picture.to(memory_format=torch.channels_last), weights)
    pointwise(picture, weights, None)


class TorchFp16Inference(Inference):
    """See `segmentation.stages.inference`. The masks returned are written again by the next call."""

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: Preloaded[_Result] | None = None) -> None:
        self._gpu = gpu
        self._network = GraphedNetwork(preloaded or self.preload(model, config), gpu, model.name)

    @classmethod
    def preload(cls, model: Model, config: Config) -> Preloaded[_Result]:
        """Loads the network and runs it once."""
        if model.path.suffix == ENGINE:
            raise ModelError(f"{model.path}: PyTorch can't run an engine; give the ONNX, or use --infer tensorrt")
        device = torch.device("cuda", device_index(config))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_wake_libraries, device)
            return preload(lambda: _loaded(model, config, device), device)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        name = torch.cuda.get_device_name(torch.device(config.device or "cuda:0"))
        how = "compiled" if config.compile else "CUDA graph"
        return f"PyTorch {torch.__version__}, {name}, FP16, channels last, {how}"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        masks, class_map = self._network(tensor)
        with torch.cuda.stream(self._gpu.stream):
            return InferenceResult(masks, None if class_map is None else class_map.clone())

    def close(self) -> None:
        self._network.close()


def _loaded(model: Model, config: Config, device: torch.device) -> Loaded[_Result]:
    """Loads the network."""
    count = config.batch_size or 1
    dtype = torch.float16 if model.dtype is np.float16 else torch.float32
    path = fp16_graph(model, count)  # the name is another for another content
    example = torch.zeros((count, 3, model.height, model.width), dtype=dtype, device=device)

    def converted() -> GraphModule:
        net = translate(path) or convert(path, device)
        return net.to(device).to(memory_format=torch.channels_last)

    net = cached_network(path.stem, (), example, converted)
    if config.compile:
        net = torch.compile(net, dynamic=False)
    else:
        fuse(net)
    wants_classes = wants_class_map(model, config)

    def run() -> _Result:
        scores = net(example)
        return probabilities(scores, model), likeliest(scores, model) if wants_classes else None

    return Loaded(example, net, run)
