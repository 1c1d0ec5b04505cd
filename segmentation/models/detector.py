"""Runs networks of instances on pictures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.models.detections import Detections, Floats, merged, read
from segmentation.models.model import Model, detection_of
from segmentation.models.output_reader import OutputReader
from segmentation.models.tensor_form import Session

Pictures: TypeAlias = NDArray[Any]  # (N, 3, H, W), in the network's type


class Detector:
    """Finds instances in pictures. Several threads may call it at once."""

    def __init__(self, session: Session, model: Model) -> None:
        self._detection, self._keep, self._size = detection_of(model), model.keep, (model.height, model.width)
        self._outputs = OutputReader(session, model.input_name, self._detection.outputs, model.form, model.batch)

    def __call__(self, pictures: Pictures) -> list[Detections]:
        """Returns what is found in each of the pictures (N, 3, H, W)."""
        looks = [self._found(pictures, self._size), *(self._further(name, pictures) for name in self._detection.passes)]
        if len(looks) == 1:
            return looks[0]
        return [merged(parts, self._detection.nms) for parts in zip(*looks, strict=True)]

    def _found(self, pictures: Pictures, size: tuple[int, int]) -> list[Detections]:
        return [read(outputs, self._detection, size, self._keep) for outputs in self._outputs(pictures)]

    def _further(self, name: str, pictures: Pictures) -> list[Detections]:
        """Returns what one of `PASSES` finds, in pixels of the pictures as they are."""
        height, width = self._size
        if name == "mirrored":
            found = self._found(np.ascontiguousarray(pictures[..., ::-1]), self._size)
            return [replace(one, boxes=_mirrored(one.boxes, width)) for one in found]
        count = len(pictures) * 3
        layers = pictures.reshape(count, height // 2, 2, width // 2, 2)
        corners = [layers[:, :, row, :, column] for row in (0, 1) for column in (0, 1)]  # six times `mean`'s speed
        half = (sum(corners[1:], corners[0]) / pictures.dtype.type(4)).reshape(-1, 3, height // 2, width // 2)
        return [replace(one, boxes=one.boxes * 2) for one in self._found(half, (height // 2, width // 2))]


def _mirrored(boxes: Floats, width: int) -> Floats:
    """Returns boxes (n, 4) of a mirrored picture where they are in the picture."""
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)
