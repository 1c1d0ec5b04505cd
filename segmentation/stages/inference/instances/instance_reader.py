"""Finds the single things of a batch in a network's outputs, and draws their masks, on a GPU.

The results are those of `models/detections.py`. Nothing is read on the host, so that a CUDA graph holds all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from segmentation.errors import RefusesNetwork
from segmentation.frames.instances import MOST
from segmentation.gpu.kernels import THREADS
from segmentation.models.model import Model, detection_of
from segmentation.stages.inference.compiler.network_kernels import PROTOTYPES
from segmentation.stages.inference.instances.onnx_instances import kept_numbers, place_of
from segmentation.stages.inference.instances.proposals import Best, best

if TYPE_CHECKING:
    from segmentation.gpu.kernels import Kernels

_THING = 8  # numbers of a `Thing` of instances.cu
_NO_LIMIT = 2.0  # an IoU that no boxes have
_NOWHERE = np.uint64(0)  # an address


class Found(NamedTuple):
    """The instances of a batch. Maps are as large as the picture is in the network's input."""

    things: Tensor  # (N, MOST, 8) float32: box in pixels of the maps, score, class; score 0 for none
    masks: Tensor  # (N, h, w) float32: the union of the things' masks, 0..1
    label_maps: Tensor | None  # (N, h, w) uint8: number of the thing from 1 on, 0 for none; `None` for boxes alone
    class_map: Tensor | None  # (N, h, w) uint8: index into `model.keep`, where it is asked for
    unknown: Tensor  # (N,) uint8: whether the outputs are no numbers, as with `FrameInstances`; all its mask is NaN


class InstanceReader:
    """Reads the outputs of one network."""

    def __init__(self, model: Model, device: torch.device, *, class_map: bool) -> None:
        self._form, self._size = detection_of(model), (model.height, model.width)
        self._place = place_of(model)
        self._wants_class_map = class_map
        self._kept = torch.zeros(len(model.labels), dtype=torch.bool)
        self._kept[list(model.keep)] = True
        self._kept, self._numbers = self._kept.to(device), torch.from_numpy(kept_numbers(model)).to(device)

    def __call__(self, kernels: Kernels, looks: Sequence[Sequence[Tensor]]) -> Found:
        """Queues all work on the stream of `kernels`, PyTorch's current one.

        `looks` are the outputs (N, ...) in the order of `Detection.outputs`, for the pictures as they are and for each
        of `Detection.passes`. Raises `RefusesNetwork` where masks have another
        number of prototypes than the kernel takes.
        """
        found = best(looks, self._form, self._size, self._kept)
        place, count = self._place, len(found.boxes)
        shape = count, place.height, place.width
        masks = found.boxes.new_empty(shape)
        bytes_of = partial(torch.empty, shape, dtype=torch.uint8, device=masks.device)
        label_maps = None if found.layers is None else bytes_of()
        class_map = bytes_of() if self._wants_class_map else None
        things, unknown = self._chosen(kernels, found), found.unknown
        self._draw(kernels, found, things, masks, label_maps, class_map)
        if found.layers is not None:  # boxes are numbers, or were left out
            unknown = unknown | masks.sum((1, 2)).isnan()
            masks.masked_fill_(unknown[:, None, None], torch.nan)
        return Found(things, masks, label_maps, class_map, unknown.byte())

    def _chosen(self, kernels: Kernels, found: Best) -> Tensor:
        """Returns the things (N, MOST, 8) that are left after non-maximum suppression."""
        count, proposals = found.scores.shape
        things = found.boxes.new_empty((count, MOST, _THING))
        limit = np.float32(_NO_LIMIT if self._form.nms is None else self._form.nms)
        kernels(
            "suppress",
            (*THREADS, count),  # one block for each picture
            found.boxes,
            found.scores,
            found.classes,
            proposals,
            limit,
            *self._place,
            things,
        )
        return things

    def _draw(
        self,
        kernels: Kernels,
        found: Best,
        things: Tensor,
        masks: Tensor,
        label_maps: Tensor | None,
        class_map: Tensor | None,
    ) -> None:
        place, layers, proposals = self._place, found.layers, found.scores.shape[1]
        size = place.width, place.height, len(masks)
        targets = masks, *(_NOWHERE if one is None else one for one in (label_maps, class_map))
        common = things, place.width, place.height, self._numbers, *targets
        input_place = place.left, place.top, self._size[1], self._size[0]
        if layers is None:
            kernels("draw_boxes", size, *common, found.unknown.byte())
        elif found.coefficients is None:
            kernels("draw_layers", size, *common, *input_place, layers, *layers.shape[1:], found.owners, proposals)
        elif layers.shape[1] != PROTOTYPES:
            raise RefusesNetwork(f"masks of {layers.shape[1]} prototypes, where the kernel takes {PROTOTYPES}")
        else:
            sides = layers.shape[2:]
            kernels("draw_prototypes", size, *common, *input_place, layers, *sides, found.coefficients, proposals)
