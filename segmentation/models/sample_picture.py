"""A photograph of a person, on which two forms of a network are compared."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.models.model import Model

PICTURE = Path(__file__).parent / "astronaut.jpg"  # for its origin see README.md
# Crops as (left, top, right, bottom) in parts of the picture's size, whether mirrored, and brightness.
_CROPS = (
    (0.0, 0.0, 1.0, 1.0, False, 1.0),
    (0.2, 0.0, 0.8, 1.0, True, 1.0),
    (0.3, 0.0, 0.7, 0.6, False, 0.5),
    (0.0, 0.2, 0.6, 1.0, True, 1.5),
)


def photo() -> NDArray[np.uint8]:
    """Returns `PICTURE`, (H, W, 3) BGR."""
    return np.asarray(cv2.imread(str(PICTURE)), np.uint8)


def picture_inputs(model: Model) -> NDArray[np.float32]:
    """Returns inputs of the network: four crops of `PICTURE` (4, 3, H, W) float32, normalized as `model` states."""
    whole = photo()
    height, width = whole.shape[:2]
    order = [2, 1, 0] if model.channel_order == "bgr" else [0, 1, 2]
    pictures = np.empty((len(_CROPS), 3, model.height, model.width), np.float32)
    for target, (left, top, right, bottom, mirrored, brightness) in zip(pictures, _CROPS, strict=True):
        crop = whole[int(top * height) : int(bottom * height), int(left * width) : int(right * width)]
        crop = crop[:, ::-1] if mirrored else crop
        small = cv2.resize(np.ascontiguousarray(crop), (model.width, model.height), interpolation=cv2.INTER_AREA)
        rgb = np.clip(small[..., ::-1].astype(np.float32) / 255 * brightness, 0, 1)
        target[:] = ((rgb - model.mean) / model.std).transpose(2, 0, 1)[order]
    return pictures
