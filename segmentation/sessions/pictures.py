"""Masks and effects of single pictures in memory, with a session's network."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ConfigError, InputError, ModelError
from segmentation.flow.threads import StageThreads, opencv_threads
from segmentation.frames import FULL, Color, Frame, FrameBatch, MaskedBatch, Plane, VideoInfo
from segmentation.frames.host_array import on_host
from segmentation.frames.source import Source
from segmentation.gpu.discovery import device_kept
from segmentation.gpu.errors import gpu_errors
from segmentation.media.opening.stream_properties import SMPTE170M
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.options.effect import DEFAULT_EFFECT, Effect
from segmentation.options.keywords import PictureOptions
from segmentation.pipeline.compositor import Compositor
from segmentation.pipeline.fail_closed import FailClosed
from segmentation.pipeline.found import no_numbers
from segmentation.pipeline.mask_stages import MaskStages, without_outputs
from segmentation.pipeline.opened_run import Choices, choose, on_machine
from segmentation.pipeline.planning.plan import Plan
from segmentation.pipeline.resources import Resources
from segmentation.stages.masks.refinement import LONGER_SIDE
from segmentation.stages.postprocess import Postprocessor
from segmentation.stages.preprocess.opencv import shrink
from segmentation.system.access import MAX_PIXELS, check_size
from segmentation.tracking.anonymize.several import cover_picture

if TYPE_CHECKING:
    import torch

Picture: TypeAlias = "NDArray[np.uint8] | torch.Tensor"  # (H, W, 3) uint8 RGB
Rgb = NDArray[np.uint8]  # (H, W, 3), or (H, W, 4) with alpha
Mask = NDArray[np.float32]  # (H, W) in 0..1

_PIX_FMT = "yuv444p"
_COLOR = Color(matrix=SMPTE170M, range=FULL)  # JPEG's: all 256 levels
_TO_RGB = np.float32(255) * _COLOR.yuv_to_rgb(8)  # (3, 4): (Y, U, V, 1) to (R, G, B) in 0..255
_TO_YUV = np.linalg.inv(np.vstack([_TO_RGB, [0, 0, 0, 1]]))[:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A picture with effects, and how it came to be."""

    pictures: list[Rgb]  # one for each effect
    shown: MaskedBatch  # on the host
    info: VideoInfo
    classes: tuple[str, ...]  # that a class map tells apart
    plan: Plan
    seconds: dict[str, float]  # of each stage


