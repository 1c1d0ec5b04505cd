"""Reads what networks propose from the outputs of a batch, with PyTorch and without waiting for the GPU.

The layouts are those of `models/detections.py`, which names the formulas' sources. Outputs are (N, ...) and float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from segmentation.models.detection import Detection
from segmentation.stages.inference.compiler.network_kernels import MOST_COMPARED

Outputs: TypeAlias = Sequence[Tensor]
Size: TypeAlias = tuple[int, int]  # height, width of the network's input


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """All P things that a network proposes for each picture, with B boxes."""

    scores: Tensor  # (N, P)
    classes: Tensor  # (N, P) or (P,) int64
    boxes: Tensor  # (N, B, 4), as `Detection.boxes` says
    owner: Callable[[Tensor], Tensor] = lambda rows: rows  # numbers of proposals to those of their boxes and layers
    layers: Tensor | None = None  # (N, B, h, w) logits of a mask for each box, or (N, C, h, w) prototypes
    coefficients: Tensor | None = None  # (N, P, C) of the prototypes


class Best(NamedTuple):
    """The K proposals of the highest scores, in that order; the score is 0 where there is none."""

    boxes: Tensor  # (N, K, 4) float32: left, top, right, bottom in pixels of the network's input
    scores: Tensor  # (N, K) float32
    classes: Tensor  # (N, K) int32
    owners: Tensor  # (N, K) int32: number of the layer
    layers: Tensor | None  # as in `Proposals`
    coefficients: Tensor | None  # (N, K, C)
    unknown: Tensor  # (N,) bool: a score is no number, or what is drawn of a proposal that counts


def best(looks: Sequence[Outputs], form: Detection, size: Size, kept: Tensor) -> Best:
    """Returns the best proposals above the threshold, at most `MOST_COMPARED`, of the classes kept, (labels,) bool.

    `looks` are the outputs for the picture as it is and for each of `form.passes`.
    """
    found = _proposed(looks[0], form, size)
    for name, outputs in zip(form.passes, looks[1:], strict=True):
        found = _joined(found, _further(name, outputs, form, size))
    classes = found.classes.expand_as(found.scores)
    counted = torch.where((found.scores > form.score_threshold) & kept[classes], found.scores, 0.0)
    scores, rows = _highest(counted, min(MOST_COMPARED, counted.shape[1]))
    owners = found.owner(rows)
    boxes = _corners(_at(found.boxes, owners), form.boxes, size)
    finite = boxes.isfinite().all(dim=2)
    unknown = found.scores.isnan().any(dim=1) | ((scores > 0) & ~finite).any(dim=1)
    scores = torch.where(finite, scores, 0.0)
    return Best(
        boxes.contiguous(),
        scores.contiguous(),
        classes.gather(1, rows).int(),
        owners.int(),
        None if found.layers is None else found.layers.contiguous(),
        None if found.coefficients is None else _at(found.coefficients, rows),
        unknown,
    )


def _proposed(outputs: Outputs, form: Detection, size: Size) -> Proposals:
    return READERS[form.task]([output.float() for output in outputs], size)


def _further(name: str, outputs: Outputs, form: Detection, size: Size) -> Proposals:
    """Returns the proposals of one of `PASSES`, with boxes in pixels of the picture as it is."""
    if name == "half":
        found = _proposed(outputs, form, (size[0] // 2, size[1] // 2))
        return replace(found, boxes=found.boxes * 2)
    found = _proposed(outputs, form, size)
    center, *rest = found.boxes.unbind(dim=2)
    return replace(found, boxes=torch.stack([size[1] - center, *rest], dim=2))


def _joined(one: Proposals, other: Proposals) -> Proposals:
    """Returns all proposals of two looks, of networks whose boxes are centers and sizes, one for each proposal."""
    parts = ("scores", "classes", "boxes")
    return Proposals(**{name: torch.cat([getattr(one, name), getattr(other, name)], dim=1) for name in parts})


def _rf_detr(outputs: Outputs, size: Size) -> Proposals:
    boxes, labels, *masks = outputs
    count = labels.shape[2]
    return Proposals(
        scores=labels.sigmoid().flatten(1),
        classes=torch.arange(labels[0].numel(), device=labels.device) % count,
        boxes=boxes,
        owner=lambda rows: rows // count,
        layers=masks[0] if masks else None,
    )


def _yolo_seg(outputs: Outputs, size: Size) -> Proposals:
    found, prototypes = outputs
    plain = found.shape[1] - prototypes.shape[1]
    scores, classes = found[:, 4:plain].max(dim=1)
    return Proposals(
        scores=scores,
        classes=classes,
        boxes=found[:, :4].transpose(1, 2),
        layers=prototypes,
        coefficients=found[:, plain:].transpose(1, 2),
    )


def _yolo(outputs: Outputs, size: Size) -> Proposals:
    scores, classes = outputs[0][:, 4:].max(dim=1)
    return Proposals(scores=scores, classes=classes, boxes=outputs[0][:, :4].transpose(1, 2))


def _yolov5(outputs: Outputs, size: Size) -> Proposals:
    rows = outputs[0]
    scores, classes = (rows[..., 4:5] * rows[..., 5:]).max(dim=2)
    return Proposals(scores=scores, classes=classes, boxes=rows[..., :4])


def _yunet(outputs: Outputs, size: Size) -> Proposals:
    cls, obj = (torch.cat(list(outputs[3 * kind : 3 * kind + 3]), dim=1)[..., 0] for kind in range(2))
    boxes = []
    for found, stride in zip(outputs[6:9], (8, 16, 32), strict=True):
        cells, columns = torch.arange(found.shape[1], device=found.device), -(-size[1] // stride)
        corner = torch.stack([cells % columns, cells // columns], dim=1)
        boxes.append(torch.cat([corner + found[..., :2], found[..., 2:4].exp()], dim=2) * stride)
    scores = (cls.clamp(0, 1) * obj.clamp(0, 1)).sqrt()
    return Proposals(scores=scores, classes=torch.zeros_like(scores, dtype=torch.int64), boxes=torch.cat(boxes, dim=1))


def _ssd(outputs: Outputs, size: Size) -> Proposals:
    scores, boxes = outputs
    count = boxes.shape[1]
    scores = scores.transpose(1, 2)[:, 1:].flatten(1)
    classes = torch.arange(scores.shape[1], device=scores.device) // count + 1
    return Proposals(scores=scores, classes=classes, boxes=boxes, owner=lambda rows: rows % count)


# Layouts whose outputs have a fixed shape. The others have been through non-maximum suppression.
READERS: dict[str, Callable[[Outputs, Size], Proposals]] = {
    "rf-detr": _rf_detr,
    "yolo-seg": _yolo_seg,
    "yolo": _yolo,
    "yolov5": _yolov5,
    "yunet": _yunet,
    "ssd": _ssd,
}


def _highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the highest scores (N, count), descending, and their numbers; of equal ones the first come first.

    `topk` alone takes any of equal ones, and networks that are sure give many boxes a score of exactly 1. So it gets
    whole numbers, all different: the bits of a float that is not negative rise with it.
    """
    last = scores.shape[1] - 1
    numbers = torch.arange(last, -1, -1, device=scores.device)
    keys = (scores.contiguous().view(torch.int32).long() << 32) + numbers
    rows = last - (keys.topk(count, dim=1).values & 0xFFFFFFFF)
    return scores.gather(1, rows), rows


def _at(values: Tensor, rows: Tensor) -> Tensor:
    """Returns the rows (N, K) of `values` (N, P, C): (N, K, C)."""
    return values.gather(1, rows[..., None].expand(-1, -1, values.shape[2]))


def _corners(boxes: Tensor, form: str, size: Size) -> Tensor:
    """Returns boxes (N, K, 4) as left, top, right, bottom in pixels of the input."""
    layout, _, unit = form.partition("-")
    if layout == "cxcywh":
        center, half = boxes[..., :2], boxes[..., 2:] / 2
        boxes = torch.cat([center - half, center + half], dim=2)
    if unit == "pixels":
        return boxes
    return torch.cat([boxes[..., k : k + 1] * size[1 - k % 2] for k in range(4)], dim=2)
