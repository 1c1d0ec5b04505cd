"""Frames of a video, on which two forms of a network are compared."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

_FRAMES, _STEP = 8, 30  # about one frame a second


def frame_inputs(model: Model, video: Path) -> NDArray[np.float32]:
    """Returns inputs of the network: up to eight frames of `video` (N, 3, H, W) float32, normalized as `model` states.

    Raises `InputError` if the video can't be read.
    """
    info = probe(str(video))
    pix_fmt = working_format(info.pix_fmt, tuple(FORMATS))
    decoder = PyAVDecoder(info, pix_fmt, Config(batch_size=1, max_frames=_FRAMES * _STEP))
    preprocess = OpenCVPreprocessor(info, pix_fmt, replace(model, dtype=np.float32), Config())
    return np.concatenate([preprocess(batch) for batch in islice(decoder, 0, None, _STEP)]).astype(np.float32)
