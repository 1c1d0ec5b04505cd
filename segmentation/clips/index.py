"""Which frames a video has, and where their decoding begins: found once, from its packets, and kept in a cache."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import av
import av.error
import numpy as np
import platformdirs
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.errors import InputError, one_line
from segmentation.frames import Color, VideoInfo
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.frames.picture_names import numbers_of
from segmentation.media.opening.open_input import decoder_options, open_input
from segmentation.media.opening.probe import probe
from segmentation.media.source_packets import decoded
from segmentation.stages.decode.packet_index import PacketTimes, by_packets
from segmentation.system.atomic_file import write_atomically
from segmentation.system.cache import make_folder

log = logging.getLogger(__name__)

_NUMBERED = re.compile(r"(.*?)(\d+)\.png")
_REORDERED = 16  # pictures that a decoder holds back at most, to show others first
_VERSION = 5  # of the files in the cache


class Coding(NamedTuple):
    """How the pictures of a video are stored."""

    codec: str  # FFmpeg's name of the decoder
    pix_fmt: str  # FFmpeg's name of the decoder's format
    inside: bool  # whether the shown picture begins to the right of the coded one's corner, or below it
    color: Color
    extradata: bytes = b""  # the container's own, such as parameter sets


@dataclass(frozen=True, slots=True)
class FrameIndex:
    """The frames of one video, or of numbered pictures, in the order in which they are shown."""

    path: str
    stream: int  # its number in the container
    time_base: Fraction  # seconds a tick
    orientation: Orientation  # of the stored pictures
    size: tuple[int, int]  # pixels of the upright picture: height, width; (0, 0) of pictures in files
    pts: NDArray[np.int64]  # (frames,), ticks, rising; frame numbers where the frames have no such times
    # (frames,): the pts of the keyframe at which decoding begins. Empty where frames are counted from the first one.
    keys: NDArray[np.int64]
    seeks: NDArray[np.int64]  # like `keys`: the time by which the container finds this keyframe
    spare: NDArray[np.bool_]  # like `keys`: whether no other picture refers to this one

    def __len__(self) -> int:
        return len(self.pts)

    @property
    def timed(self) -> bool:
        """Whether the packets' times show which frames they hold."""
        return len(self.keys) > 0

    @property
    def stored(self) -> tuple[int, int]:
        """Width and height of the pictures as they are stored, which may not be upright."""
        return self.orientation.size(*self.size[::-1])

    def spares(self, numbers: Sequence[int]) -> frozenset[int]:
        """Returns the pts of the pictures on the way to these rising `numbers` that a decoder can do without."""
        begin, end = np.searchsorted(self.pts, (self.keys[numbers[0]], self.pts[numbers[-1]]))
        near = slice(max(0, begin - _REORDERED), end + 1 + _REORDERED)
        return frozenset(self.pts[near][self.spare[near]].tolist())

    @property
    def seconds(self) -> NDArray[np.float64]:
        """(frames,): the times of the frames."""
        return np.asarray(self.pts * float(self.time_base), np.float64)


@dataclass(frozen=True, slots=True)
class VideoIndex(FrameIndex):
    """The frames of one video, and how they are stored."""

    coding: Coding


def index_of(path: str) -> VideoIndex:
    """Returns the index of a video, from the cache if the file is as it was.

    Raises `InputError` if the file can't be read, is encrypted or interlaced.
    """
    kept = _kept(path)
    if kept is not None and kept.is_file():
        try:
            return _load(path, kept)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as exc:
            log.info("%s: its index is made again: %s", path, exc)
    made = _made(path)
    if kept is not None:
        _save(made, kept)
    return made


