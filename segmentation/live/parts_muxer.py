"""Writes the video and sound of a live source as Matroska files that follow each other, cut at keyframes."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import io
import logging
import os
import time
from contextlib import suppress
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import av
import av.error
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream

from segmentation.errors import OutputError, one_line
from segmentation.frames import VideoInfo
from segmentation.media.containers import format_options
from segmentation.media.muxer import Muxer
from segmentation.media.video_packet import base_of, pts_of
from segmentation.options.config import Config
from segmentation.options.times import exact
from segmentation.system.safe_files import SAFE

if TYPE_CHECKING:
    from av.video.stream import VideoStream

log = logging.getLogger(__name__)

# A file is whole up to its last cluster, whatever becomes of the process.
_OPTIONS = {"cluster_time_limit": "1000", "flush_packets": "1"}  # milliseconds of a cluster


class PartsMuxer(Muxer):
    """See `Muxer`. Parts have their names from the beginning, and stay whatever happens. No file is replaced.

    `target` is a pattern for `strftime`, with the local time at which the part begins. Where that file exists, the
    part's name ends with -2, -3 and so on. Each part begins at 0, with a keyframe. Parts end at multiples of
    `every` seconds from the first frame, or at the first keyframe after that time.
    """

    def __init__(self, target: Path, info: VideoInfo, config: Config, option: str = "-o", *, every: float) -> None:
        self._length = exact(every)
        self._folder = Path() if target.is_absolute() else Path.cwd()  # which may change before the end
        self._part: OutputContainer | None = None
        self._streams: tuple[Stream, ...]  # of the part, by their number
        self._begins = self._ends = Fraction(0)  # of the part, in seconds on the source's clock
        super().__init__(target, info, config, option)

    def _prepare(self, overwrite: bool, option: str) -> None:
        if self.target.suffix.lower() != ".mkv":
            raise OutputError(f"{self.target}: files that are cut end in .mkv; name such a file with {option}")
        try:
            (self._folder / self._named()).parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise self._error(exc) from exc

    def _begin(self) -> OutputContainer:
        """Opens a file in memory that gets a header alone: its stream is the encoder's, and the model of all parts'."""
        return av.open(io.BytesIO(), "w", format="matroska")

    def _mux(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        seconds = pts_of(packet) * base_of(packet)
        is_video = packet.stream_index == self.container.streams.video[0].index
        part = self._part
        if is_video and (part is None or (packet.is_keyframe and seconds >= self._ends)):
            part = self._begin_part(seconds)
        if part is None or (not is_video and seconds < self._begins):
            return  # sound without a picture
        packet.stream = self._streams[packet.stream_index]
        self._mux_into(part, packet, self._begins)

    def _begin_part(self, seconds: Fraction) -> OutputContainer:
        """Ends a part and begins another one, which shows the frame of `seconds` first. Returns it."""
        self._end_part()
        self.tick  # noqa: B018  # writes the encoder's parameters into its stream
        try:
            named, descriptor = self._create()
            path = self._folder / named
            os.close(descriptor)  # FFmpeg opens the file by its name, and only when it writes the header
            options = format_options(path, self._info) | _OPTIONS
            part = self._part = av.open(str(path), "w", format="matroska", container_options=options)
        except (av.error.FFmpegError, OSError) as exc:
            raise self._error(exc) from exc
        self._streams = tuple(part.add_stream_from_template(stream) for stream in self.container.streams)
        if self._info.display_matrix is not None:
            part.streams.video[0].set_display_matrix(self._info.display_matrix)
        self._begins, self._ends = seconds, (seconds // self._length + 1) * self._length
        self.parts += (str(named),)
        log.info("%s: %s begins", self._info.path, named)
        return part

    def _create(self) -> tuple[Path, int]:
        """Makes an empty file with a name of its own; returns its descriptor too. Raises `OSError`."""
        named = self._named()
        (self._folder / named).parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            path = named if number == 1 else named.with_stem(f"{named.stem}-{number}")
            with suppress(FileExistsError):
                return path, os.open(self._folder / path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE, 0o666)
        raise AssertionError("numbers don't end")

    def _named(self) -> Path:
        """Returns the name of a part that begins now, as `target` is given: the folder's own name is no pattern."""
        return Path(time.strftime(str(self.target)))

    def _end_part(self) -> None:
        """Completes the part. Raises `OutputError`."""
        part, self._part = self._part, None
        if part is not None:
            try:
                part.close()
            except (av.error.FFmpegError, OSError) as exc:
                raise self._error(exc) from exc

    def _commit(self, *, fragment: bool) -> None:
        self._end_part()

    def _discard(self) -> None:
        try:
            self._end_part()
        except OutputError as exc:  # of an error, which is raised
            log.debug("%s: %s", self.target, one_line(exc))
