"""Reads single things from the outputs of a network: boxes, scores, classes, masks.

The formulas are those of the networks' published code, which each reader names. Outputs are those of one picture,
without a batch dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import MOST, box_pixels
from segmentation.models.detection import Detection, Place

Floats: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = NDArray[np.intp]
Size: TypeAlias = tuple[int, int]  # height, width of the network's input
Outputs: TypeAlias = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All things that a network proposes for a picture."""

    boxes: Callable[[Rows], Floats]  # of the proposals of these numbers: (k, 4), as `Detection.boxes` says
    classes: Callable[[Rows], Rows]  # likewise: (k,)
    scores: Floats  # (n,) in 0..1
    masks: Callable[[Rows], Floats] | None = None  # of the proposals of these numbers: (k, h, w), of any size
    logits: bool = False  # whether masks are logits, else probabilities
    cut: bool = False  # whether a mask ends at its box


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """The things that count, the highest score first; at most `MOST`."""

    boxes: Floats  # (n, 4): left, top, right, bottom in pixels of the network's input
    scores: Floats  # (n,) in 0..1
    classes: Rows  # (n,)
    masks: Floats | None  # (n, H, W) in 0..1, as large as the input; `None` for a network of boxes
    unknown: bool = False  # whether a score is no number, or the box or mask of a thing that counts

    def within(self, place: Place) -> Detections:
        """Returns those that the picture at this place of the input shows, in pixels of the place."""
        corner = np.array([place.left, place.top] * 2, np.float32)
        boxes = np.clip(self.boxes - corner, 0, np.array([place.width, place.height] * 2, np.float32))
        seen = np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(axis=1))
        masks = None if self.masks is None else self.masks[seen][:, *place.pixels]
        return Detections(
            boxes=boxes[seen], scores=self.scores[seen], classes=self.classes[seen], masks=masks, unknown=self.unknown
        )


def read(outputs: Outputs, form: Detection, size: Size, keep: Collection[int]) -> Detections:
    """Returns what a network found in a picture, of the classes `keep`."""
    with np.errstate(over="ignore", invalid="ignore"):  # noise, as in a network's first run, may overflow
        found = _READERS[form.task](outputs, size)
        rows = np.flatnonzero(found.scores > form.score_threshold)
        classes = found.classes(rows)
        kept = np.isin(classes, list(keep))
        rows, classes = rows[kept], classes[kept]
        boxes = _corners(found.boxes(rows), form.boxes, size)  # of few: most proposals are none
    finite = np.isfinite(boxes).all(axis=1)
    rows, boxes, classes = rows[finite], boxes[finite], classes[finite]
    scores = found.scores[rows]
    chosen = _suppressed(boxes, scores, classes, form.nms)
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")][:MOST]
    boxes = boxes[chosen]
    masks = None if found.masks is None else _enlarged(found, found.masks(rows[chosen]), boxes, size)
    unknown = bool(np.isnan(found.scores).any() or not finite.all() or (masks is not None and np.isnan(masks).any()))
    return Detections(boxes=boxes, scores=scores[chosen], classes=classes[chosen], masks=masks, unknown=unknown)


def merged(parts: Sequence[Detections], limit: float | None) -> Detections:
    """Returns the boxes of several looks at one picture, after non-maximum suppression over all of them."""
    boxes, scores, classes = (np.concatenate([getattr(part, name) for part in parts]) for name in _OF_BOXES)
    chosen = _suppressed(boxes, scores, classes, limit)
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")][:MOST]
    return Detections(
        boxes=boxes[chosen],
        scores=scores[chosen],
        classes=classes[chosen],
        masks=None,
        unknown=any(part.unknown for part in parts),
    )


_OF_BOXES = ("boxes", "scores", "classes")


