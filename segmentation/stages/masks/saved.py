"""A run's masks as a video of their own: `--save-masks` writes it, `--masks` renders from it without the network.

Grey 8-bit FFV1 in Matroska, a picture a frame, upright, at the network's size: 255 times the mask as the network found
it, smooth_masks in time if that was asked for, not yet refined. Each picture has its frame's pts on the input's clock, in
Matroska's milliseconds. The tag `SEGMENTATION_MASKS` says, as JSON, what it was made of.
"""

from __future__ import annotations  # PyAV's types take their parameters only for type checkers

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import av.error
import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.atomic_file import PendingFile
from segmentation.config import Config
from segmentation.errors import ConfigError, InputError, OutputError, one_line
from segmentation.frames import FULL, FrameBatch, VideoInfo
from segmentation.media.input import open_input
from segmentation.models.model import Model
from segmentation.sinks import FinishedBatch, Sink
from segmentation.stages.masks.quantize import VALUES

TAG = "SEGMENTATION_MASKS"
_TICK = Fraction(1, 1000)  # seconds: Matroska's, as FFmpeg writes it
_OPTIONS = {"level": "3", "slicecrc": "1"}  # with checksums, see `intact`
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_MOST_WORKERS = 16  # each holds a frame in memory

Levels = NDArray[np.uint8]  # (N, h, w)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a track was made of."""

    input: str  # the file's name, without its folder
    width: int  # of the picture, as stored
    height: int
    rotation: int  # degrees, see `VideoInfo`
    shift: str  # seconds on the input's clock, a fraction, at which the track's clock begins
    model: str
    classes: tuple[str, ...]  # that are kept


class MaskWriter(Sink):
    """Writes one track. Use as a context manager: leaving it without `finish` removes what was written.

    Raises `OutputError` for whatever is wrong with the file.
    """

    def __init__(self, info: VideoInfo, model: Model, config: Config) -> None:
        assert config.save_masks is not None
        self.target = Path(config.save_masks)
        if self.target.suffix.lower() != ".mkv":
            raise ConfigError(f"--save-masks {self.target}: masks are saved in Matroska; name a file that ends in .mkv")
        self._file = PendingFile(self.target, overwrite=config.overwrite)
        self._file.check("--save-masks")
        self._info, self._model = info, model
        self._shift = Fraction(0)
        self._stream: VideoStream | None = None
        self._finished = False
        try:
            self._file.path.touch(exist_ok=False)
            # Else a track that begins later than 0 would be moved there.
            options = {"avoid_negative_ts": "disabled"}
            self._container = av.open(str(self._file.path), "w", container_options=options)
        except BaseException as exc:  # an interrupt too: `__exit__` is not called without an object
            self._file.discard()
            if isinstance(exc, (av.error.FFmpegError, OSError)):
                raise self._error(exc) from exc
            raise

    def __enter__(self) -> MaskWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._finished:
            self._file.discard()
            with suppress(av.error.FFmpegError, OSError):  # what was still to be written is not wanted any more
                self._container.close()

    def write(self, batch: FinishedBatch) -> None:
        """Writes the masks of one batch."""
        frames, levels = batch.frames.frames, batch.levels
        assert levels is not None
        if self._stream is None:
            self._stream = self._begun(levels.shape[2], levels.shape[1], frames[0].pts)
        for frame, mask in zip(frames, levels, strict=True):
            picture = VideoFrame.from_ndarray(np.ascontiguousarray(mask), "gray")
            picture.pts, picture.time_base = ticks(frame.pts * self._info.time_base - self._shift), _TICK
            self._encode(picture)

    def finish(self, end: Fraction | None) -> None:
        """Puts the file in its place."""
        self._encode(None)
        try:
            self._container.close()
            self._file.commit()
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc
        self._finished = True

    def _begun(self, width: int, height: int, pts: int) -> VideoStream:
        """The stream; the header says what the masks are of."""
        info, model = self._info, self._model
        self._shift = min(Fraction(0), pts * info.time_base)  # Matroska counts from 0
        about = About(
            input=Path(info.path).name,
            width=info.width,
            height=info.height,
            rotation=info.rotation,
            shift=str(self._shift),
            model=Path(model.name).name,
            classes=model.kept,
        )
        self._container.metadata[TAG] = json.dumps(asdict(about))
        stream = self._container.add_stream("ffv1", rate=info.rate, options=_OPTIONS)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "gray"
        context = stream.codec_context
        context.time_base, context.color_range = _TICK, FULL
        context.gop_size, context.thread_count = 1, 1  # each can be read by itself; they are small
        return stream

    def _encode(self, picture: VideoFrame | None) -> None:
        assert self._stream is not None
        try:
            self._container.mux(self._stream.encode(picture))
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc

    def _error(self, exc: BaseException) -> OutputError:
        return OutputError(f"{self.target}: cannot be written ({one_line(exc)})")


