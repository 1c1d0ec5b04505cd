"""Which frames a video has, and where their decoding begins: found once, from its packets, and kept in a cache."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av.error
import numpy as np
import platformdirs
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.errors import InputError, one_line
from segmentation.frames import VideoInfo
from segmentation.media.input import open_input, probe
from segmentation.stages.decode.packet_index import by_packets

log = logging.getLogger(__name__)

_VERSION = 1  # of the files in the cache


@dataclass(frozen=True, slots=True)
class VideoIndex:
    """The frames of one video, in the order in which they are shown."""

    path: str
    stream: int  # its number in the container
    time_base: Fraction  # seconds a tick
    rotation: int  # degrees counter-clockwise by which stored frames are turned to stand upright: 0, 90, 180, 270
    size: tuple[int, int]  # pixels of the upright picture: height, width
    pts: NDArray[np.int64]  # (frames,), ticks, rising; frame numbers where the frames have no such times
    # (frames,): the dts of the keyframe at which decoding begins. Empty where frames are counted from the first one.
    keys: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pts)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """(frames,): the times of the frames."""
        return np.asarray(self.pts * float(self.time_base), np.float64)


def index_of(path: str) -> VideoIndex:
    """Returns the index of a video, from the cache if the file is as it was.

    Raises `InputError` if the file can't be read, is encrypted or interlaced.
    """
    kept = _kept(path)
    if kept is not None and kept.is_file():
        try:
            return _load(path, kept)
        except (OSError, ValueError, KeyError) as exc:
            log.info("%s: its index is made again: %s", path, exc)
    made = _made(path)
    if kept is not None:
        _save(made, kept)
    return made


def _made(path: str) -> VideoIndex:
    info = probe(path)
    if info.interlaced:
        raise InputError(f"{path}: is interlaced, and its frames would be two pictures each; deinterlace it first")
    frames = by_packets(info)
    pts, keys = _by_decoding(info) if frames is None else frames
    if not len(pts):
        raise InputError(f"{path}: holds no frame that can be decoded")
    size = (info.width, info.height) if info.rotation % 180 else (info.height, info.width)
    return VideoIndex(path, info.stream_index, info.time_base, info.rotation, size, pts, keys)


def _by_decoding(info: VideoInfo) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the times of all frames that come out, which are to be counted from the first one."""
    with open_input(info.path, info.access) as container:
        stream = container.streams[info.stream_index]
        assert isinstance(stream, VideoStream)
        try:
            found = [frame.pts for frame in container.decode(stream)]
        except av.error.FFmpegError as exc:
            raise InputError(f"{info.path}: can't be decoded to its end ({one_line(exc)})") from exc
    known = np.array([-1 if pts is None else pts for pts in found], np.int64)
    timed = None not in found and not (np.diff(known) <= 0).any()
    return known if timed else np.arange(len(found), dtype=np.int64), np.empty(0, np.int64)


def _kept(path: str) -> Path | None:
    """The cache's file for a video as it is now; `None` if the video is no file."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    about = f"{Path(path).resolve()}\n{state.st_size}\n{state.st_mtime_ns}\n{_VERSION}"
    folder = platformdirs.user_cache_path("video-segmentation") / "clips"
    return folder / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.npz"


def _load(path: str, kept: Path) -> VideoIndex:
    with np.load(kept) as content:
        stream, numerator, denominator, rotation, height, width = map(int, content["about"])
        base = Fraction(numerator, denominator)
        return VideoIndex(path, stream, base, rotation, (height, width), content["pts"], content["keys"])


def _save(index: VideoIndex, kept: Path) -> None:
    """Writes the index, whole or not at all. Without room for it nothing is lost but time."""
    base = index.time_base
    about = [index.stream, base.numerator, base.denominator, index.rotation, *index.size]
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".npz", delete=False) as file:
            np.savez(file, about=np.array(about, np.int64), pts=index.pts, keys=index.keys)
        os.replace(file.name, kept)
    except OSError as exc:
        log.info("%s: its index is not kept: %s", index.path, exc)