class Pictures:
    """Segments each picture as a video of one frame. Several threads may call at once."""

    def __init__(self, resources: Resources, config: Config) -> None:
        self._resources, self._of_session = resources, config
        self._choices: Choices | None = None
        self._lock = threading.Lock()

    def config(self, **options: Unpack[PictureOptions]) -> Config:
        """Returns the session's options for single pictures, with `options` in their place. Raises `ConfigError`."""
        return replace(self._config, **options) if options else self._config

    @cached_property
    def _config(self) -> Config:
        config = self._of_session
        if config.keep is not None:
            raise ConfigError(f"keep {config.keep}: ids are of videos; leave it out for single pictures")
        if config.project is not None:
            raise ConfigError(f"project {config.project}: corrections are of videos; leave it out for single pictures")
        # Checking takes 0.1 ms.
        return replace(without_outputs(config), track=None, smooth=0.0, interval=0, batch_size=1)

    def masks(self, frames: Picture | Sequence[Picture], config: Config) -> Mask | list[Mask]:
        """Returns masks as `Segmenter.masks`, and raises likewise. `config` is one of `Pictures.config`."""
        with device_kept():
            return self._masks(frames, config)

    def _masks(self, frames: Picture | Sequence[Picture], config: Config) -> Mask | list[Mask]:
        if isinstance(frames, list | tuple):
            return self._each([as_picture(frame, f"picture {i}") for i, frame in enumerate(frames)], config)
        array = _array(frames, "the pictures")
        if array.ndim != 4:
            return self._mask(as_picture(array, "the picture"), config)
        found = self._each([as_picture(frame, f"picture {i}") for i, frame in enumerate(array)], config)
        return np.stack(found) if found else np.empty(array.shape[:3], np.float32)

    def _each(self, pictures: Sequence[Rgb], config: Config) -> list[Mask]:
        """Returns the mask of each picture (H, W, 3). Several threads work on them where the network allows it."""
        if len(pictures) < 2:
            return [self._mask(picture, config) for picture in pictures]
        with self._stages(_info(pictures[0]), config)[0] as stages:
            workers = stages.masks.workers
        with StageThreads() as overlap, opencv_threads.one_a_frame(busy=workers > 1):
            return list(overlap.map(lambda picture: self._mask(picture, config), pictures, workers))

    def apply(
        self,
        picture: Rgb,
        config: Config,
        effects: Sequence[Effect],
        name: str = "picture",
        mask: Mask | None = None,
    ) -> Applied:
        """Returns the picture (H, W, 3) with each effect, by the options of `config`. Raises as `Segmenter.apply`.

        `name` is the picture's in messages. A `mask` (h, w) of any size takes the place of the network's.
        """
        info, batch = _info(picture), _batch(picture)
        with device_kept(), ExitStack() as exits:
            stages, model = self._stages(info, config)
            exits.enter_context(stages)
            with gpu_errors():
                assert stages.plan.postprocess is not None
                implementation = stages.plan.postprocess.implementation
                outputs: list[tuple[Effect, Postprocessor | None]] = []
                for effect in effects:
                    effect = effect.on(model.kept) if mask is None else effect
                    if effect.label:
                        raise ConfigError(f"effect {effect.text}: instances are of videos; leave out @{effect.label}")
                    postprocess = implementation(info, _PIX_FMT, effect, stages.config, stages.gpu)
                    exits.callback(postprocess.close)
                    outputs.append((effect, postprocess))
                memory = stages.plan.mask_memory
                compositor = Compositor(outputs, memory, info, _PIX_FMT, stages.config, stages.gpu, stages.transfer)

            def finish(masked: MaskedBatch) -> tuple[list[FrameBatch], MaskedBatch]:
                with gpu_errors(), self._resources.composites_turn.of(compositor):
                    masked = covers(
                        masked if config.anonymize is None else cover_picture(masked, config, stages.transfer)
                    )
                    moved = masked.to(compositor.memory, stages.transfer)
                    composed = stages.clock.stage("postprocess", moved.frames, compositor, moved)
                    on_host = composed.refined.to("host", stages.transfer)
                    return [stages.transfer.frames(frames, "host") for frames in composed.made], on_host

            covers = FailClosed(stages.config, info, stages.transfer, stages.masks.memory, stages.gpu)
            if mask is None:
                made, shown = stages.masks.find_and_finish(batch, finish)
            else:
                stages.transfer.enter()
                given = MaskedBatch(frames=batch, masks=mask[None])
                made, shown = finish(given.to(stages.masks.memory, stages.transfer))
            if shown.unknown is not None and shown.unknown.any():
                raise ModelError(f"{name}: {no_numbers(config.model_name, 'it')}")
            before = batch.frames[0].planes
            return Applied(
                pictures=[_with_effect(picture, before, frames.frames[0].planes) for frames in made],
                shown=shown,
                info=info,
                classes=model.kept,
                plan=stages.plan,
                seconds=stages.clock.totals(),
            )

    def _mask(self, picture: Rgb, config: Config) -> Mask:
        small = _halved(picture, self._resources.model(_info(picture)))
        with self._stages(_info(small), config)[0] as stages:

            def finish(masked: MaskedBatch) -> MaskedBatch:  # while what further networks found is there
                covered = masked if config.anonymize is None else cover_picture(masked, config, stages.transfer)
                return stages.on_host(covered)

            masked = stages.masks.find_and_finish(_batch(small), finish)
        return enlarged(masked.masks[0], (picture.shape[1], picture.shape[0]))

    def _stages(self, info: VideoInfo, config: Config) -> tuple[MaskStages, Model]:
        """Returns the stages for a picture. They are chosen for the first picture."""
        model = self._resources.model(info)
        with self._lock:
            if self._choices is None:
                chosen = choose(self._resources, replace(config, effect=DEFAULT_EFFECT, then=()), None)
                self._choices = replace(chosen, plan=replace(chosen.plan, steps=()))  # they are of videos
            choices = replace(self._choices, model=model)
            stages = MaskStages(self._resources, on_machine(self._resources, choices, config, info), _PIX_FMT)
            self._choices = replace(choices, plan=stages.plan)
        return stages, model


