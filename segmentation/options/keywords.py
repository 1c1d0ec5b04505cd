"""The options as types of keyword arguments, so that a type checker finds a misspelt one.

`segmentation.options.config.Config` has the same names and types, with the defaults and the checks.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO, TypedDict

import numpy as np
from numpy.typing import NDArray

# Pictures (N, 3, H, W) float32 to scores (N, h, w) or (N, C, h, w), an array or a tensor.
Network = Callable[[NDArray[np.float32]], Any]

Mode = Literal["auto", "baseline", "optimized"]
Format = Literal["matroska", "mpegts", "nut", "y4m", "rawvideo"]
Codec = Literal["h264", "hevc", "av1", "ffv1", "mjpeg"]
ChannelOrder = Literal["rgb", "bgr"]
Allowed = Literal["playlists", "private"]
Activation = Literal["none", "sigmoid", "softmax", "minmax"]
Track = Literal["fast", "balanced", "accurate"]
ResultsFormat = Literal["lines", "coco", "mot", "cvat", "label-studio", "yolo", "png"]
Quality = int | Literal["high"]
Interval = int | Literal["auto"]
OnLoss = Literal["gap", "freeze", "card"]

# From here on written by tools/docs/write_options.py.


class PictureOptions(TypedDict, total=False):
    """The keywords of `Segmenter.apply()`."""

    effect: str
    invert: bool
    threshold: float
    feather: float
    refine: bool


class FrameOptions(TypedDict, total=False):
    """The keywords of `Segmenter.frames()`."""

    smooth: float | None
    interval: Interval
    refine: bool
    track: Track | None
    keep: str | None
    start: float
    duration: float | None
    max_frames: int | None
    strict: bool
    allow: tuple[str, ...]
    max_pixels: int
    max_duration: float | None
    max_delay: float
    max_interval: int
    stall: float
    reconnect: str


class RunOptions(PictureOptions, total=False):
    """The options that may differ from file to file, of `Segmenter.run()`."""

    also: Sequence[tuple[str, str | Path]]
    except_: tuple[str, ...]
    only: tuple[str, ...]
    review: str | Path | None
    keep_metadata: bool
    smooth: float | None
    interval: Interval
    masks: str | Path | None
    track: Track | None
    keep: str | None
    pick: str | None
    count: tuple[str, ...]
    start: float
    keep_start: bool
    duration: float | None
    max_frames: int | None
    strict: bool
    allow: tuple[str, ...]
    max_pixels: int
    max_duration: float | None
    max_delay: float
    max_interval: int
    stall: float
    reconnect: str
    on_loss: OnLoss
    low_delay: bool
    cut_every: float | None
    codec: Codec | None
    format: Format | None
    quality: Quality | None
    preset: str | None
    video: bool
    overwrite: bool
    verify: bool
    mute: bool
    pitch_shift: float | None
    results: str | Path | TextIO | None
    results_format: ResultsFormat
    audit: str | Path | None
    rle: bool
    save_masks: str | Path | None
    trace: str | Path | None


class Options(RunOptions, total=False):
    """All options: the keywords of `segment()` and of `Segmenter()`."""

    anonymize: str | None
    region: tuple[str, ...]
    classes: tuple[str, ...] | None
    project: str | Path | None
    model: str | Path | Network
    labels: tuple[str, ...] | None
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    channel_order: ChannelOrder | None
    input_size: tuple[int, int] | None
    activation: Activation | None
    model_type: str | None
    task: str | None
    model_output: str | None
    model_inputs: tuple[str, ...]
    then: tuple[str, ...]
    mode: Mode
    device: str | None
    decode: str | None
    preprocess: str | None
    infer: str | None
    postprocess: str | None
    encode: str | None
    batch_size: int | None
    compile: bool
