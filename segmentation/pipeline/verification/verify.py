"""Checks an output against its input: `--verify`.

During the run, `OutputVerifier` notes when each frame is to be shown and, of some frames, which pixels are kept.
Afterwards it decodes the output. That must hold exactly these frames at these times, in the input's size, rotation and
colors, with its sound. FFmpeg decodes the input a second time, whatever decoded it first: it must find the same frames
at the same times, and no damage that the run did not report. Frames are known again by thumbnails. The kept pixels must
be the same, but for the codec's loss.
"""

import logging
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, zip_longest
from pathlib import Path

import av.error
import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.errors import InputError, OutputError, one_line
from segmentation.frames import FORMATS, LIMITED, Color, Frame, Planes, VideoInfo
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.frames.source import Source
from segmentation.media.containers import EXACT
from segmentation.media.muxer import Muxer
from segmentation.media.opening.probe import probe
from segmentation.options.config import Config
from segmentation.options.keywords import Quality
from segmentation.pipeline.time_report import late_words, missing_streams
from segmentation.pipeline.verification.thumbnails import thumbnail
from segmentation.pipeline.verification.verify_copies import faults
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.postprocess.edge import Edge

APART = 2  # levels of 255 by which a cell of a frame's thumbnail may differ between two decoders
MOST_MAPS = 32  # frames whose kept pixels are held, 8 KiB each at 256x256
# Least PSNR of kept pixels in dB, of a frame's worst plane. A picture that is 5 of 255 levels too bright has 34.2. With
# a number of the user's choice, the floor only finds pictures that are wrong altogether.
FLOORS: dict[Quality | None, float] = {None: 30.0, "high": 35.0}
CHOSEN_FLOOR = 20.0
ROUNDED = {"mpeg1video", "mpeg2video", "mpeg4"}  # they leave rounding open: another decoder's samples may differ
_LATEST = Fraction(1)  # second, by which an output as a whole may be late in containers that don't keep times
LOSSLESS = {("h264", 0), ("hevc", 0), ("ffv1", 0), ("ffv1", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Figures of a check that found no fault."""

    frames: int
    compared: int  # frames whose kept pixels were compared
    psnr_least: float | None  # dB, of the worst plane of the worst frame; `None` if nothing differs
    psnr_mean: float | None


Kept = tuple[tuple[int, int], bytes]  # the mask's (h, w), and a bit for each of its pixels


class KeptPixels:
    """Calling it with a frame's mask (h, w) returns the pixels that are the input's."""

    def __init__(self, info: VideoInfo, config: Config) -> None:
        self._edge = Edge.of(config)
        self._size = info.upright_size

    def __call__(self, mask: NDArray[np.float32]) -> Kept:
        return mask.shape, np.packbits(self._edge.kept(mask, self._size)).tobytes()


def rounded(thumbnails: NDArray[np.float32], pix_fmt: str) -> NDArray[np.uint8]:
    """Returns thumbnails in levels of 255."""
    return np.rint(thumbnails / (1 << (FORMATS[pix_fmt].bits - 8))).clip(0, 255).astype(np.uint8)


class OutputVerifier(Sink):
    """Checks an output after the run. Holds 80 bytes a frame and at most `MOST_MAPS` maps of kept pixels."""

    def __init__(
        self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, decoder: str, number: int = 0
    ) -> None:
        """`number` is the output's place among those of the run."""
        # Absolute: the file is opened again after the run, and the current folder may have changed.
        named = info.source.kind in ("file", "pictures")
        self._info = replace(info, source=Source.parse(Path(info.path).absolute())) if named else info
        self._muxer, self._pix_fmt, self._config, self._number = muxer, pix_fmt, config, number
        self._independent = decoder != "pyav"  # else FFmpeg's threads may flag damage in one run and not in the next
        self._decoded_alike = decoder == "pyav" or info.codec not in ROUNDED
        self._ticks = array("q")  # of the output
        self._tick = Fraction(1)
        self._pts = array("q")  # in the input
        self._thumbnails = array("B")
        self._kept: dict[int, Kept] = {}  # by frame number
        self._stride = 1
        self._late = Fraction(0)  # seconds by which the output as a whole is, as decoding can't begin before 0 there
        # With the other effects, kept pixels are not those of the input.
        self._compares = config.effects[0].kind in ("blur", "pixelate", "color", "image", "video")
        self._keep = KeptPixels(info, config)

    def write(self, batch: FinishedBatch) -> None:
        """Notes the frames of one batch."""
        noted = rounded(batch.thumbnails, self._pix_fmt)
        for frame, mask, small in zip(batch.frames.frames, batch.shown[self._number], noted, strict=True):
            wanted = self._compares and len(self._ticks) % self._stride == 0
            self.note(frame.pts, small, self._keep(mask) if wanted else None)

    def note(self, pts: int, thumbnail: NDArray[np.uint8], kept: Kept | None) -> None:
        """Notes the next frame: its thumbnail, and which pixels are `kept` if they are to be compared."""
        number = len(self._ticks)
        self._thumbnails.frombytes(thumbnail.tobytes())
        self._tick = self._muxer.tick
        self._ticks.append(int(self._muxer.seconds(pts) / self._tick))
        self._pts.append(pts)
        if kept is not None and self._compares:
            self._kept[number] = kept
        if len(self._kept) > MOST_MAPS:  # drops every other map: the rest stays spread over the video
            self._stride *= 2
            self._kept = dict(list(self._kept.items())[::2])

    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Does nothing: the output can be read when its own sink has finished."""

    def check(self, end: Fraction | None, damaged: int, *, stopped: bool) -> Verified:
        """Decodes the finished output and compares; `end` is where its sound was cut, on the source's clock.

        `damaged` frames were reported. A run that was `stopped` lacks the input's last frames. Raises `OutputError`
        with the first figure that is wrong; the file stays.
        """
        try:
            found = probe(str(self._muxer.place))
            self._check_picture(found)
            decoder = PyAVDecoder(self._info, self._pix_fmt, self._config)
            decoder.level = logging.DEBUG  # the run has said it
            given = (frame for batch in decoder for frame in batch.frames)
            psnrs = list(self._compare(found, given, whole=not damaged))
            if not stopped:
                self._check_rest(given)
                if decoder.source is not None and (late := missing_streams(decoder.source.late, self._config)):
                    raise self._breach(f"it lacks stream {late_words(late)} of the input, which begins on the way")
                if self._independent and decoder.damaged and not damaged:
                    raise self._breach(f"{decoder.damaged} frames of the input are damaged, and none was reported")
            for fault in faults(self._muxer, self._info, end, self._late):
                raise self._breach(f"{fault} (the last frame is shown at {float(self._ticks[-1] * self._tick):.3f} s)")
        except InputError as exc:
            raise self._breach(str(exc)) from exc
        except av.error.FFmpegError as exc:
            raise self._breach(f"its sound, or the input's, can't be read to the end ({one_line(exc)})") from exc
        lossy = [psnr for psnr in psnrs if psnr < math.inf]
        return Verified(
            frames=len(self._ticks),
            compared=len(psnrs),
            psnr_least=round(min(lossy), 2) if lossy else None,
            psnr_mean=round(sum(lossy) / len(lossy), 2) if lossy else None,
        )

    def _check_picture(self, found: VideoInfo) -> None:
        info, layout = self._info, FORMATS[self._pix_fmt]
        padded = (_even(info.width, layout.shift_x), _even(info.height, layout.shift_y))
        for name, have, wanted in (
            ("width", found.width, {info.width, padded[0]}),
            ("height", found.height, {info.height, padded[1]}),
            ("pixel format", found.pix_fmt.replace("yuvj", "yuv"), {self._pix_fmt}),
            ("display matrix", _turn(found.display_matrix), {_turn(info.display_matrix)}),
            ("sample aspect ratio", found.sample_aspect_ratio or 1, {info.sample_aspect_ratio or 1}),
            ("color", _stated(found.color), {_stated(info.color)}),
        ):
            if have not in wanted:
                raise self._breach(f"its {name} is {have}, not {' or '.join(map(str, wanted))}")

    def _compare(self, found: VideoInfo, given: Iterator[Frame], *, whole: bool) -> Iterator[float]:
        """Checks every frame's time; yields the PSNR of the kept pixels of each frame in `_kept`.

        Thumbnails are compared if the input is `whole`: FFmpeg's threads conceal damage now so, now so.
        """
        floor, exact = self._floor(), self._muxer.target.suffix.lower() in EXACT
        written = (frame for batch in PyAVDecoder(found, self._pix_fmt, Config()) for frame in batch.frames)
        number = -1
        for number, (frame, ticks) in enumerate(zip_longest(written, self._ticks)):
            if frame is None or ticks is None:
                count = number if frame is None else f"more than {number}"
                raise self._breach(f"it holds {count} frames, {len(self._ticks)} were written")
            shown, wanted = frame.pts * found.time_base, ticks * self._tick
            if number == 0 and not exact and 0 < shown - wanted <= _LATEST:
                self._late = shown - wanted
            if abs(shown - wanted - self._late) > (found.time_base if self._late else 0):  # it was rounded anew
                raise self._breach(f"frame {number} is shown at {float(shown):.6f} s, not at {float(wanted):.6f} s")
            original = next(given, None)
            if original is None or original.pts != self._pts[number]:
                second = "there is none" if original is None else f"it is that of {self._seconds(original.pts)} s"
                raise self._breach(
                    f"frame {number} of the input is that of {self._seconds(self._pts[number])} s, and when it is "
                    f"decoded a second time {second}"
                )
            if whole:
                self._check_thumbnail(number, original)
            if number not in self._kept:
                continue
            psnr = self._psnr(original.planes, frame.planes, number)
            if psnr is not None:
                if psnr < floor:
                    raise self._breach(
                        f"kept pixels of frame {number} differ: PSNR {psnr:.1f} dB, at least {floor:.0f} is expected"
                    )
                yield psnr

    def _check_rest(self, given: Iterator[Frame]) -> None:
        """Decodes the input to its end, which must be that of the output."""
        rest = list(islice(given, 1))
        count = len(rest) + sum(1 for _ in given)
        if rest:
            raise self._breach(f"it lacks the input's last {count} frames, from {self._seconds(rest[0].pts)} s on")

    def _check_thumbnail(self, number: int, original: Frame) -> None:
        """Checks that the run had the same picture, by and large: also where nothing was kept, as of noise."""
        wanted = rounded(thumbnail(original.planes[0]), self._pix_fmt).ravel()
        size = len(wanted)
        had = np.frombuffer(self._thumbnails, np.uint8)[number * size : (number + 1) * size]
        apart = int(np.abs(wanted.astype(int) - had).max())
        if apart > APART:
            raise self._breach(f"frame {number} of the input is another picture when it is decoded a second time")

    def _seconds(self, pts: int) -> str:
        return f"{float(pts * self._info.time_base):.6f}"

    def _psnr(self, original: Planes, output: Planes, number: int) -> float | None:
        """PSNR in dB over the kept pixels, of the worst plane; `None` where none is kept."""
        shape, bits = self._kept[number]
        flat = np.unpackbits(np.frombuffer(bits, np.uint8), count=shape[0] * shape[1])
        kept = np.ascontiguousarray(self._info.orientation.stored(flat.reshape(shape)))
        peak = (1 << FORMATS[self._pix_fmt].bits) - 1
        found = []
        for before, after in zip(original, output, strict=True):
            height, width = before.shape
            area = cv2.resize(kept, (width, height), interpolation=cv2.INTER_NEAREST) > 0
            if area.any():
                error = np.square(before[area].astype(np.float32) - after[:height, :width][area]).mean(dtype=np.float64)
                found.append(10 * math.log10(peak**2 / error) if error else math.inf)
        return min(found, default=None)

    def _floor(self) -> float:
        codec, quality = self._muxer.codec, self._config.quality
        if (codec, quality) in LOSSLESS and self._decoded_alike:
            return math.inf
        return FLOORS.get(quality, CHOSEN_FLOOR)

    def _breach(self, text: str) -> OutputError:
        return OutputError(f"{self._muxer.target}: verification failed, the file is kept: {text}")


def _stated(color: Color) -> Color:
    """The color with limited range where none is stated, as players take it: H.264 can't state the range alone."""
    return replace(color, range=color.range or LIMITED)


def _even(size: int, shift: int) -> int:
    return -(-size >> shift) << shift


def _turn(matrix: tuple[int, ...] | None) -> tuple[int, ...]:
    """The part of a display matrix that turns and mirrors; containers don't keep the rest."""
    return (1 << 16, 0, 0, 1 << 16) if matrix is None else (*matrix[:2], *matrix[3:5])