def _rf_detr(outputs: Outputs, size: Size) -> Candidates:
    """roboflow/rf-detr, models/lwdetr.py, PostProcess: a query and a class are one proposal; scores are sigmoids."""
    boxes, labels, *masks = outputs
    classes = labels.shape[1]
    return Candidates(
        boxes=lambda rows: boxes[rows // classes],
        classes=lambda rows: rows % classes,
        scores=_sigmoid(labels).ravel(),
        masks=(lambda rows: masks[0][rows // classes]) if masks else None,
        logits=True,
    )


def _rtmdet_ins(outputs: Outputs, size: Size) -> Candidates:
    """open-mmlab/mmdeploy, dense_heads/rtmdet_ins_head.py: after NMS, with masks after their sigmoid."""
    boxes, labels, *masks = outputs
    return Candidates(
        boxes=lambda rows: boxes[rows],
        classes=lambda rows: labels[rows].astype(np.intp),
        scores=boxes[:, 4],
        masks=(lambda rows: masks[0][rows]) if masks else None,
    )


def _mask_rcnn(outputs: Outputs, size: Size) -> Candidates:
    """pytorch/vision, models/detection/mask_rcnn.py and roi_heads.py: masks (n, 1, H, W) are probabilities in place."""
    boxes, labels, scores, *masks = outputs
    return Candidates(
        boxes=lambda rows: boxes[rows],
        classes=lambda rows: labels[rows].astype(np.intp),
        scores=scores,
        masks=(lambda rows: masks[0][rows].reshape(-1, *size)) if masks else None,
    )


def _yolo_seg(outputs: Outputs, size: Size) -> Candidates:
    """Bolya et al., YOLACT (2019), section 3: masks are the sigmoid of coefficients times prototypes, cut at the box.

    A column is center, size, a score for each class, and coefficients.
    """
    found, prototypes = outputs
    count, height, width = prototypes.shape
    coefficients, flat = found[len(found) - count :].T, prototypes.reshape(count, -1)
    plain = _yolo([found[: len(found) - count]], size)
    return Candidates(
        boxes=plain.boxes,
        classes=plain.classes,
        scores=plain.scores,
        masks=lambda rows: (coefficients[rows] @ flat).reshape(-1, height, width),
        logits=True,
        cut=True,
    )


def _yolo(outputs: Outputs, size: Size) -> Candidates:
    """A column (4 + C) is center and size in pixels, and a score for each class, of which the highest counts."""
    boxes, scores = outputs[0][:4], outputs[0][4:]
    return Candidates(
        boxes=lambda rows: boxes[:, rows].T,
        classes=lambda rows: scores[:, rows].argmax(axis=0),
        scores=scores.max(axis=0),
    )


def _yolov5(outputs: Outputs, size: Size) -> Candidates:
    """A row (5 + C) is center and size in pixels, objectness, and class scores; a score is their product.

    Redmon and Farhadi, YOLO9000 (2016), section 4. Megvii-BaseDetection/YOLOX writes it so after its grids are decoded.
    """
    rows = outputs[0]
    scores = rows[:, 4:5] * rows[:, 5:]
    return Candidates(
        boxes=lambda chosen: rows[chosen],
        classes=lambda chosen: scores[chosen].argmax(axis=1),
        scores=scores.max(axis=1),
    )


def _yunet(outputs: Outputs, size: Size) -> Candidates:
    """opencv/opencv, modules/objdetect/src/face_detect.cpp: the score is the root of class times objectness."""
    cls, obj = (np.concatenate(outputs[3 * kind : 3 * kind + 3]) for kind in range(2))
    scores = np.sqrt(np.clip(cls[:, 0], 0, 1) * np.clip(obj[:, 0], 0, 1))
    cells = np.cumsum([0, *(len(part) for part in outputs[6:9])])

    def boxes(rows: Rows) -> Floats:
        grid = np.searchsorted(cells, rows, side="right") - 1
        stride = np.array([8, 16, 32])[grid][:, None]
        row, column = np.divmod((rows - cells[grid])[:, None], -(-size[1] // stride))
        found = np.concatenate(outputs[6:9])[rows]
        center = (np.hstack([column, row]) + found[:, :2]) * stride
        return np.hstack([center, np.exp(found[:, 2:4]) * stride]).astype(np.float32)

    return Candidates(boxes=boxes, classes=np.zeros_like, scores=scores)


def _ssd(outputs: Outputs, size: Size) -> Candidates:
    """Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB, vision/ssd/predictor.py: a box and a class are one proposal.

    The first class is the background, which no box is for.
    """
    scores, boxes = outputs
    return Candidates(
        boxes=lambda rows: boxes[rows % len(boxes)],
        classes=lambda rows: rows // len(boxes) + 1,
        scores=scores.T[1:].ravel(),
    )


_READERS: dict[str, Callable[[Outputs, Size], Candidates]] = {
    "rf-detr": _rf_detr,
    "rtmdet-ins": _rtmdet_ins,
    "mask-rcnn": _mask_rcnn,
    "yolo-seg": _yolo_seg,
    "yolo": _yolo,
    "yolov5": _yolov5,
    "yunet": _yunet,
    "ssd": _ssd,
}


def _sigmoid(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def _corners(boxes: Floats, form: str, size: Size) -> Floats:
    """Returns boxes as left, top, right, bottom in pixels of the input."""
    layout, _, unit = form.partition("-")
    boxes = boxes[:, :4].astype(np.float32)
    if layout == "cxcywh":
        half = boxes[:, 2:] / 2
        boxes = np.hstack([boxes[:, :2] - half, boxes[:, :2] + half])
    return boxes if unit == "pixels" else boxes * np.array([size[1], size[0], size[1], size[0]], np.float32)


def _suppressed(boxes: Floats, scores: Floats, classes: Rows, limit: float | None) -> Rows:
    """Returns the numbers of the boxes that are left after non-maximum suppression within each class."""
    if limit is None or not len(boxes):
        return np.arange(len(boxes))
    corners = np.hstack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])
    chosen = cv2.dnn.NMSBoxesBatched(corners.tolist(), scores.tolist(), classes.tolist(), 0.0, limit)
    return np.asarray(chosen, np.intp).reshape(-1)


def _enlarged(found: Candidates, given: Floats, boxes: Floats, size: Size) -> Floats:
    """Returns the masks of proposals with these boxes as large as the input, in 0..1."""
    masks = np.zeros((len(boxes), *size), np.float32)
    for mask, box, small in zip(masks, boxes, given, strict=True):
        large = cv2.resize(small.astype(np.float32), (size[1], size[0]), interpolation=cv2.INTER_LINEAR)
        inside = box_pixels(box, size) if found.cut else (slice(None), slice(None))
        mask[inside] = _sigmoid(large[inside]) if found.logits else large[inside]
    return masks
