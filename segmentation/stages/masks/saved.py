"""Saves the masks of a run as a video, and reads them in place of the network: `--save-masks` and `--masks`.

The video is gray 8-bit FFV1 in Matroska, with one picture a frame, upright, at the size of the network's masks. Samples
are 255 times the mask, smoothed over time where the run smooths, not refined. Each picture has its frame's pts on the
input's clock, in Matroska's milliseconds. The tag `SEGMENTATION_MASKS` describes the masks in JSON, see `About`.
"""

from __future__ import annotations  # PyAV's types are generic for type checkers only

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar

import av
import av.error
import numpy as np
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.errors import ConfigError, InputError, OutputError, one_line
from segmentation.frames import FULL, FrameBatch, Memory, VideoInfo
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.media.containers import open_for_writing
from segmentation.media.demux import demuxed
from segmentation.media.opening.open_input import open_input
from segmentation.options.config import Config
from segmentation.stages.masks.quantize import VALUES
from segmentation.system.atomic_file import PendingFile
from segmentation.system.cores import core_count

if TYPE_CHECKING:
    from av.stream import Stream

TAG = "SEGMENTATION_MASKS"
_TICK = Fraction(1, 1000)  # seconds a tick of the clock of Matroska, as FFmpeg writes it
_OPTIONS = {"level": "3", "slicecrc": "1"}  # with checksums, see `intact`
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_MOST_WORKERS = 16  # threads, each of which holds a frame in memory

Mask = NDArray[np.uint8]  # (h, w), 0 to 255


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The video and the network that saved masks come from."""

    input: str  # the file's name, without its folder
    width: int  # of the picture, as stored
    height: int
    rotation: int  # degrees, see `VideoInfo`
    mirrored: bool = False
    shift: str  # seconds on the input's clock, as a fraction, at which the clock of the saved masks begins
    model: str
    classes: tuple[str, ...]  # that the masks keep


class MaskWriter(Sink):
    """Writes masks to a file. A context manager: leaving it without `finish` removes the file.

    Raises `OutputError` where the file cannot be written.
    """

    def __init__(
        self, target: str | Path, info: VideoInfo, model: str, classes: tuple[str, ...], *, overwrite: bool
    ) -> None:
        """`model` is the network's name, and `classes` are those that the masks keep."""
        self.target = Path(target)
        if self.target.suffix.lower() != ".mkv":
            raise ConfigError(f"--save-masks {self.target}: masks are saved in Matroska; name a file that ends in .mkv")
        self._file = PendingFile(self.target, overwrite=overwrite)
        self._file.check("--save-masks")
        self._info, self._model, self._classes = info, model, classes
        self._shift = Fraction(0)
        self._stream: VideoStream | None = None
        self._encoder: MaskEncoder | None = None
        self._finished = False
        try:
            self._file.create()
            # By default FFmpeg moves a video that begins after 0 to 0, and writes random identifiers.
            options = {"avoid_negative_ts": "disabled", "fflags": "+bitexact"}
            self._container = open_for_writing(self._file.address, self.target.name, options)
        except BaseException as exc:  # an interrupt too: no `__exit__` follows a failed constructor
            self._file.discard()
            if isinstance(exc, (av.error.FFmpegError, OSError)):
                raise self._error(exc) from exc
            raise

    def __enter__(self) -> MaskWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._finished:
            self._file.discard()
            with suppress(av.error.FFmpegError, OSError):  # closing writes the rest of a file that is removed already
                self._container.close()

    def write(self, batch: FinishedBatch) -> None:
        """Writes the masks of one batch, `batch.levels`."""
        frames, levels = batch.frames.frames, batch.levels
        if self._encoder is None:
            self._encoder = MaskEncoder(levels.shape[2], levels.shape[1], self._info)
        try:
            coded = [self._encoder.packet(mask) for mask in levels]
        except av.error.FFmpegError as exc:
            raise self._error(exc) from exc
        self._write([frame.pts for frame in frames], coded, (levels.shape[2], levels.shape[1]))

    def write_coded(self, pts: Sequence[int], coded: Sequence[bytes], size: tuple[int, int]) -> None:
        """Writes masks of frames with these pts, of this width and height, as `MaskEncoder` has made them."""
        self._write(pts, [Packet(data) for data in coded], size)

    def _write(self, pts: Sequence[int], coded: Sequence[Packet[Stream]], size: tuple[int, int]) -> None:
        if self._stream is None:
            self._stream = self._add_stream(*size, pts[0])
        for time, packet in zip(pts, coded, strict=True):
            packet.pts = packet.dts = ticks(time * self._info.time_base - self._shift)
            packet.time_base, packet.stream, packet.is_keyframe = _TICK, self._stream, True
            try:
                self._container.mux(packet)
            except (av.error.FFmpegError, OSError) as exc:
                raise self._error(exc) from exc

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Writes the end of the file and moves the file to its place."""
        try:
            self._container.close()
            self._file.commit(fragment=fragment)
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc
        self._finished = True

    def _add_stream(self, width: int, height: int, pts: int) -> VideoStream:
        """Returns a new stream of pictures of this size whose first has this pts, described in the header."""
        info = self._info
        self._shift = min(Fraction(0), pts * info.time_base)  # Matroska has no times before 0
        about = About(
            input=Path(info.path).name,
            width=info.width,
            height=info.height,
            rotation=info.rotation,
            mirrored=info.mirrored,
            shift=str(self._shift),
            model=Path(self._model).name,
            classes=self._classes,
        )
        self._container.metadata[TAG] = json.dumps(asdict(about))
        stream = self._container.add_stream("ffv1", rate=info.rate, options=_OPTIONS)
        assert isinstance(stream, VideoStream)
        _describe(stream.codec_context, width, height)
        return stream

    def _error(self, exc: BaseException) -> OutputError:
        return OutputError(f"{self.target}: cannot be written ({one_line(exc)})")


class MaskEncoder:
    """Calling it with a mask returns the packet of its picture, which can be decoded alone."""

    def __init__(self, width: int, height: int, info: VideoInfo) -> None:
        context = CodecContext.create("ffv1", "w")
        assert isinstance(context, VideoCodecContext)
        context.framerate, context.options = info.rate, dict(_OPTIONS)
        _describe(context, width, height)
        self._context = context
        samples = np.empty((height, width), np.uint8)
        self._samples = samples.data.cast("B")
        self._picture = VideoFrame.from_numpy_buffer(samples, "gray")  # of all masks, one after the other
        self._number = 0

    def __call__(self, mask: Mask) -> bytes:
        """Encodes a mask (h, w). Raises FFmpeg's errors."""
        return bytes(self.packet(mask))

    def packet(self, mask: Mask) -> Packet[Stream]:
        """See `__call__`. The packet has no times of the video."""
        # With many live sources each time that a library gives up the GIL counts. A view copies without, as NumPy does
        # not, and a picture that stays needs no memory. FFV1 on one thread holds back nothing: to ask for more packets
        # than one would give up the GIL three times.
        self._samples[:] = np.ascontiguousarray(mask).data.cast("B")
        self._picture.pts, self._picture.time_base = self._number, _TICK
        self._number += 1
        return next(self._context.encode_lazy(self._picture))


