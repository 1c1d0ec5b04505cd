"""Makes a loader's clips: decoded, and turned into the arrays of its outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.index import VideoIndex
from segmentation.clips.output import Augmentation, Output
from segmentation.frames import Array

Sample = dict[str, Array]  # name of an output to (T, C, H, W); of the masks (T, H, W)

REMEDY = 'use device="cpu"'  # what helps where NVDEC can't


class ClipInProgress(ABC):
    """The arrays of one clip, made frame by frame."""

    @abstractmethod
    def sample(self) -> Sample:
        """Returns the clip, when all of its frames are made."""


ClipT = TypeVar("ClipT", bound=ClipInProgress)


class ClipBuilder(ABC, Generic[ClipT]):
    """Makes clips in one kind of memory. Any thread may call, but for `handed_over`, within `working`."""

    workers: int  # threads that decode at once, unless the loader says so

    def working(self) -> AbstractContextManager[object]:
        """Returns what is around the work of a thread that makes clips."""
        return nullcontext()

    @abstractmethod
    def begin(self, index: VideoIndex, draw: Augmentation, length: int) -> ClipT:
        """Begins a clip of `length` frames."""

    @abstractmethod
    def make(self, index: VideoIndex, wanting: Mapping[int, Sequence[ClipT]]) -> None:
        """Decodes the pictures of these numbers, and makes each into the next frame of its clips.

        Raises `InputError` if one of them does not come out, or is damaged.
        """

    @abstractmethod
    def masks(self, masks: NDArray[np.uint8]) -> Array:
        """Returns a clip's masks (T, H, W), which come from the host, where clips are."""

    @abstractmethod
    def batch(self, clips: Sequence[Array], output: Output | None) -> Any:
        """Returns clips (T, C, H, W) of `ClipInProgress.sample` as one array of the output's layout, for `handed_over`.

        Without an output they are masks, and become (N, T, H, W).
        """

    @abstractmethod
    def handed_over(self, joined: Any) -> Array:
        """Returns the array of `batch`, for use by the calling thread."""
