"""Sends the video of a run to a server, or as packets to a machine of the network."""

from __future__ import annotations

import logging
import socket
from fractions import Fraction

import av
import av.error
from av.container import OutputContainer
from av.stream import Stream

from segmentation.errors import OutputError, one_line
from segmentation.media.containers import format_options
from segmentation.media.live_address import look_up
from segmentation.media.stream_muxer import STREAM_OPTIONS, StreamMuxer
from segmentation.output_stream import OutputAddress

log = logging.getLogger(__name__)

_RTSP_SOUND = ("aac", "opus", "pcm_alaw", "pcm_mulaw")
_LONGEST = 2.0  # seconds of each step of the connection: FFmpeg holds the GIL meanwhile, so all other runs wait


class PushMuxer(StreamMuxer):
    """See `Muxer`. The server is connected to before the network is loaded. A connection that is lost is an error."""

    def _begin(self) -> OutputContainer:
        target = self.target
        assert isinstance(target, OutputAddress)
        look_up(target.address, target.scheme)
        options = format_options(target, self._info) | STREAM_OPTIONS
        if target.scheme == "rtsp":
            limit = min(_LONGEST, self._info.access.stall)
            options |= {"rtsp_transport": "tcp", "timeout": str(round(limit * 1_000_000))}
        else:
            options |= {"pkt_size": "1316"}  # bytes: seven packets of MPEG-TS, so that none is torn
        return av.open(target.address, "w", format=target.container, container_options=options)

    def copy_streams(self, *, end: Fraction | None) -> None:
        if self._info.rotation:
            log.warning("%s: is sent without its rotation of %d degrees", self._info.path, self._info.rotation)
        if self._info.live is not None and self._info.live.sound is not None:
            self._add_sound(self._info.live.sound)
        self.tick  # noqa: B018  # connects

    def _can_hold(self, stream: Stream) -> bool:
        if self.container.format.name != "rtsp":
            return super()._can_hold(stream)
        codec = stream.codec_context
        # Of AAC, the server is told the header, which MPEG-TS repeats in each packet in its place.
        return codec.name in _RTSP_SOUND and (codec.name != "aac" or codec.extradata is not None)

    def _error(self, exc: BaseException) -> OutputError:
        match exc:
            case socket.gaierror():
                reason = "the host's name is not known"
            case av.error.HTTPUnauthorizedError():
                reason = "user or password is missing or wrong (401)"
            case av.error.InvalidDataError():
                reason = "no answer that FFmpeg can read"
            case ValueError() if not isinstance(exc, av.error.FFmpegError):
                reason = str(exc)
            case _:
                reason = one_line(exc)
        return OutputError(f"{self.target}: can't be sent to ({reason})")
