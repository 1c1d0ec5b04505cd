"""Sends the video of a run to a server, or as packets to a machine of the network."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import io
import logging
import re
import socket
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import av
import av.error
from av.audio.codeccontext import AudioCodecContext
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream

from segmentation.errors import OutputError, one_line
from segmentation.flow.backoff import Reconnection
from segmentation.frames.orientation import UPRIGHT
from segmentation.live.address import look_up
from segmentation.live.sender import Sender
from segmentation.live.sender_protocol import HEADER
from segmentation.media.containers import format_options
from segmentation.media.copying.held import format_holds
from segmentation.media.output_stream import OutputAddress
from segmentation.media.stream_muxer import STREAM_OPTIONS, StreamMuxer

if TYPE_CHECKING:
    from av.video.stream import VideoStream

log = logging.getLogger(__name__)

_RTSP_SOUND = ("aac", "opus", "pcm_alaw", "pcm_mulaw")
_FLV_RATES = {  # Hz: with others, FLV's muxer fails or states wrong ones. AAC may have any.
    "mp3": (11025, 22050, 44100, 48000),
    "pcm_alaw": (8000,),
    "pcm_mulaw": (8000,),
}
_LONGEST = 2.0  # seconds of each step of the connection, of which `sender` bounds the whole
# Formats in memory whose streams the encoder writes to: with parameter sets apart from the packets, or within.
_MODELS = {"rtsp": "nut", "rtmp": "flv", "udp": "mpegts", "srt": "mpegts"}


class PushMuxer(StreamMuxer):
    """See `Muxer`. The server is connected to before the network is loaded.

    A connection that is lost is made again, with the pauses of `Access.reconnect`; without these its loss is an error.
    Frames are left out, and counted, until the new connection gets a keyframe.
    """

    _proposals: ClassVar[dict[str, str]] = {}  # an address has one format

    def _begin(self) -> OutputContainer:
        """Opens a file in memory that gets a header alone: its streams are the encoder's, and models of those sent."""
        self._sender: Sender | None = None  # also while there is no connection
        self._again: Reconnection[Sender] | None = None  # while the connection is lost
        self._shaky = False  # a loss was reported, and no new connection has lasted since
        self._ended = False
        target = self._address
        look_up(target.address, target.scheme)
        return av.open(io.BytesIO(), "w", format=_MODELS[target.scheme])

    @property
    def _address(self) -> OutputAddress:
        assert isinstance(self.target, OutputAddress)
        return self.target

    def _connect(self) -> Sender:
        """Connects with the streams of the model. Raises `OSError`, `ValueError` or an error of FFmpeg's."""
        target, access = self._address, self._info.access
        limit = min(_LONGEST, access.stall)
        name, container, options = target.address, target.container, format_options(target, self._info) | STREAM_OPTIONS
        match target.scheme:
            case "rtsp":
                options |= {"rtsp_transport": "tcp", "timeout": str(round(limit * 1_000_000))}
            case "rtmp":
                name, container, options = tee_to_rtmp(name, options, limit), "tee", {}
            case "udp":
                options |= {"pkt_size": "1316"}  # bytes: seven packets of MPEG-TS, so that none is torn
        if self._sender is None or not self._sender.is_alive():
            self._sender = Sender(access.stop)
        sender = self._sender
        if self._ended:  # `_discard` may have come before there was something to close
            sender.kill()
        sender.connect(name, container, options, limit, list(self.container.streams))
        return sender

    def copy_streams(self, *, end: Fraction | None) -> None:
        if self._info.orientation != UPRIGHT:
            mirrored = " and its mirroring" if self._info.mirrored else ""
            log.warning(
                "%s: is sent without its rotation of %d degrees%s", self._info.path, self._info.rotation, mirrored
            )
        if self._info.live is not None and self._info.live.sound is not None:
            self._add_sound(self._info.live.sound)
        self.tick  # noqa: B018  # writes the encoder's parameters into the model
        try:
            self._connect()
        except (av.error.FFmpegError, OSError, ValueError) as exc:
            raise self._error(exc) from exc

    def _mux(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        is_video = packet.stream_index == self.container.streams.video[0].index
        if self._again is not None and is_video and packet.is_keyframe and self._again.result() is not None:
            self._again = None
            log.info("%s: is connected again", self.target)
        if self._again is not None or self._sender is None:
            self._leave_out(is_video=is_video)
            return
        try:
            self._mux_into(self._sender, packet, self.shift)
        except OutputError as exc:
            self._lose(exc)
            self._leave_out(is_video=is_video)
            return
        self._shaky = self._shaky and not is_video

    def _lose(self, error: OutputError) -> None:
        """Begins to connect again, on a thread. Raises the error if that is not wanted."""
        pauses = self._info.access.reconnect
        if pauses is None:
            raise error
        log.log(logging.INFO if self._shaky else logging.WARNING, "%s; trying to reconnect", error)
        self._shaky = True
        try:
            self._again = Reconnection(self._connect, pauses)
        except RuntimeError as exc:  # no thread can be started
            raise OutputError(f"{error}; can't reconnect ({one_line(exc)})") from exc

    def _leave_out(self, *, is_video: bool) -> None:
        if self._info.live is not None:
            self._info.live.unsent += is_video

    def _commit(self, *, fragment: bool) -> None:
        self._discard()

    def _discard(self) -> None:
        self._ended = True
        if self._again is not None:
            self._again.close(Sender.kill)
        if self._sender is not None:
            (self._sender.close if self._again is None else self._sender.kill)()

    def _prepare(self, overwrite: bool, option: str) -> None:
        if self._address.scheme == "rtmp" and self.codec != "h264":
            raise OutputError(f"{self.target}: RTMP takes h264, not {self.codec}")
        super()._prepare(overwrite, option)

    def _kind_of_output(self) -> str:
        return self._address.scheme

    def _can_hold(self, stream: Stream) -> bool:
        scheme = self._address.scheme
        if self._address.container == "mpegts":
            return super()._can_hold(stream) and format_holds(HEADER, stream, io.BytesIO())
        codec = stream.codec_context
        assert isinstance(codec, AudioCodecContext)
        name = codec.codec.canonical_name
        if scheme == "rtmp":
            return name == "aac" or (codec.sample_rate in _FLV_RATES.get(name, ()) and codec.channels <= 2)
        # Of AAC, the server is told the header, which MPEG-TS repeats in each packet in its place.
        return name in _RTSP_SOUND and (name != "aac" or codec.extradata is not None)

    def _error(self, exc: BaseException) -> OutputError:
        match exc:
            case socket.gaierror():
                reason = "the host's name is not known"
            case av.error.HTTPUnauthorizedError():
                reason = "user or password is missing or wrong (401)"
            case av.error.InvalidDataError():
                reason = "no answer that FFmpeg can read"
            case PermissionError() if self._address.scheme == "rtmp":
                reason = "the server refuses the stream; another one may have its name"
            case TimeoutError():
                reason = "silent for too long"
            case ValueError() if not isinstance(exc, av.error.FFmpegError):
                reason = str(exc)
            case _:
                reason = one_line(exc)
        return OutputError(f"{self.target}: can't be sent to ({reason})")


def tee_to_rtmp(address: str, options: Mapping[str, str], limit: float) -> str:
    """Returns what FFmpeg's muxer `tee` takes in place of `address`, to send FLV there.

    `tee` is the muxer that hands options on to the connection: here, to fail where the server answers nothing, or
    takes nothing, for `limit` seconds. `options` are those of the muxer of FLV.
    """
    given = {"f": "flv", **options, "rw_timeout": str(round(limit * 1_000_000)), "tcp_nodelay": "1"}
    listed = ":".join(f"{name}={value}" for name, value in given.items())
    return f"[{listed}]" + re.sub(r"([\\'|])", r"\\\1", address)
