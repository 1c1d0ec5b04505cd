"""Writes a pipe or a file object: packets go out as they come, and nothing is sought."""

from __future__ import annotations

import io
import logging
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import av
from av.container import OutputContainer
from av.stream import Stream

from segmentation.errors import OutputError
from segmentation.frames import VideoInfo
from segmentation.media.containers import format_options
from segmentation.media.muxer import Muxer
from segmentation.media.output_stream import OutputDevice, OutputStream
from segmentation.options.config import UNCOMPRESSED, Config

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

log = logging.getLogger(__name__)

_CODECS = {"mpegts": ("h264", "hevc")}  # of the others, FFmpeg writes data that nobody can read
STREAM_OPTIONS = {
    "flush_packets": "1",
    # Microseconds: with subtitles, which come rarely, the muxer would wait 10 s for the next one.
    "max_interleave_delta": "1000000",
}
_OPTIONS_OF = {
    "matroska": {"cluster_time_limit": "100"},  # milliseconds that are gathered before they are written
    "y4m": {"strict": "-1"},  # 10 bits, which the format's first description did not have
}


class StreamMuxer(Muxer):
    """See `Muxer`. What was written before an error stays written."""

    _proposals: ClassVar[dict[str, str]] = {f"--format {name}": name for name in ("matroska", "mpegts", "nut")}

    def __init__(self, stream: OutputStream, info: VideoInfo, config: Config, option: str = "-o") -> None:
        self._stream = stream
        self._written = 0  # frames of y4m
        super().__init__(stream, info, config, option)

    def _prepare(self, overwrite: bool, option: str) -> None:
        known = _CODECS.get(self._stream.format)
        if known is not None and self.codec not in known:
            raise OutputError(f"{self._stream}: {self._stream.format} holds {' and '.join(known)}, not {self.codec}")

    def _begin(self) -> OutputContainer:
        stream = self._stream
        options = format_options(stream, self._info) | STREAM_OPTIONS | _OPTIONS_OF.get(stream.format, {})
        stream.open()
        name = "yuv4mpegpipe" if stream.format == "y4m" else stream.format
        return av.open(stream, "w", format=name, container_options=options)

    def add_video(self, codec: str, info: VideoInfo, options: dict[str, str]) -> VideoStream:
        stream = super().add_video(codec, info, options)
        if self._stream.format == "y4m":
            stream.time_base = 1 / info.rate  # its inverse is the rate in y4m's header
        return stream

    @property
    def tick(self) -> Fraction:
        tick = super().tick
        return self._info.time_base if self._stream.format == "y4m" else tick  # results keep the frames' own times

    def _mux(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        if self._stream.format != "y4m":
            return super()._mux(packet)
        # Frames of y4m have a number in place of a time. FFmpeg refuses two that round to the same one.
        packet.pts = packet.dts = self._written
        packet.time_base = 1 / self._info.rate
        self._written += 1
        self._mux_into(self.container, packet, Fraction(0))

    def _can_hold(self, stream: Stream) -> bool:
        return self._stream.format not in UNCOMPRESSED and super()._can_hold(stream)

    def _kind_of_output(self) -> str:
        return f"{self._stream.format} in a pipe"

    def _trial(self) -> io.BytesIO:
        return _Unseekable()  # where Matroska takes AAC of MPEG-TS only with a header that MPEG-TS lacks

    def _commit(self, *, fragment: bool) -> None:
        self._stream.close()

    def _discard(self) -> None:
        with suppress(OSError):  # the reader has gone
            self._stream.close()


class DeviceMuxer(StreamMuxer):
    """Writes to a video device of this machine, frame by frame."""

    def _begin(self) -> OutputContainer:
        return av.open(self._stream.name, "w", format=OutputDevice.container)


class _Unseekable(io.BytesIO):
    def seekable(self) -> bool:
        return False
