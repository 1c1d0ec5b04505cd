"""Hands a frame's instances to `supervision`, whose annotators, filters and zones take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from segmentation.errors import BackendError, ConfigError
from segmentation.frames.instances import FrameInstances
from segmentation.pipeline.result_files.shapes import Size, masks_of

if TYPE_CHECKING:
    from supervision import Detections


def make_detections(found: FrameInstances | None, size: Size, labels: Sequence[str]) -> Detections:
    """Returns the `supervision.Detections` of a frame (n instances) in pixels of the upright picture.

    `xyxy` (n, 4) float32, `mask` (n, H, W) bool, `confidence` (n,) float32, `class_id` (n,), the place in `labels`,
    `tracker_id` (n,), 0 for none, and in `data` `class_name` (n,) and `parent_id` (n,). See
    https://supervision.roboflow.com/latest/detection/core/. Raises `ConfigError` where a frame has no instances to
    speak of, and `BackendError` without the package.
    """
    if found is None:
        raise ConfigError("to_supervision() is about instances: give frames() track='balanced'")
    try:
        from supervision import Detections
    except ModuleNotFoundError as exc:
        raise BackendError("to_supervision() needs the package supervision; pip install supervision") from exc
    width, height = size
    instances = found.instances
    masks = [mask for _, mask in masks_of(found, size)]
    return Detections(
        xyxy=np.array([one.box for one in instances], np.float32).reshape(-1, 4) * [width, height, width, height],
        mask=np.array(masks, bool).reshape(-1, height, width),
        confidence=np.array([one.score for one in instances], np.float32),
        class_id=np.array([labels.index(one.label) for one in instances], int),
        tracker_id=np.array([one.id for one in instances], int),
        data={
            "class_name": np.array([one.label for one in instances], str),
            "parent_id": np.array([one.parent for one in instances], int),
        },
    )
