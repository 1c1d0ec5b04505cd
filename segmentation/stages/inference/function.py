"""Inference by a Python function, which gets and returns arrays on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from segmentation.errors import BackendError, ModelError
from segmentation.frames import Memory, VideoInfo
from segmentation.models.model import Model
from segmentation.models.scores import likeliest, probabilities
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

_FUNCTIONS_ALONE = "runs functions, given to Segmenter() or segment() as the model"


class FunctionInference(Inference):
    """See `segmentation.stages.inference`. The function gets a run's frames in order."""

    memory: ClassVar[Memory] = "host"
    workers = 1

    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: object = None) -> None:
        if model.function is None:
            raise BackendError(_FUNCTIONS_ALONE)
        self._model, self._function = model, model.function
        self._wants_class_map = wants_class_map(model, config)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if not callable(config.model):
            raise BackendError(_FUNCTIONS_ALONE)
        return f"{config.model_name}, called with arrays on the CPU"

    def __call__(self, tensor: NDArray[Any]) -> InferenceResult:
        model = self._model
        scores = self._function(tensor)
        if scores.shape[1] != len(model.labels):
            raise ModelError(f"{model.name}: returned {scores.shape[1]} channels, and {len(model.labels)} at first")
        masks = probabilities(scores, model)
        return InferenceResult(masks, likeliest(scores, model) if self._wants_class_map else None)
