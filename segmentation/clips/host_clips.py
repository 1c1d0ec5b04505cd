"""Makes clips on the CPU by FFmpeg, and chooses where they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from segmentation.clips.clip_builder import REMEDY, ClipBuilder, ClipInProgress, Sample
from segmentation.clips.decode import decoded
from segmentation.clips.index import VideoIndex
from segmentation.clips.output import Augmentation, Chain, Output
from segmentation.errors import LacksEngine
from segmentation.frames import Array
from segmentation.gpu.discovery import device_index, require_torch, require_video_libraries
from segmentation.options.config import Config
from segmentation.stages.decode.nvdec_support import engines_for
from segmentation.system.cores import core_count
from segmentation.system.imports import loaded


class HostClipBuilder(ClipBuilder["_HostClip"]):
    """Makes NumPy arrays: FFmpeg decodes on the CPU, and its filters make the outputs."""

    def __init__(self, outputs: Mapping[str, Output]) -> None:
        self._outputs = outputs
        self.workers = core_count()

    def begin(self, index: VideoIndex, draw: Augmentation, length: int) -> _HostClip:
        return _HostClip(self._outputs, index, draw)

    def make(self, index: VideoIndex, wanting: Mapping[int, Sequence[_HostClip]]) -> None:
        for number, frame in decoded(index, sorted(wanting)):
            for clip in wanting[number]:
                clip.add(frame)

    def masks(self, masks: NDArray[np.uint8]) -> Array:
        return masks

    def batch(self, clips: Sequence[Array], output: Output | None) -> Array:
        arrays = [np.asarray(clip) for clip in clips]
        return np.stack(arrays) if output is None else output.batch(arrays)

    def handed_over(self, joined: Array) -> Array:
        return joined


class _HostClip(ClipInProgress):
    def __init__(self, outputs: Mapping[str, Output], index: VideoIndex, draw: Augmentation) -> None:
        self._outputs = outputs
        self._chains = {name: Chain(output, draw, index.size, index.orientation) for name, output in outputs.items()}
        self._frames: dict[str, list[NDArray[np.uint8]]] = {name: [] for name in outputs}

    def add(self, frame: VideoFrame) -> None:
        for name, chain in self._chains.items():
            self._frames[name].append(chain(frame))

    def sample(self) -> Sample:
        return {name: output.numbers(self._frames[name]) for name, output in self._outputs.items()}


def clip_builder_on(device: str, videos: Sequence[VideoIndex], outputs: Mapping[str, Output]) -> ClipBuilder[Any]:
    """Returns the builder of clips on "cpu", "cuda" or "cuda:N".

    Raises `ConfigError` for other devices, `BackendError` without the GPU or a library of the extra `gpu`, and its
    `LacksEngine` for a video that the GPU does not decode.
    """
    config = Config(device=device)
    if device == "cpu":
        return HostClipBuilder(outputs)
    number = device_index(config)
    require_video_libraries()
    engines = min(_engines(index, number) for index in videos)
    on_gpu: Callable[..., ClipBuilder[Any]] = loaded("segmentation.clips.cuda", "CudaClipBuilder")
    require_torch()
    return on_gpu(outputs, number, engines)


def _engines(index: VideoIndex, number: int) -> int:
    """Returns how many of GPU `number`'s engines decode a video. Raises `LacksEngine` if none does so exactly."""
    codec, pix_fmt, inside, *_ = index.coding
    try:
        engines = engines_for(number, codec, pix_fmt, index.stored)
        if not index.timed:
            raise LacksEngine("its packets don't tell for certain which frames they hold")
        if inside:
            raise LacksEngine("NVDEC would show the coded picture from its corner on, and this is within a larger one")
    except LacksEngine as exc:
        raise LacksEngine(f"{index.path}: {exc}; {REMEDY}, or transcode it (segmentation-clips transcode)") from exc
    return engines