def as_picture(picture: Picture, name: str) -> Rgb:
    """Returns a picture as an array (H, W, 3) uint8 on the host. `name` begins the message of a fault.

    Takes NumPy arrays, Pillow's pictures, PyTorch's tensors on any device, and arrays on the host that speak DLPack.
    Raises `InputError`.
    """
    array = _array(picture, name)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise InputError(f"{name}: has shape {array.shape} and type {array.dtype}; (H, W, 3) uint8 RGB is needed")
    check_size(array.shape[1], array.shape[0], name, MAX_PIXELS)
    return np.ascontiguousarray(array)


def as_mask(mask: Mask) -> Mask:
    """Returns a mask as an array (h, w) float32. Raises `InputError`."""
    given = np.asarray(mask)
    array = np.ascontiguousarray(given, np.float32)
    if array.ndim != 2 or not array.size or not (array.min() >= 0 and array.max() <= 1):
        span = f" with {array.min():g} to {array.max():g}" if array.size else ""
        has = f"has shape {array.shape} and type {given.dtype}{span}"
        raise InputError(f"the mask: {has}; (h, w) float32 in 0..1 is needed")
    return array


def _array(pictures: Picture, name: str) -> NDArray[Any]:
    """Returns `pictures` as an array on the host. Raises `InputError`."""
    try:
        return on_host(pictures)
    except TypeError as exc:
        hint = "; files are for run() and frames()" if isinstance(pictures, str | PathLike) else ""
        raise InputError(f"{name}: {exc}{hint}") from exc


def enlarged(mask: Mask, size: tuple[int, int]) -> Mask:
    """Returns a mask (h, w) at `size` (width, height), bilinear."""
    return np.asarray(shrink(mask, size), np.float32)


def _info(picture: Rgb) -> VideoInfo:
    """Describes a picture as a video of one frame."""
    height, width = picture.shape[:2]
    return VideoInfo(
        source=Source("picture", "bytes", "picture"),
        stream_index=0,
        width=width,
        height=height,
        pix_fmt=_PIX_FMT,
        codec="rawvideo",
        color=_COLOR,
        time_base=Fraction(1, 25),
        rate=Fraction(25),
        start=Fraction(0),
        frames=1,
        frames_exact=True,
        end=None,
        sample_aspect_ratio=None,
        display_matrix=None,
        rotation=0,
        interlaced=False,
    )


def _halved(picture: Rgb, model: Model) -> Rgb:
    """Returns the picture halved as often as preprocess and refinement both halve its planes."""
    # In three planes of the full size, halving and converting would take longer than the network.
    height, width = picture.shape[:2]
    while min(height / model.height, width / model.width, max(height, width) / LONGER_SIDE) >= 2:
        if height % 2 or width % 2:
            break
        height, width = height // 2, width // 2
        picture = np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
    return picture


def _batch(picture: Rgb) -> FrameBatch:
    y, u, v = cv2.split(cv2.transform(picture, _TO_YUV))
    return FrameBatch(frames=(Frame(planes=(y, u, v), pts=0, duration=1),), index=0)


def _with_effect(picture: Rgb, before: Sequence[Plane], after: Sequence[Plane]) -> Rgb:
    """Returns the planes `after` the effect as RGB, with alpha if there is a fourth plane.

    Pixels that the effect has kept come from `picture`: its way to YUV and back is rounded.
    """
    rgb = cv2.transform(cv2.merge(list(after[:3])), _TO_RGB)
    kept = np.logical_and.reduce([old == new for old, new in zip(before, after, strict=False)])
    cv2.copyTo(picture, kept.astype(np.uint8), rgb)
    if len(after) == 3:
        return np.asarray(rgb, np.uint8)
    rgb[after[3] == 0] = 0
    return np.dstack([rgb, after[3]])
