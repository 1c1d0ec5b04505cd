"""Runs networks of instances and labels, and reads the shapes of their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ModelError
from segmentation.models.detection import MASKS, OUTPUTS
from segmentation.models.tensor_form import Form, Session, check_count, to_input

# Where the outputs of each task have a score for each class: output, axis without the batch, entries besides.
_CLASSES = {
    "rf-detr": (1, 1, 0),
    "yolo-seg": (0, 0, 4),
    "yolo": (0, 0, 4),
    "yolov5": (0, 1, 5),
    "ssd": (0, 1, 0),
    "classifier": (0, 0, 0),
}
# Number of dimensions of each output without the batch.
_RANKS = {
    "rf-detr": (2, 2, 3),
    "rtmdet-ins": (2, 1, 3),
    "mask-rcnn": (2, 1, 1, 4),
    "yolo-seg": (2, 3),
    "yolo": (2,),
    "yolov5": (2,),
    "yunet": (2,) * 9,
    "ssd": (2, 2),
    "classifier": (1,),
}


class OutputReader:
    """Runs a session on pictures and returns the outputs of each picture, in batches of the size that is fixed."""

    def __init__(
        self, session: Session, input_name: str, outputs: Sequence[str], form: Form, batch: int | None
    ) -> None:
        self._session, self._input, self._form, self._batch = session, input_name, form, batch
        self._names = list(outputs)
        self._extras = {extra.name: extra.array for extra in form.extras}

    def __call__(self, pictures: NDArray[Any]) -> Iterator[list[NDArray[Any]]]:
        """Yields the outputs of each picture of (N, 3, H, W), without the batch dimension."""
        size = self._batch or len(pictures)
        for begin in range(0, len(pictures), size):
            part = pictures[begin : begin + size]
            if missing := size - len(part):
                part = np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)])
            given = to_input(part, self._form)
            outputs = self._session.run(
                self._names, {self._input: given[0] if self._form.single else given, **self._extras}
            )
            if self._form.single:
                yield [np.asarray(output) for output in outputs]
            else:
                for name, output in zip(self._names, outputs, strict=True):
                    check_count(name, np.shape(output), size)
                yield from ([np.asarray(output)[row] for output in outputs] for row in range(size - missing))


def class_count(outputs: list[NDArray[Any]], task: str, path: object) -> int | None:
    """Returns the number of classes of which the outputs of a picture have scores; `None` where they have labels.

    Raises `ModelError` if the outputs are not those of the task.
    """
    ranks = tuple(output.ndim for output in outputs)
    if ranks != _RANKS[task] and not (MASKS in OUTPUTS[task] and ranks == _RANKS[task][:-1]):
        raise ModelError(f"{path}: its outputs for a picture are {_shapes(outputs)}, which are not those of {task}")
    if any(0 in output.shape[1:] for output in outputs):  # of no proposals, the first side alone may be 0
        raise ModelError(f"{path}: its outputs for a picture are {_shapes(outputs)}; a side of 0 holds nothing")
    if task == "yunet":
        return 1
    if task not in _CLASSES:
        return None
    number, axis, besides = _CLASSES[task]
    if task == "yolo-seg":
        besides += outputs[1].shape[0]
    count: int = outputs[number].shape[axis] - besides
    if count < 1:
        raise ModelError(f"{path}: its outputs for a picture are {_shapes(outputs)}, which leave {task} no class")
    return count


def _shapes(outputs: list[NDArray[Any]]) -> str:
    return ", ".join(str(output.shape) for output in outputs)
