"""Joins what several networks have found in the same frames: `--anonymize faces,plates=FILE`, and heads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import MaskedBatch, Transfer, VideoInfo
from segmentation.frames.instances import MOST, Box, BoxMap, FrameInstances, Instance, box_pixels
from segmentation.options.anonymize import BODIES
from segmentation.options.config import SURE_COVER, Config
from segmentation.tracking.anonymize.cover import CoverMasks, cover_alone
from segmentation.tracking.anonymize.heads import LABEL, NAPE, heads_in
from segmentation.tracking.tracker import SURE


class JoinBoxes:
    """A step before tracking: boxes of further networks, and heads of those without a face, join the first ones."""

    def __init__(self, config: Config, transfer: Transfer) -> None:
        self._kinds = [one.kind for one in config.further]
        self._heads = any(one.kind == "heads" for one in config.covered)
        self._transfer = transfer

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        yield from map(self.joined, batches)

    def joined(self, batch: MaskedBatch) -> MaskedBatch:
        """Returns a batch whose instances are those of all networks of boxes."""
        faces = found = list(batch.instances)
        for kind, other in zip(self._kinds, batch.further, strict=True):
            if other.instances:
                found = [
                    _with(one, more.instances, more.unknown) for one, more in zip(found, other.instances, strict=True)
                ]
            elif kind == BODIES and self._heads:
                masks = other.host_masks(self._transfer)
                found = [
                    _with(one, _heads(mask, face), bool(np.isnan(mask).any()))
                    for one, face, mask in zip(found, faces, masks, strict=True)
                ]
        return replace(batch, instances=tuple(found))


class CoverPeople:
    """A step behind the cover of boxes: the masks of people are covered too."""

    def __init__(self, config: Config, info: VideoInfo, transfer: Transfer) -> None:
        self._number = [one.kind for one in config.further].index("people")
        self._transfer, self._cover = transfer, CoverMasks(info, transfer)

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        waiting: deque[MaskedBatch] = deque()

        def people() -> Iterator[MaskedBatch]:
            for batch in batches:
                waiting.append(batch)
                yield batch.further[self._number]

        for grown in self._cover(people()):
            yield with_people(waiting.popleft(), grown, self._transfer)


class BareHeads:
    """A step behind the cover: it notes heads that nothing covers, for whoever looks at the result."""

    def __init__(self, config: Config, transfer: Transfer) -> None:
        self._number = [one.kind for one in config.further].index(BODIES)
        self._transfer = transfer

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        for batch in batches:
            masks = batch.further[self._number].host_masks(self._transfer)
            bare = tuple(
                tuple(head for head in heads_in(mask, [one.box for one in frame.instances]) if not _hides(frame, head))
                for mask, frame in zip(masks, batch.instances, strict=True)
            )
            yield replace(batch, bare=bare)


def _hides(frame: FrameInstances, head: Box) -> bool:
    """Returns whether most of a head is covered, as of a near face, for which the box of its head is too small."""
    shape = frame.first_map.shape
    numbers = frame.first_map[box_pixels(np.array(head) * (shape[::-1] * 2), shape)]
    covered = np.array([False, *(one.kept for one in frame.instances)])[numbers]
    return 2 * int(covered.sum()) > covered.size


def with_people(batch: MaskedBatch, people: MaskedBatch, transfer: Transfer) -> MaskedBatch:
    """Returns a batch whose masks hold those of `people` too, which may be of another size."""
    masks = batch.masks[: len(batch)]
    if not isinstance(masks, np.ndarray):
        from segmentation.tracking.anonymize import cuda_cover  # needs PyTorch

        there = transfer.rows(people.masks[: len(people)], "cuda", len(people))
        with transfer.on_stream():
            return replace(batch, masks=cuda_cover.with_people(masks, there, SURE_COVER))
    masks = masks.copy()
    height, width = masks.shape[1:]
    for mask, person in zip(masks, people.host_masks(transfer), strict=True):
        mask[cv2.resize(person, (width, height), interpolation=cv2.INTER_LINEAR) > SURE_COVER] = 1
        if np.isnan(person).any():  # no mask at all: everything is covered
            mask[:] = np.nan
    return replace(batch, masks=masks)


def cover_picture(batch: MaskedBatch, config: Config, transfer: Transfer) -> MaskedBatch:
    """Returns the batch of a picture with masks that cover what was found in it, without frames around."""
    covered = cover_alone(JoinBoxes(config, transfer).joined(batch) if batch.further else batch, transfer)
    kinds = [one.kind for one in config.further]
    if "people" not in kinds:
        return covered
    return with_people(covered, cover_alone(batch.further[kinds.index("people")], transfer), transfer)


def _heads(mask: NDArray[np.float32], faces: FrameInstances) -> tuple[Instance, ...]:
    """Returns the heads without a sure face: from behind, a neck or an ear may be taken for one."""
    boxes: Sequence[Box] = [one.box for one in faces.instances if one.score >= SURE]
    return tuple(Instance(label=LABEL, score=SURE, box=box) for box in heads_in(mask, boxes, NAPE))


def _with(found: FrameInstances, more: tuple[Instance, ...], unknown: bool) -> FrameInstances:
    """Returns the boxes of a frame with others."""
    instances = (*found.instances, *more)[:MOST]
    height, width = found.first_map.shape
    boxes = np.array([one.box for one in instances]).reshape(-1, 4) * [width, height, width, height]
    joined = BoxMap(boxes, (height, width))
    return replace(found, instances=instances, first_map=joined, unknown=found.unknown or unknown)