class MaskReader:
    """In place of preprocess and inference: called with successive batches, it returns the masks (N, h, w) float32 that
    were saved of their frames.

    Raises `InputError` where the track is not one of this video, or of another stretch of it.
    """

    memory = "host"

    def __init__(self, info: VideoInfo, config: Config) -> None:
        self._path = str(config.masks)
        self._info = info
        self.about = _about(self._path)
        for name in ("width", "height", "rotation"):
            have, wanted = getattr(self.about, name), getattr(info, name)
            if have != wanted:
                of = f"of {self.about.input}, whose {name} is {have}"
                raise InputError(f"{self._path}: holds masks {of}; that of {info.path} is {wanted}")
        self._shift = Fraction(self.about.shift)
        self._masks: Iterator[tuple[int, NDArray[np.uint8]]] | None = None
        self.workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)  # for postprocess on the host

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        about = _about(str(config.masks))
        return f"{config.masks}: what {about.model} found of {', '.join(about.classes)} in {about.input}"

    def __call__(self, batch: FrameBatch) -> NDArray[np.float32]:
        wanted = [ticks(frame.pts * self._info.time_base - self._shift) for frame in batch.frames]
        if self._masks is None:
            self._masks = self._read(wanted[0])
        found = []
        for at in wanted:
            has, mask = next(self._masks, (None, None))
            if has != at or mask is None:
                raise self._mismatch(f"{self._when(has)} where the video's next frame is at {self._seconds(at)}")
            found.append(mask)
        return VALUES[np.stack(found)]

    def check_end(self) -> None:
        """After the video's last frame: there must be no mask left."""
        has, _ = next(self._masks or iter(()), (None, None))
        if has is not None:
            raise self._mismatch(f"{self._when(has)} where the video is over")

    def _read(self, first: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """(ticks, mask) of all that is not before `first`."""
        with open_input(self._path) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            try:
                for packet in container.demux(stream):
                    if packet.pts is None or packet.pts < first:
                        continue
                    if not intact(bytes(packet)):
                        raise InputError(f"{self._path}: is damaged: its mask at {self._seconds(packet.pts)} is broken")
                    for frame in packet.decode():
                        yield packet.pts, np.asarray(frame.to_ndarray(), np.uint8)
            except av.error.FFmpegError as exc:
                raise InputError(f"{self._path}: is damaged or cut off ({one_line(exc)})") from exc

    def _mismatch(self, text: str) -> InputError:
        of = f"it was saved from {self.about.input}"
        return InputError(f"{self._path}: {text}; {of}, perhaps from another stretch, and may be cut off")

    def _when(self, has: int | None) -> str:
        return "ends" if has is None else f"has its next mask at {self._seconds(has)}"

    def _seconds(self, at: int) -> str:
        return f"{float(at * _TICK + self._shift):.3f} s"


def intact(packet: bytes) -> bool:
    """Whether the checksums of all slices in a packet of FFV1 hold; FFmpeg conceals what is damaged and says nothing.

    With each slice's checksum, RFC 9043's CRC has a remainder of 0, and so has that of all of them in a row. It takes
    the highest bit of each byte first, zlib's the lowest, and complements the remainder before and after.
    """
    return zlib.crc32(packet.translate(_REVERSED), 0xFFFFFFFF) == 0xFFFFFFFF


def ticks(seconds: Fraction) -> int:
    """Seconds in Matroska's ticks, to the nearest; halves away from 0, as FFmpeg rounds."""
    nearest = int((abs(seconds) / _TICK + Fraction(1, 2)) // 1)
    return nearest if seconds >= 0 else -nearest


def _about(path: str) -> About:
    """What the track says of itself. Raises `InputError` if it is none."""
    with open_input(path) as container:
        try:
            about = About(**json.loads(container.metadata[TAG]))
            Fraction(about.shift)
            stream = container.streams.video[0]
        except (LookupError, ValueError, TypeError, ZeroDivisionError) as exc:
            raise InputError(f"{path}: holds no masks; name a file that --save-masks has written") from exc
        if (stream.codec_context.name, stream.pix_fmt, stream.time_base) != ("ffv1", "gray", _TICK):
            raise InputError(f"{path}: its masks are not as --save-masks writes them")
        return about
