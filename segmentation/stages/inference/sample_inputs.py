"""Real pictures to compare two forms of a network on."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.frames import FORMATS
from segmentation.media.input import probe, working_format
from segmentation.models.model import Model
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

BUILT_IN = Path(__file__).parents[2] / "models" / "astronaut.jpg"  # a person; origin: models/README.md
_FRAMES, _STEP = 8, 30  # of a video: one frame a second or so
# Crops of the picture as (left, top, right, bottom) in parts of its size, whether mirrored, and brightness.
_CROPS = (
    (0.0, 0.0, 1.0, 1.0, False, 1.0),
    (0.2, 0.0, 0.8, 1.0, True, 1.0),
    (0.3, 0.0, 0.7, 0.6, False, 0.5),
    (0.0, 0.2, 0.6, 1.0, True, 1.5),
)


def reference_pictures(model: Model, video: Path | None = None) -> NDArray[np.float32]:
    """Inputs of the network (N, 3, H, W), normalised as `model` wants: frames of a video, or of the picture at hand.

    Raises `InputError` if the video can't be read.
    """
    return _built_in(model) if video is None else _frames(model, str(video))


def _built_in(model: Model) -> NDArray[np.float32]:
    photo = cv2.imread(str(BUILT_IN))  # (H, W, 3) BGR
    assert photo is not None, f"{BUILT_IN} belongs to the package"
    height, width = photo.shape[:2]
    order = [2, 1, 0] if model.channel_order == "bgr" else [0, 1, 2]
    pictures = np.empty((len(_CROPS), 3, model.height, model.width), np.float32)
    for target, (left, top, right, bottom, mirrored, brightness) in zip(pictures, _CROPS, strict=True):
        crop = photo[int(top * height) : int(bottom * height), int(left * width) : int(right * width)]
        crop = crop[:, ::-1] if mirrored else crop
        small = cv2.resize(np.ascontiguousarray(crop), (model.width, model.height), interpolation=cv2.INTER_AREA)
        rgb = np.clip(small[..., ::-1].astype(np.float32) / 255 * brightness, 0, 1)
        target[:] = ((rgb - model.mean) / model.std).transpose(2, 0, 1)[order]
    return pictures


def _frames(model: Model, video: str) -> NDArray[np.float32]:
    info = probe(video)
    pix_fmt = working_format(info.pix_fmt, tuple(FORMATS))
    decoder = PyAVDecoder(info, pix_fmt, Config(batch_size=1, max_frames=_FRAMES * _STEP))
    preprocess = OpenCVPreprocessor(info, pix_fmt, replace(model, dtype=np.float32), Config())
    return np.concatenate([preprocess(batch) for batch in islice(decoder, 0, None, _STEP)]).astype(np.float32)
