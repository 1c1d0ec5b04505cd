"""Meaning of the outputs of a network that finds single things: its layout, and the numbers that go with the layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from segmentation.errors import ModelError
from segmentation.models.tensor_form import FLOATS, INTEGERS
from segmentation.options.model_types import Tensor

# By task: the names of the outputs that are read, where they are settled; otherwise the outputs are read in order.
# `MASKS` may be missing, as in networks that find boxes alone.
MASKS = "masks"
OUTPUTS: dict[str, tuple[str, ...]] = {
    "rf-detr": ("dets", "labels", MASKS),
    "rtmdet-ins": ("dets", "labels", MASKS),
    "mask-rcnn": ("boxes", "labels", "scores", MASKS),
    "yunet": tuple(f"{kind}_{stride}" for kind in ("cls", "obj", "bbox") for stride in (8, 16, 32)),
    "ssd": ("scores", "boxes"),
    "yolo-seg": (),
    "yolo": (),
    "yolov5": (),
    "classifier": (),
}
# Further looks at a picture, whose boxes join those of the picture: the mirrored one, and one of half its size.
PASSES = ("mirrored", "half")
_NEEDED = {"yolo-seg": 2}  # outputs of the tasks without settled names; 1 for the others
_LETTERBOX_STRIDES = (8, 16, 32)  # of YOLO's grids


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """How boxes, labels, scores and masks lie in a network's outputs."""

    task: str  # a key of `OUTPUTS`
    outputs: tuple[str, ...]  # names, in the order in which `detections.py` reads them
    fit: str = "squash"  # "squash": the picture is stretched to the input; "letterbox": it keeps its shape, amid gray
    boxes: str = "xyxy-pixels"  # corners or center and size ("cxcywh"), in pixels of the input or in shares of it
    score_threshold: float = 0.5  # lower scores are no instances
    nms: float | None = (
        None  # IoU of two boxes of a class, above which the lower score goes; `None`: the network did it
    )
    passes: tuple[str, ...] = ()  # of `PASSES`, for networks of boxes


def without_masks(detection: Detection) -> Detection:
    """Returns the same without the output of masks, where the layout does without: boxes are found alike."""
    if MASKS not in OUTPUTS[detection.task]:
        return detection
    return replace(detection, outputs=tuple(name for name in detection.outputs if name != MASKS))


class Place(NamedTuple):
    """The part of a network's input that shows the picture, in pixels; the rest is gray."""

    left: int
    top: int
    width: int
    height: int

    @property
    def pixels(self) -> tuple[slice, slice]:
        """The rows and columns."""
        return slice(self.top, self.top + self.height), slice(self.left, self.left + self.width)


def place_in(size: tuple[int, int], width: float, height: float, fit: str) -> Place:
    """Returns where a picture of this shape lies in an input of `size` (height, width)."""
    if fit == "squash":
        return Place(0, 0, size[1], size[0])
    scale = min(size[0] / height, size[1] / width)
    shown = max(1, round(width * scale)), max(1, round(height * scale))
    return Place((size[1] - shown[0]) // 2, (size[0] - shown[1]) // 2, *shown)


def task_of(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str | None:
    """Returns the task that inputs and outputs show by names and shapes; `None` where they show none for certain."""
    shapes = {node.name: list(node.shape) for node in outputs}
    integers = {node.name for node in outputs if node.type in INTEGERS}
    if set(OUTPUTS["yunet"]) <= shapes.keys():
        return "yunet"
    if {"boxes", "labels", "scores"} <= shapes.keys() and "labels" in integers:
        return "mask-rcnn"
    if {"dets", "labels"} <= shapes.keys():
        return "rtmdet-ins" if "labels" in integers else "rf-detr"
    if shapes.keys() == {"scores", "boxes"} and [len(shape) for shape in shapes.values()] == [3, 3]:
        return "ssd"
    return _yolo(list(inputs[0].shape), list(shapes.values())) if len(inputs) == 1 else None


def _yolo(picture: list[int | str | None], shapes: list[list[int | str | None]]) -> str | None:
    """Returns the task of outputs that have a place for each cell of YOLO's grids."""
    if len(picture) != 4 or not shapes or len(shapes[0]) != 3:
        return None
    cells = _cells(picture[2], picture[3])
    _, first, second = shapes[0]
    if len(shapes) == 2 and len(shapes[1]) == 4 and shapes[1][1] == 32 and (cells is None or second == cells):
        return "yolo-seg"
    if len(shapes) != 1 or cells is None:
        return None
    if second == cells and isinstance(first, int) and first > 4:
        return "yolo"
    if first in (cells, 3 * cells) and isinstance(second, int) and second > 5:  # one box a cell, or three
        return "yolov5"
    return None


def _cells(height: int | str | None, width: int | str | None) -> int | None:
    if not isinstance(height, int) or not isinstance(width, int):
        return None
    return sum(-(-height // stride) * -(-width // stride) for stride in _LETTERBOX_STRIDES)


def named_outputs(task: str, outputs: Sequence[Tensor], path: object) -> tuple[str, ...]:
    """Returns the names of the outputs that `task` reads. Raises `ModelError` if the file lacks one."""
    names = [node.name for node in outputs if node.type in (*FLOATS, *INTEGERS)]
    wanted = tuple(name for name in OUTPUTS[task] if name != MASKS or name in names)
    missing = [name for name in wanted if name not in names]
    if missing or len(names) < _NEEDED.get(task, 1):
        what = f"an output {missing[0]}" if missing else f"{_NEEDED.get(task, 1)} outputs"
        raise ModelError(f"{path}: task {task} needs {what}, and its outputs are {', '.join(names)}")
    return wanted or tuple(names[: _NEEDED.get(task, 1)])
