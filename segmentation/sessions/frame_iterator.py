"""Frames of a video with their masks, one after the other, for the caller's own loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from segmentation.errors import InputError
from segmentation.flow.threads import opencv_threads
from segmentation.frames import MaskedBatch, Planes, VideoInfo
from segmentation.frames.instances import FrameInstances
from segmentation.frames.source import Input, Source, opened, source_of
from segmentation.gpu.discovery import device_kept
from segmentation.gpu.errors import gpu_errors
from segmentation.media.planes import rgb_of
from segmentation.options.config import Config
from segmentation.options.effect import DEFAULT_EFFECT
from segmentation.pipeline.found import no_numbers
from segmentation.pipeline.mask_stages import MaskStages
from segmentation.pipeline.mask_steps import make_mask_steps
from segmentation.pipeline.opened_run import open_run
from segmentation.pipeline.output_paths import check_live
from segmentation.pipeline.resources import Resources
from segmentation.sessions.open_video import Moment
from segmentation.sessions.pictures import Mask, Rgb, enlarged
from segmentation.sessions.supervision_detections import make_detections
from segmentation.stages.decode import Decoder
from segmentation.stages.decode.timestamps import within_limit

if TYPE_CHECKING:
    from supervision import Detections

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)  # arrays have no single truth to compare by
class MaskedFrame:
    """A frame of a video with its mask, both upright. `image` and `mask` are computed when they are first read."""

    pts: int  # ticks of the video's time base
    time: Fraction  # seconds on the video's own clock
    _planes: Planes = field(repr=False)
    instances: FrameInstances | None = field(repr=False)  # with ids, by `track` or `keep`; the label map is small
    small_mask: Mask = field(repr=False)  # (h, w) float32, as `mask`, at the network's size
    _info: VideoInfo = field(repr=False)
    _pix_fmt: str = field(repr=False)
    _labels: tuple[str, ...] = field(repr=False)  # all that instances can have

    @cached_property
    def image(self) -> Rgb:
        """The picture (H, W, 3) uint8 RGB, by the video's own matrix and range. HDR is not mapped to SDR."""
        return rgb_of(self._planes, self._pix_fmt, self._info)

    @cached_property
    def mask(self) -> Mask:
        """The mask (H, W) float32 in 0..1, the probability of the kept classes; NaN if the network gave no numbers."""
        return enlarged(self.small_mask, self._info.upright_size)

    @property
    def seconds(self) -> float:
        """The time in seconds from the video's beginning."""
        return float(self.time - self._info.start)

    @property
    def size(self) -> tuple[int, int]:
        """The width and height of `image`."""
        return self._info.upright_size

    def id_at(self, point: tuple[float, float]) -> int:
        """Returns the id of the instance at a pixel (x, y) of `image`, 0 for none."""
        if self.instances is None:
            return 0
        width, height = self.size
        label_map = self.instances.label_map
        row, column = int(point[1] * label_map.shape[0] / height), int(point[0] * label_map.shape[1] / width)
        if not (0 <= row < label_map.shape[0] and 0 <= column < label_map.shape[1]):
            return 0
        number = int(label_map[row, column])
        return self.instances.instances[number - 1].id if number else 0

    def to_supervision(self) -> Detections:
        """Returns the instances as `supervision.Detections`, with masks (n, H, W) of the picture's size.

        `class_id` counts the network's labels from 0, and `data["class_name"]` names them. Raises `ConfigError` without
        instances, and `BackendError` without the package `supervision`.
        """
        return make_detections(self.instances, self._info.upright_size, self._labels)


def masked_frames(
    resources: Resources, given: Input | Source | Moment, config: Config, stop: threading.Event | None = None
) -> Generator[MaskedFrame, None, None]:
    """Yields the frames of `given`. Everything is opened at the first frame, and closed with the generator.

    Between frames the program has the current device that it had before. Setting `stop` ends waits for bytes. Raises as
    `Segmenter.frames`.
    """
    frames = _masked_frames(resources, given, config, stop)
    try:
        while True:
            with device_kept():
                frame = next(frames, None)
            if frame is None:
                return
            yield frame
    finally:
        with device_kept():
            frames.close()


def _masked_frames(
    resources: Resources, given: Input | Source | Moment, config: Config, stop: threading.Event | None
) -> Generator[MaskedFrame, None, None]:
    config = replace(config, effect=DEFAULT_EFFECT)  # none is drawn, and no background is read
    with ExitStack() as exits:
        if isinstance(given, Moment):
            run = open_run(resources, given.video.info.source, given.config(config), exits, info=given.video.info)
        else:
            ended = stop or threading.Event()
            source = exits.enter_context(opened(source_of(given, ended), ended))
            check_live(source, config)
            run = open_run(resources, source, config, exits, stop=stop)
        info, plan, pix_fmt, choices = run.info, run.plan, run.plan.pix_fmt, run.choices
        overlap = run.overlap(exits)
        stages = exits.enter_context(MaskStages(resources, run, pix_fmt))
        exits.enter_context(opencv_threads.one_a_frame(busy=stages.masks.workers > 1))
        decoder: Decoder | None = None
        with gpu_errors():
            if isinstance(given, Moment):
                batches = given.decoded(pix_fmt)
            else:
                sessions = resources.nvdec_sessions if plan.decode.on_gpu else None
                decoder = plan.decode.implementation(info, pix_fmt, stages.config, stages.gpu, sessions=sessions)
                exits.callback(decoder.close)
                batches = iter(decoder)
            decoded = stages.clock.steps("decode", within_limit(info, batches))
            decoded = overlap(decoded, "decoded") if info.live is None else decoded
        steps = make_mask_steps(resources, run, plan, choices.kept, stages.transfer, stages.masks.memory)
        frames = unknown = 0
        for batch in overlap(stages.masks.finished(decoded, stages.on_host, overlap, steps), "masked"):
            if info.live is not None:
                info.live.written(len(batch))
            frames += len(batch)
            unknown += int(np.isnan(batch.masks).any(axis=(1, 2)).sum())
            yield from _frames(batch, info, pix_fmt, choices.labels)
        if unknown:
            log.warning("%s: %s", info.path, no_numbers(config.model_name, f"{unknown} of {frames} frames"))
        if info.live is not None and info.live.failure is not None:
            raise info.live.failure
        if decoder is not None and decoder.damaged:
            text = f"{info.path}: {decoder.damaged} frames are damaged or missing"
            if config.strict:
                raise InputError(text)
            log.warning("%s", text)


def _frames(
    batch: MaskedBatch, info: VideoInfo, pix_fmt: str, labels: tuple[str, ...]
) -> Generator[MaskedFrame, None, None]:
    instances = batch.instances or (None,) * len(batch)
    for frame, mask, found in zip(batch.frames.frames, batch.masks, instances, strict=True):
        yield MaskedFrame(frame.pts, frame.pts * info.time_base, frame.planes, found, mask, info, pix_fmt, labels)
