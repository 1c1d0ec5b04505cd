"""Inference with networks that find single things: ONNX Runtime on the CPU, FP32."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.errors import BackendError
from segmentation.frames import Memory, VideoInfo
from segmentation.frames.instances import EDGE, BoxMap, FrameInstances, Instance, LabelMap
from segmentation.models.detection import Place
from segmentation.models.detections import Detections, Floats, Size
from segmentation.models.detector import Detector
from segmentation.models.model import Model, open_session
from segmentation.models.tensor_form import Session
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.onnxruntime import frame_a_thread

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class InstanceInference(Inference):
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays.

    A mask is the union of the instances' masks, as large as the picture is in the network's input.
    """

    memory: ClassVar[Memory] = "host"

    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: Session | None = None) -> None:
        self.workers, options = frame_a_thread()
        self._detector = Detector(preloaded or open_session(model.path, options), model)
        self._model = model
        self._place = place_of(model)
        self._classes = kept_numbers(model)
        self._wants_class_map = wants_class_map(model, config)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if callable(config.model):
            raise BackendError("runs files")
        return f"ONNX Runtime {ort.__version__}, CPU, FP32, single things"

    def __call__(self, tensor: NDArray[Any]) -> InferenceResult:
        found = [one.within(self._place) for one in self._detector(tensor)]
        layers = [_layers(one, (self._place.height, self._place.width)) for one in found]
        instances = tuple(
            replace(frame_instances(one.boxes, one.scores, one.classes, self._model, labels), unknown=one.unknown)
            for one, (_, labels) in zip(found, layers, strict=True)
        )
        class_map = None
        if self._wants_class_map:
            maps = [self._class_map(one, labels) for one, (_, labels) in zip(found, layers, strict=True)]
            class_map = np.stack(maps)
        masks = np.stack([mask for mask, _ in layers])
        masks[[one.unknown for one in found]] = np.nan
        return InferenceResult(masks, class_map, instances)

    def _class_map(self, found: Detections, label_map: NDArray[np.uint8]) -> NDArray[np.uint8]:
        by_number: NDArray[np.uint8] = np.concatenate([[0], self._classes[found.classes]]).astype(np.uint8)
        class_map: NDArray[np.uint8] = by_number[label_map]
        return class_map


def place_of(model: Model) -> Place:
    """Returns the part of the network's input that shows the video."""
    return model.picture or Place(0, 0, model.width, model.height)


def kept_numbers(model: Model) -> NDArray[np.uint8]:
    """Returns the index into `model.keep` of each label, (labels,) uint8; 0 for one that is not kept."""
    numbers = np.zeros(len(model.labels), np.uint8)
    numbers[list(model.keep)] = np.arange(len(model.keep))
    return numbers


def frame_instances(
    boxes: Floats, scores: Floats, classes: NDArray[Any], model: Model, label_map: LabelMap
) -> FrameInstances:
    """Returns the instances of a frame, from boxes (n, 4) in pixels of the place, scores (n,) and classes (n,)."""
    height, width = label_map.shape
    instances = tuple(
        Instance(
            label=model.labels[int(number)],
            score=score,
            box=(left / width, top / height, right / width, bottom / height),
        )
        for (left, top, right, bottom), score, number in zip(
            boxes.tolist(), scores.tolist(), classes.tolist(), strict=True
        )
    )
    return FrameInstances(instances=instances, first_map=label_map)


def _layers(found: Detections, size: Size) -> tuple[Floats, NDArray[np.uint8]]:
    """Returns the union of the masks (h, w), and the number of the strongest from 1 on at each place, 0 for none.

    Of equals, the one with the highest score is on top. A thing without a mask has its box.
    """
    if found.masks is None:
        label_map = BoxMap(found.boxes, size)[: size[0], : size[1]]
        return (label_map > 0).astype(np.float32), label_map
    union, label_map = np.zeros(size, np.float32), np.zeros(size, np.uint8)
    for number in range(len(found.boxes), 0, -1):
        mask = np.asarray(found.masks[number - 1])
        label_map[(mask >= union) & (mask > EDGE)] = number
        np.maximum(union, mask, out=union)
    return union, label_map
