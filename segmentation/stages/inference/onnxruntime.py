"""Inference with ONNX Runtime on the CPU, FP32."""

import os
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.frames import VideoInfo
from segmentation.models.model import Model, open_session
from segmentation.models.tensor_form import Runner
from segmentation.stages.inference import Found, likeliest, probabilities, tells_classes

_MOST_WORKERS = 16  # each holds frames and the network's activations in memory


class OnnxRuntimeInference:
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays."""

    memory = "host"

    def __init__(self, model: Model, config: Config) -> None:
        options = ort.SessionOptions()
        cores = len(os.sched_getaffinity(0))
        if model.form.recurrent:  # a frame needs what the one before has left
            self.workers = 1
            options.intra_op_num_threads = cores
        else:
            # A frame a thread, on all cores: threads that share one spend a fifth of their time waiting for each other.
            self.workers = min(cores, _MOST_WORKERS)
            options.intra_op_num_threads = 1
        session = open_session(model.path, options)
        self._run = Runner(session, model.input_name, model.output_name, model.form)
        self._batch = 1 if model.form.recurrent else model.batch
        self._model = model
        self._which = tells_classes(model, config)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"ONNX Runtime {ort.__version__}, CPU, FP32"

    def __call__(self, tensor: NDArray[Any]) -> NDArray[np.float32] | Found:
        scores = self._scores(tensor)
        masks = probabilities(scores, self._model)
        return Found(masks, likeliest(scores, self._model)) if self._which else masks

    def _scores(self, tensor: NDArray[Any]) -> NDArray[np.float32]:
        batch, count = self._batch, len(tensor)
        if batch is None:
            return self._run(tensor)
        # A fixed batch: whole ones, the last one filled up with zeros whose masks are thrown away.
        padding = -count % batch
        padded = np.concatenate([tensor, np.zeros((padding, *tensor.shape[1:]), tensor.dtype)]) if padding else tensor
        parts = [self._run(padded[i : i + batch]) for i in range(0, len(padded), batch)]
        return np.concatenate(parts)[:count]
