"""What networks that find single things have found, by their published formulas, written plainly and in float64.

Each function takes the outputs of one picture and returns `Thing`s in pixels of the network's input.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Outputs = dict[str, NDArray[Any]]
SIZE = 64  # of the input


class Thing(NamedTuple):
    """One instance."""

    number: int  # of its class
    score: float
    box: tuple[float, float, float, float]
    mask: NDArray[np.bool_] | None = None  # (SIZE, SIZE)


def sigmoid(value: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(value, np.float64)))


def bilinear(small: NDArray[Any], size: int = SIZE) -> NDArray[np.float64]:
    """As `interpolate(mode="bilinear", align_corners=False)` of PyTorch."""
    large = np.zeros((size, size))
    for y in range(size):
        for x in range(size):
            sy = min(max((y + 0.5) * small.shape[0] / size - 0.5, 0), small.shape[0] - 1)
            sx = min(max((x + 0.5) * small.shape[1] / size - 0.5, 0), small.shape[1] - 1)
            y0, x0 = int(sy), int(sx)
            y1, x1 = min(y0 + 1, small.shape[0] - 1), min(x0 + 1, small.shape[1] - 1)
            above = small[y0, x0] * (1 - sx + x0) + small[y0, x1] * (sx - x0)
            below = small[y1, x0] * (1 - sx + x0) + small[y1, x1] * (sx - x0)
            large[y, x] = above * (1 - sy + y0) + below * (sy - y0)
    return large


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    common = max(width, 0) * max(height, 0)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def nms(things: list[Thing], limit: float) -> list[Thing]:
    kept: list[Thing] = []
    for thing in sorted(things, key=lambda thing: -thing.score):
        if all(other.number != thing.number or overlap(other.box, thing.box) <= limit for other in kept):
            kept.append(thing)
    return kept


def centered(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def rf_detr(outputs: Outputs) -> list[Thing]:
    things = []
    for query, logits in enumerate(outputs["labels"]):
        for number, logit in enumerate(logits):
            if sigmoid(logit) > 0.5:
                box = centered(*(outputs["dets"][query].astype(float) * SIZE))
                things.append(Thing(number, sigmoid(logit), box, bilinear(outputs["masks"][query]) > 0))
    return things


def rtmdet_ins(outputs: Outputs) -> list[Thing]:
    return [
        Thing(int(number), float(row[4]), tuple(row[:4]), mask > 0.5)
        for row, number, mask in zip(outputs["dets"], outputs["labels"], outputs["masks"], strict=True)
        if row[4] > 0.3
    ]


def mask_rcnn(outputs: Outputs) -> list[Thing]:
    return [
        Thing(int(number), float(score), tuple(box), mask[0] > 0.5)
        for box, number, score, mask in zip(*(outputs[n] for n in ("boxes", "labels", "scores", "masks")), strict=True)
        if score > 0.5
    ]


def yolo_seg(outputs: Outputs) -> list[Thing]:
    found, prototypes = outputs["output0"].astype(float), outputs["output1"].astype(float)
    things = []
    for column in found.T:
        scores = column[4:-32]
        if scores.max() > 0.25:
            logits = sum(share * prototype for share, prototype in zip(column[-32:], prototypes, strict=True))
            things.append(Thing(int(scores.argmax()), scores.max(), centered(*column[:4]), logits))
    return [thing._replace(mask=inside(thing.box) & (bilinear(thing.mask) > 0)) for thing in nms(things, 0.7)]


def inside(box: tuple[float, ...]) -> NDArray[np.bool_]:
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    found: NDArray[np.bool_] = (x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3])
    return found


def yolo(outputs: Outputs) -> list[Thing]:
    columns = outputs["output0"].astype(float).T
    things = [Thing(int(c[4:].argmax()), c[4:].max(), centered(*c[:4])) for c in columns if c[4:].max() > 0.25]
    return nms(things, 0.7)


def yolov5(outputs: Outputs) -> list[Thing]:
    rows = outputs["output0"].astype(float)
    things = [Thing(int(r[5:].argmax()), r[4] * r[5:].max(), centered(*r[:4])) for r in rows]
    return nms([thing for thing in things if thing.score > 0.25], 0.45)


def yunet(outputs: Outputs) -> list[Thing]:
    things = []
    for stride in (8, 16, 32):
        for row in range(SIZE // stride):
            for column in range(SIZE // stride):
                cell = row * (SIZE // stride) + column
                cls, obj = outputs[f"cls_{stride}"][cell, 0], outputs[f"obj_{stride}"][cell, 0]
                score = (min(max(cls, 0), 1) * min(max(obj, 0), 1)) ** 0.5
                dx, dy, width, height = outputs[f"bbox_{stride}"][cell].astype(float)
                box = centered((column + dx) * stride, (row + dy) * stride, *np.exp([width, height]) * stride)
                if score > 0.6:
                    things.append(Thing(0, score, box))
    return nms(things, 0.45)


def ssd(outputs: Outputs) -> list[Thing]:
    things = []
    for scores, box in zip(outputs["scores"], outputs["boxes"].astype(float), strict=True):
        things += [Thing(n, float(score), tuple(box * SIZE)) for n, score in enumerate(scores) if n and score > 0.5]
    return nms(things, 0.45)


REFERENCES: dict[str, Callable[[Outputs], list[Thing]]] = {
    "rf-detr": rf_detr,
    "rtmdet-ins": rtmdet_ins,
    "mask-rcnn": mask_rcnn,
    "yolo-seg": yolo_seg,
    "yolo": yolo,
    "yolov5": yolov5,
    "yunet": yunet,
    "ssd": ssd,
}
