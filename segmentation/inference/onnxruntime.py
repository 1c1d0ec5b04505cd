"""Inference with ONNX Runtime on the CPU, FP32."""

import os

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.frames import VideoInfo
from segmentation.inference import Found, likeliest, probabilities, tells_classes
from segmentation.model import Model, open_session

_MOST_WORKERS = 16  # each holds frames and the network's activations in memory


class OnnxRuntimeInference:
    """See `segmentation.inference`. Takes and returns NumPy arrays."""

    memory = "host"

    def __init__(self, model: Model, config: Config) -> None:
        options = ort.SessionOptions()
        # A frame a thread, on all cores: threads that share a frame spend a fifth of their time waiting for each other.
        self.workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
        options.intra_op_num_threads = 1
        self._session = open_session(model.path, options)
        self._model = model
        self._which = tells_classes(model, config)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"ONNX Runtime {ort.__version__}, CPU, FP32"

    def __call__(self, tensor: NDArray[np.generic]) -> NDArray[np.float32] | Found:
        scores = self._scores(tensor)
        masks = probabilities(scores, self._model)
        return Found(masks, likeliest(scores, self._model)) if self._which else masks

    def _scores(self, tensor: NDArray[np.generic]) -> NDArray[np.float32]:
        model = self._model
        count = len(tensor)
        if model.batch is None:
            return self._run(tensor)
        # A fixed batch: whole ones, the last one filled up with zeros whose masks are thrown away.
        padding = -count % model.batch
        padded = np.concatenate([tensor, np.zeros((padding, *tensor.shape[1:]), tensor.dtype)]) if padding else tensor
        parts = [self._run(padded[i : i + model.batch]) for i in range(0, len(padded), model.batch)]
        return np.concatenate(parts)[:count]

    def _run(self, tensor: NDArray[np.generic]) -> NDArray[np.float32]:
        scores = self._session.run([self._model.output_name], {self._model.input_name: tensor})[0]
        return np.asarray(scores, np.float32)
