"""Inference with ONNX Runtime on the CPU, FP32."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.frames import Memory, VideoInfo
from segmentation.models.model import Model, open_session
from segmentation.models.scores import likeliest, probabilities
from segmentation.models.tensor_form import Runner, Session
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.system.cores import core_count

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

_MOST_WORKERS = 16  # each holds frames and the network's activations in memory


def frame_a_thread() -> tuple[int, ort.SessionOptions]:
    """Returns the number of threads that may call a network at once, and options for a session that they share.

    Each thread works on a frame of its own, on all cores: threads that share a frame often wait for each other.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return min(core_count(), _MOST_WORKERS), options


class OnnxRuntimeInference(Inference):
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays."""

    memory: ClassVar[Memory] = "host"

    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: Session | None = None) -> None:
        self.workers, options = frame_a_thread()
        if model.form.recurrent:  # a frame needs the states that the frame before has left
            self.workers, options.intra_op_num_threads = 1, core_count()
        session = preloaded or open_session(model.path, options)
        self._run = Runner(session, model.input_name, model.output_name, model.form)
        self._batch = 1 if model.form.recurrent else model.batch
        self._model = model
        self._wants_class_map = wants_class_map(model, config)

    def for_run(self) -> Inference:
        if not self._model.form.recurrent:
            return self
        fresh = copy(self)
        fresh._run = self._run.fresh()
        return fresh

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"ONNX Runtime {ort.__version__}, CPU, FP32"

    def __call__(self, tensor: NDArray[Any]) -> InferenceResult:
        scores = self._scores(tensor)
        masks = probabilities(scores, self._model)
        return InferenceResult(masks, likeliest(scores, self._model) if self._wants_class_map else None)

    def _scores(self, tensor: NDArray[Any]) -> NDArray[np.float32]:
        """Returns the scores (N, C, h, w) of pictures (N, 3, H, W)."""
        batch, count = self._batch, len(tensor)
        if batch is None:
            return self._run(tensor)
        # A network with a fixed batch gets whole batches. Zeros fill up the last one, and their scores are dropped.
        padding = -count % batch
        padded = np.concatenate([tensor, np.zeros((padding, *tensor.shape[1:]), tensor.dtype)]) if padding else tensor
        parts = [self._run(padded[i : i + batch]) for i in range(0, len(padded), batch)]
        return np.concatenate(parts)[:count]
