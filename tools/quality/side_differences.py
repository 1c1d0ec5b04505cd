"""What differs between two sides on one file, and which differences docs/gpu.md explains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sides import Outcome, Program, Shown, Side

from segmentation import SegmentationError
from segmentation.pipeline.verification.verify import ROUNDED

AnySide: TypeAlias = Side | Program
IOU = 0.98  # least agreement of masks, of frames in which they take `SEEN` of the picture and `SEEN_PIXELS`
SEEN = 0.01
SEEN_PIXELS = 2000  # smaller areas are mostly edge, where single pixels depend on FP16's rounding
ROUNDING = (5, 0.4)  # largest and mean difference in levels that a rounding of one's own makes within a group
DAMAGE = {"frames", "pts", "planes", "damage", "cut short", "masks"}  # kinds of differences that damage makes
LIKE_NVDEC = ("nvdec", "nvdec-native", "chunks")


@dataclass(slots=True)
class Comparison:
    """One file on both sides."""

    left: Outcome = field(default_factory=Outcome)
    right: Outcome = field(default_factory=Outcome)
    first: int | None = None  # the first frame that differs
    pts: int = 0  # frames whose times differ
    planes: int = 0  # frames whose planes differ
    worst: int = 0  # the largest difference of a sample, where both sides have planes of one size
    mean: float = 0.0  # the largest mean difference of a plane
    masks: int = 0  # frames whose masks were compared
    iou: float | None = None  # the least, of frames where the masks are large enough
    masks_fault: str = ""
    kinds: list[str] = field(default_factory=list)  # of differences
    explained: str = ""  # by which case of docs/gpu.md, if all are
    text: str = ""  # the difference in words

    def as_json(self) -> dict[str, Any]:
        def public(of: Outcome | Comparison) -> dict[str, Any]:  # `asdict` can't copy a hash
            return {name: getattr(of, name) for name in of.__dataclass_fields__ if not name.startswith("_")}

        return {**public(self), "left": public(self.left), "right": public(self.right)}


def compare(path: str, left: AnySide, right: AnySide, masks: int) -> Comparison:
    """Runs a file through both sides, frame beside frame, and then the masks of its first frames."""
    found = Comparison()
    pairs = zip_longest(left.frames(path, found.left), right.frames(path, found.right))
    for number, (ours, theirs) in enumerate(pairs):
        _compare_frames(found, number, ours, theirs)
    if masks and not (found.left.refusal or found.right.refusal):
        _compare_masks(found, left.masks(path, masks), right.masks(path, masks))
    _judge(found, masks_wanted=bool(masks) and isinstance(left, Side) and isinstance(right, Side))
    return found


def _compare_frames(found: Comparison, number: int, ours: Shown | None, theirs: Shown | None) -> None:
    if ours is None or theirs is None:
        found.first = number if found.first is None else found.first
        return
    if ours.pts != theirs.pts:
        found.pts += 1
    if ours.digest != theirs.digest:
        found.planes += 1
        for a, b in zip(ours.planes or (), theirs.planes or (), strict=False):
            if a.shape == b.shape:
                apart = np.abs(a.astype(np.int32) - b)
                found.worst, found.mean = max(found.worst, int(apart.max())), max(found.mean, float(apart.mean()))
    if found.first is None and (ours.pts, ours.digest) != (theirs.pts, theirs.digest):
        found.first = number


def _compare_masks(found: Comparison, ours: Iterator[NDArray[np.bool_]], theirs: Iterator[NDArray[np.bool_]]) -> None:
    try:
        for a, b in zip_longest(ours, theirs):
            if a is None or b is None or a.shape != b.shape:
                found.masks_fault = f"masks of frame {found.masks} are not both there, or of two sizes"
                return
            found.masks += 1
            union = int((a | b).sum())
            if union >= max(SEEN * a.size, SEEN_PIXELS):
                found.iou = min(found.iou if found.iou is not None else 1.0, int((a & b).sum()) / union)
    except SegmentationError as exc:
        found.masks_fault = str(exc)


def _judge(found: Comparison, *, masks_wanted: bool) -> None:
    """Says in words what differs, and whether docs/gpu.md explains all of it."""
    left, right = found.left, found.right
    said = {}
    if left.refusal != right.refusal:
        said["refusal"] = f"refused: {left.refusal or 'no'} | {right.refusal or 'no'}"
    if left.frames != right.frames:
        said["frames"] = f"{left.frames} | {right.frames} frames"
    if found.pts:
        said["pts"] = f"times of {found.pts} frames"
    if found.planes:
        said["planes"] = f"planes of {found.planes} frames, by up to {found.worst} levels, {found.mean:.2f} on average"
    if None not in (left.damaged, right.damaged):
        if left.damaged != right.damaged:
            said["damage"] = f"{left.damaged} | {right.damaged} damaged"
        if left.cut_short != right.cut_short:
            said["cut short"] = f"cut short: {left.cut_short} | {right.cut_short}"
    if masks_wanted and (found.masks_fault or (found.iou is not None and found.iou < IOU)):
        said["masks"] = found.masks_fault or f"masks: least IoU {found.iou:.4f}"
    found.kinds = list(said)
    found.text = "; ".join(said.values()) + (f"; first at frame {found.first}" if found.first is not None else "")
    found.explained = explanation(found) if said else ""


def explanation(found: Comparison) -> str:
    """Returns the case of docs/gpu.md that explains all that differs, if one does."""
    left, right, kinds = found.left, found.right, set(found.kinds)
    if right.decoder not in LIKE_NVDEC:
        return ""
    if "on the way" in right.refusal and not left.refusal:
        return "change on the way"
    if kinds <= {"planes"} and left.codec in ROUNDED and found.worst <= ROUNDING[0] and found.mean < ROUNDING[1]:
        return "rounding"
    if (left.damaged or left.cut_short) and not right.refusal and kinds <= DAMAGE:
        return "damage" if right.damaged else "damage, which NVDEC does not tell of"
    return ""
