"""The clips of a set of videos."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from segmentation.clips.decode import decoded
from segmentation.clips.index import FrameIndex, VideoIndex, index_of, pictures_index
from segmentation.clips.output import Window
from segmentation.errors import ConfigError, InputError, counted
from segmentation.system.cores import core_count

log = logging.getLogger(__name__)

_MASKS = ("{stem}.segmented.masks.mkv", "{stem}.masks.mkv")  # as `--save-masks` names them


@dataclass(frozen=True, slots=True)
class Clip:
    """Some frames of one video."""

    path: str
    numbers: tuple[int, ...]  # of the frames, from 0
    pts: tuple[float, ...]  # seconds on the video's clock
    frames: tuple[VideoFrame, ...]  # as they are stored, which may not be upright

    @property
    def first(self) -> int:
        """The number of the first frame."""
        return self.numbers[0]


def check_count(name: str, value: int, least: int) -> None:
    """Raises `ConfigError` for what is no whole number, or less than `least`."""
    if not isinstance(value, int | np.integer):
        raise ConfigError(f"{name} {value!r}: must be a whole number")
    if value < least:
        raise ConfigError(f"{name} {value}: must be at least {least}")


class ClipDataset:
    """Clips of `length` frames from videos: a sequence of `Clip`.

    Frames of a clip are `stride` apart, and clips begin `step` frames after each other; with a `step` of 1 each frame
    begins a clip. What holds no whole clip is left out, see `left_out`. Of a folder's files, that is also so for those
    that are no videos; a file that is named is an error then.
    """

    def __init__(
        self,
        videos: str | Path | Iterable[str | Path],
        *,
        length: int,
        step: int | None = None,
        stride: int = 1,
        masks: str | Path | None = None,
        labels: Callable[[str, int, Mapping[str, Window]], Any] | None = None,
    ) -> None:
        """`videos`: a file, a folder with all that is below it, or several of these.

        `step` is by default the frames that a clip spans. `masks` is the folder of `--save-masks`, for all of the
        videos, or has a folder of gray numbered PNG files for each, named like the video. `labels` is called with a
        clip's path, the number of its first frame, and by the names of the outputs which part of the picture they
        show, in a thread of the loader, when the clip's batch is put together.

        Raises `ConfigError` for numbers that are not whole or below 1, `InputError` where no clip is left.
        """
        self.length, self.stride = length, stride
        self.step = stride * length if step is None else step
        for name, value in (("length", length), ("stride", stride), ("step", self.step)):
            check_count(name, value, 1)
        self.labels = labels
        self.left_out: dict[str, str] = {}  # files, with the reason
        self._masks = None if masks is None else Path(masks)
        self.videos: list[VideoIndex] = []
        self.masks: list[FrameIndex] = []  # of each video, if masks are wanted
        for index, mask in self._indexed(videos):
            self.videos.append(index)
            if mask is not None:
                self.masks.append(mask)
        counts = [self._count(index) for index in self.videos]
        self.video = np.repeat(np.arange(len(counts)), counts)  # (clips,): the number of the clip's video
        self.first = np.concatenate([np.arange(count) * self.step for count in counts] or [np.empty(0, int)])
        if not len(self):
            why = next(iter(self.left_out.values()), "nothing is there")
            raise InputError(f"{videos}: holds no clip of {self.span} frames ({why})")
        self._keyframes = np.concatenate(  # (clips,): the pts of the keyframe before the clip; 0 if frames are counted
            [
                index.keys[np.arange(count) * self.step] if index.timed else np.zeros(count, np.int64)
                for index, count in zip(self.videos, counts, strict=True)
            ]
        )
        for path, reason in self.left_out.items():
            log.warning("%s is left out: %s", path, reason)

    @property
    def span(self) -> int:
        """Frames from the first one of a clip to its last one."""
        return self.stride * (self.length - 1) + 1

    @property
    def fingerprint(self) -> str:
        """A name for these very clips: the files' own names, times and keyframes, and what a clip is."""
        made = hashlib.sha256(repr((self.length, self.step, self.stride)).encode())
        for index in self.videos:
            made.update(os.fsencode(Path(index.path).name) + index.pts.tobytes() + index.keys.tobytes())
        return made.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.video)

    def __getitem__(self, number: int) -> Clip:
        """Decodes a clip. Raises `InputError` if it is damaged."""
        index, numbers = self.videos[self.video[number]], self.numbers(number)
        frames = tuple(frame for _, frame in decoded(index, numbers))
        return Clip(index.path, numbers, tuple(self.seconds(number).tolist()), frames)

    def numbers(self, clip: int) -> tuple[int, ...]:
        """Returns the numbers of a clip's frames in its video."""
        if not -len(self) <= clip < len(self):
            raise IndexError(f"clip {clip}: there are {len(self)}")
        first = int(self.first[clip])
        return tuple(range(first, first + self.span, self.stride))

    def begins(self, clip: int) -> tuple[int, int]:
        """Returns a clip's video, and the pts of the keyframe before the clip; 0 if frames are counted."""
        return int(self.video[clip]), int(self._keyframes[clip])

    def group_ends(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns behind which clips the keyframe before the next clip is another one, and whether the video is."""
        video, keyframe = (np.diff(column, append=-1) != 0 for column in (self.video, self._keyframes))
        video[-1:] = True
        ends = np.flatnonzero(video | keyframe)
        return ends + 1, video[ends]

    def seconds(self, clip: int) -> NDArray[np.float64]:
        """Returns the times (T,) of a clip's frames."""
        index = self.videos[self.video[clip]]
        return np.asarray(index.pts[list(self.numbers(clip))] * float(index.time_base), np.float64)

    def _count(self, index: FrameIndex) -> int:
        return max(0, (len(index) - self.span) // self.step + 1)

    def _indexed(self, videos: str | Path | Iterable[str | Path]) -> list[tuple[VideoIndex, FrameIndex | None]]:
        named = [videos] if isinstance(videos, str | Path) else list(videos)
        tried = [(path, not Path(given).is_dir()) for given in named for path in _files(Path(given))]
        with ThreadPoolExecutor(core_count()) as pool:
            made = list(pool.map(lambda one: self._index(*one), tried))
        return [one for one in made if one is not None]

    def _index(self, path: Path, named: bool) -> tuple[VideoIndex, FrameIndex | None] | None:
        """Returns the index of a video and of its masks; `None` if it is left out."""
        try:
            index = index_of(str(path))
            mask = None if self._masks is None else _mask_of(path, self._masks)
        except InputError as exc:
            if named:
                raise
            self.left_out[str(path)] = str(exc)
            return None
        if not self._count(index):
            self.left_out[str(path)] = f"{counted(len(index), 'frame')}, and a clip spans {self.span}"
            return None
        if mask is not None and len(mask) != len(index):
            raise InputError(f"{mask.path}: has {len(mask)} masks, and {path} has {len(index)} frames")
        return index, mask


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(found for found in path.rglob("*") if found.is_file() and not found.name.startswith("."))
    return [path]


def _mask_of(path: Path, folder: Path) -> FrameIndex:
    names = [folder / name.format(stem=path.stem) for name in _MASKS]
    there = next((name for name in names if name.is_file()), None)
    found = pictures_index(folder / path.stem) if there is None else index_of(str(there))
    if found is None:
        looked = " and ".join(map(str, [*names, folder / path.stem / "*.png"]))
        raise InputError(f"{path}: has no masks; looked for {looked}")
    return found