def _describe(context: VideoCodecContext, width: int, height: int) -> None:
    """Sets what all encoders of masks have in common: each picture is decoded alone, and is small."""
    context.width, context.height, context.pix_fmt = width, height, "gray"
    context.time_base, context.color_range = _TICK, FULL
    context.gop_size, context.thread_count = 1, 1


class MaskReader:
    """Calling it with successive batches returns their saved masks (N, h, w) float32, in place of a network.

    Raises `InputError` where the masks belong to another video, or to another stretch of this one.
    """

    memory: ClassVar[Memory] = "host"

    def __init__(self, info: VideoInfo, config: Config) -> None:
        self._path = str(config.masks)
        self._info = info
        self.about = about_masks(self._path)
        for name in ("width", "height", "rotation", "mirrored"):
            have, wanted = getattr(self.about, name), getattr(info, name)
            if have != wanted:
                of = f"of {self.about.input}, whose {name} is {have}"
                raise InputError(f"{self._path}: holds masks {of}; that of {info.path} is {wanted}")
        self._shift = Fraction(self.about.shift)
        self._masks: Iterator[tuple[int, Mask]] | None = None
        self.workers = min(core_count(), _MOST_WORKERS)  # for postprocess on the host

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        """Returns one line for the plan: where the masks come from. Raises `InputError` for another kind of file."""
        about = about_masks(str(config.masks))
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
        """Raises `InputError` if masks are left. Called after the video's last frame."""
        has, _ = next(self._masks or iter(()), (None, None))
        if has is not None:
            raise self._mismatch(f"{self._when(has)} where the video is over")

    def _read(self, first: int) -> Iterator[tuple[int, Mask]]:
        """Yields the time in ticks and the mask of each picture from time `first` on."""
        with open_input(self._path) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            try:
                for packet in demuxed(container, stream):
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
    """Returns whether the checksums of all slices in a packet of FFV1 are right. FFmpeg conceals damage silently.

    The CRC of RFC 9043 over a slice with its checksum is 0, and so is the CRC over all slices in a row. That CRC takes
    the highest bit of each byte first. The CRC of zlib takes the lowest, and complements the remainder at both ends.
    """
    return zlib.crc32(packet.translate(_REVERSED), 0xFFFFFFFF) == 0xFFFFFFFF


def ticks(seconds: Fraction) -> int:
    """Returns seconds in Matroska's ticks, rounded to the nearest as FFmpeg rounds: halves away from 0."""
    whole, parts = _TICK.denominator * seconds.numerator, seconds.denominator
    nearest = (2 * abs(whole) + parts) // (2 * parts)
    return nearest if whole >= 0 else -nearest


def about_masks(path: str) -> About:
    """Returns the description in a file of saved masks. Raises `InputError` for another kind of file."""
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
