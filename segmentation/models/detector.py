"""Runs networks of instances on pictures."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from segmentation.models.detections import Detections, read
from segmentation.models.model import Model
from segmentation.models.output_reader import OutputReader
from segmentation.models.tensor_form import Session


class Detector:
    """Finds instances in pictures. Several threads may call it at once."""

    def __init__(self, session: Session, model: Model) -> None:
        assert model.detection is not None
        self._detection, self._keep, self._size = model.detection, model.keep, (model.height, model.width)
        self._outputs = OutputReader(session, model.input_name, model.detection.outputs, model.form, model.batch)

    def __call__(self, pictures: NDArray[Any]) -> list[Detections]:
        """Returns what is found in each of the pictures (N, 3, H, W)."""
        return [read(outputs, self._detection, self._size, self._keep) for outputs in self._outputs(pictures)]