def pictures_index(folder: Path) -> FrameIndex | None:
    """Returns the index of a folder with numbered PNG files, one for each frame; `None` if there are none.

    Raises `InputError` if their names differ in more than the number, or a number is missing.
    """
    names = sorted(path.name for path in folder.glob("*.png"))
    parts = _NUMBERED.fullmatch(names[0]) if names else None
    if parts is None:
        return None
    pattern = folder / f"{parts[1].replace('%', '%%')}%0{len(parts[2])}d.png"
    numbers = numbers_of(pattern)
    if len(numbers) < len(names) or numbers[-1] - numbers[0] >= len(numbers):
        raise InputError(f"{folder}: its {len(names)} PNG files are not numbered one after the other like {names[0]}")
    count = np.arange(len(names), dtype=np.int64)
    return FrameIndex(
        str(pattern), 0, Fraction(1, 25), UPRIGHT, (0, 0), count, count, count, np.zeros(len(names), np.bool_)
    )


def _made(path: str) -> VideoIndex:
    info = probe(path)
    if info.interlaced:
        raise interlaced(path)
    size = info.upright_size[::-1]
    times = by_packets(info) or _by_decoding(info)
    if not len(times.pts):
        raise InputError(f"{path}: holds no frame that can be decoded")
    coding = Coding(info.codec, info.pix_fmt, info.inside, info.color, info.extradata or b"")
    return VideoIndex(path, info.stream_index, info.time_base, info.orientation, size, **times._asdict(), coding=coding)


def interlaced(path: str) -> InputError:
    """Returns the error of a video with fields."""
    return InputError(f"{path}: is interlaced, and its frames would be two pictures each; deinterlace it first")


def _by_decoding(info: VideoInfo) -> PacketTimes:
    """Returns the times of all frames that come out, which are to be counted from the first one."""
    with open_input(info.path, info.access) as container:
        stream = container.streams[info.stream_index]
        assert isinstance(stream, VideoStream)
        stream.codec_context.options = decoder_options(info.access)
        found: list[int | None] = []
        try:
            for frame in decoded(container, stream):
                if frame.interlaced_frame:
                    raise interlaced(info.path)
                found.append(frame.pts)
        except av.error.FFmpegError as exc:
            raise InputError(f"{info.path}: can't be decoded to its end ({one_line(exc)})") from exc
    known = np.array([-1 if pts is None else pts for pts in found], np.int64)
    timed = None not in found and not (np.diff(known) <= 0).any()
    none = np.empty(0, np.int64)
    return PacketTimes(known if timed else np.arange(len(found), dtype=np.int64), none, none, none.astype(np.bool_))


def _kept(path: str) -> Path | None:
    """The cache's file for a video as it is now; `None` if the video is no file."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    about = f"\n{state.st_size}\n{state.st_mtime_ns}\n{_VERSION}\n{av.ffmpeg_version_info}"
    folder = platformdirs.user_cache_path("video-segmentation") / "clips"
    return folder / f"{hashlib.sha256(os.fsencode(Path(path).resolve()) + about.encode()).hexdigest()[:32]}.npz"


def _load(path: str, kept: Path) -> VideoIndex:
    with np.load(kept) as content:
        stream, numerator, denominator, turns, mirrored, height, width, inside, *color = map(int, content["about"])
        base = Fraction(numerator, denominator)
        times = PacketTimes(*(content[name] for name in PacketTimes._fields))
        codec, pix_fmt = map(str, content["names"])
        coding = Coding(codec, pix_fmt, bool(inside), Color(*color), content["extradata"].tobytes())
        orientation = Orientation(turns, bool(mirrored))
        return VideoIndex(path, stream, base, orientation, (height, width), **times._asdict(), coding=coding)


def _save(index: VideoIndex, kept: Path) -> None:
    """Writes the index, whole or not at all. Without room for it nothing is lost but time."""
    base, (codec, pix_fmt, inside, color, extradata) = index.time_base, index.coding
    shown = astuple(index.orientation)
    about = [index.stream, base.numerator, base.denominator, *shown, *index.size, inside, *astuple(color)]
    content = io.BytesIO()
    times = {name: getattr(index, name) for name in PacketTimes._fields}
    coded = np.frombuffer(extradata, np.uint8)
    np.savez(content, about=np.array(about, np.int64), names=np.array([codec, pix_fmt]), extradata=coded, **times)
    try:
        make_folder(kept.parent)
        write_atomically(kept, content.getvalue())
    except OSError as exc:
        log.info("%s: its index is not kept: %s", index.path, exc)
