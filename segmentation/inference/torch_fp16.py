"""Inference with PyTorch in FP16, channels last, replayed as a CUDA graph: for GPUs that no TensorRT here serves.

The network is the same FP16 graph that engines are built from, see `half.py`: what overflows FP16 stays in FP32.
"""

import logging

import numpy as np
import torch

from segmentation.config import Config
from segmentation.errors import ModelError
from segmentation.frames import VideoInfo
from segmentation.gpu import Gpu, quiet
from segmentation.half_cache import half_graph
from segmentation.inference import Found, tells_classes
from segmentation.inference.onnx_to_torch import convert, likeliest, probabilities
from segmentation.model import ENGINE, Model, short

log = logging.getLogger(__name__)


class TorchFp16Inference:
    """See `segmentation.inference`. The masks returned are written again by the next call."""

    memory = "cuda"
    workers = 1  # one stream

    def __init__(self, model: Model, config: Config, gpu: Gpu) -> None:
        if model.path.suffix == ENGINE:
            raise ModelError(f"{model.path}: PyTorch can't run an engine; give the ONNX, or use --infer tensorrt")
        self._gpu = gpu
        self._model = model
        self._which = tells_classes(model, config)
        count = config.batch_size or 1
        dtype = torch.float16 if model.dtype is np.float16 else torch.float32
        # A stream apart: on the pipeline's own, decoders are at work already, and theirs must not be captured.
        self._aside = torch.cuda.Stream(gpu.device)
        with torch.cuda.stream(self._aside), torch.inference_mode():
            self._net = convert(half_graph(model, count), gpu.device).to(memory_format=torch.channels_last)
            if config.compile:
                self._net = torch.compile(self._net, dynamic=False)
            self._input = torch.zeros((count, 3, model.height, model.width), dtype=dtype, device=gpu.device)
            self._graph = self._captured()

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        name = torch.cuda.get_device_name(torch.device(config.device or "cuda:0"))
        how = "compiled" if config.compile else "CUDA graph"
        return f"PyTorch {torch.__version__}, {name}, FP16, channels last, {how}"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> torch.Tensor | Found:
        with torch.cuda.stream(self._gpu.stream):
            self._gpu.copy(self._input, tensor)
            if self._graph is None:
                self._found = self._run()
            else:
                self._graph.replay()
            found = self._found
            return Found(found.masks, found.which.clone()) if isinstance(found, Found) else found

    def _run(self) -> torch.Tensor | Found:
        scores = self._net(self._input)
        masks: torch.Tensor = probabilities(scores, self._model)
        return Found(masks, likeliest(scores, self._model)) if self._which else masks

    def _captured(self) -> torch.cuda.CUDAGraph | None:
        """The network as a CUDA graph: one launch for a hundred kernels. `None` if it can't be captured."""
        for _ in range(2):  # libraries choose kernels and take memory at the first runs, which can't be captured
            self._found = self._run()
        self._aside.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            # The mode leaves other threads' work alone: decoders allocate when they please.
            with quiet.kept(), torch.cuda.graph(graph, stream=self._aside, capture_error_mode="thread_local"):
                self._found = self._run()
        except RuntimeError as exc:
            log.warning("%s can't be captured as a CUDA graph (%s); it runs slower", self._model.name, short(exc))
            return None
        return graph
