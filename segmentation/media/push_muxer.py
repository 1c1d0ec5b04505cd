"""Sends the video of a run to a server, or as packets to a machine of the network."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import io
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import av
import av.error
from av.audio.codeccontext import AudioCodecContext
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream

from segmentation.errors import OutputError, one_line
from segmentation.media.containers import format_options
from segmentation.media.live_address import look_up
from segmentation.media.output_stream import OutputAddress
from segmentation.media.reconnection import Reconnection
from segmentation.media.rtmp import greet, tee_to_rtmp
from segmentation.media.srt import BUFFER, SrtOutput
from segmentation.media.stream_muxer import STREAM_OPTIONS, StreamMuxer
from segmentation.orientation import UPRIGHT

if TYPE_CHECKING:
    from av.video.stream import VideoStream

log = logging.getLogger(__name__)

T = TypeVar("T", OutputContainer, SrtOutput)

_RTSP_SOUND = ("aac", "opus", "pcm_alaw", "pcm_mulaw")
_FLV_RATES = {  # Hz: with others, FLV's muxer fails or states wrong ones. AAC may have any.
    "mp3": (11025, 22050, 44100, 48000),
    "pcm_alaw": (8000,),
    "pcm_mulaw": (8000,),
}
_LONGEST = 2.0  # seconds of each step of the connection: FFmpeg holds the GIL meanwhile, so all other runs wait
# Formats in memory whose streams the encoder writes to: with parameter sets apart from the packets, or within.
_MODELS = {"rtsp": "nut", "rtmp": "flv", "udp": "mpegts", "srt": "mpegts"}


class _Connection(NamedTuple):
    container: OutputContainer
    exits: ExitStack  # close it


class PushMuxer(StreamMuxer):
    """See `Muxer`. The server is connected to before the network is loaded.

    A connection that is lost is made again, with the pauses of `Access.reconnect`; without these its loss is an error.
    Frames are left out, and counted, until the new connection gets a keyframe.
    """

    def _begin(self) -> OutputContainer:
        """Opens a file in memory that gets a header alone: its streams are the encoder's, and models of those sent."""
        self._connection: _Connection | None = None
        self._again: Reconnection[_Connection] | None = None  # while the connection is lost
        self._slow = False  # the last attempt took long
        self._shaky = False  # a loss was reported, and no new connection has lasted since
        target = self._address
        look_up(target.address, target.scheme)
        return av.open(io.BytesIO(), "w", format=_MODELS[target.scheme])

    @property
    def _address(self) -> OutputAddress:
        assert isinstance(self.target, OutputAddress)
        return self.target

    def _connect(self) -> _Connection:
        """Returns an open connection with the streams of the model. Raises `OSError` or an error of FFmpeg's.

        After an attempt that took long, it is asked first whether anybody answers there: FFmpeg waits with the GIL.
        """
        target, limit = self._address, min(_LONGEST, self._info.access.stall)
        if self._slow and target.scheme == "rtsp":
            socket.create_connection(target.place, limit).close()
        elif self._slow and target.scheme == "rtmp":
            greet(target.place, limit)
        begin = time.monotonic()
        try:
            return self._opened(limit)
        finally:
            self._slow = time.monotonic() - begin > limit / 2

    def _opened(self, limit: float) -> _Connection:
        target = self._address
        name, container, options = target.address, target.container, format_options(target, self._info) | STREAM_OPTIONS
        match target.scheme:
            case "rtsp":
                options |= {"rtsp_transport": "tcp", "timeout": str(round(limit * 1_000_000))}
            case "rtmp":
                name, container, options = tee_to_rtmp(name, options, limit), "tee", {}
            case "udp":
                options |= {"pkt_size": "1316"}  # bytes: seven packets of MPEG-TS, so that none is torn
        with ExitStack() as exits:
            file = exits.enter_context(_closing(SrtOutput(name, limit))) if target.scheme == "srt" else name
            opened = av.open(file, "w", format=container, container_options=options, buffer_size=BUFFER)
            sent = exits.enter_context(_closing(opened))
            for stream in self.container.streams:
                sent.add_stream_from_template(stream)
            sent.start_encoding()
            return _Connection(sent, exits.pop_all())

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
            self._connection = self._connect()
        except (av.error.FFmpegError, OSError, ValueError) as exc:
            raise self._error(exc) from exc

    def _mux(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        is_video = packet.stream_index == self.container.streams.video[0].index
        if self._again is not None and is_video and packet.is_keyframe and (made := self._again.result()) is not None:
            self._connection, self._again = made, None
            log.info("%s: is connected again", self.target)
        if self._connection is None:
            self._leave_out(is_video=is_video)
            return
        packet.stream = self._connection.container.streams[packet.stream_index]
        try:
            self._mux_into(self._connection.container, packet, self.shift)
        except OutputError as exc:
            self._lose(exc)
            self._leave_out(is_video=is_video)
            return
        self._shaky = self._shaky and not is_video

    def _lose(self, error: OutputError) -> None:
        """Begins to connect again, on a thread. Raises the error if that is not wanted."""
        pauses, lost = self._info.access.reconnect, self._connection
        assert lost is not None
        if pauses is None:
            raise error
        log.log(logging.INFO if self._shaky else logging.WARNING, "%s; trying to reconnect", error)
        self._shaky = True
        self._connection, self._again = None, Reconnection(self._connect, pauses, lost.exits.close)

    def _leave_out(self, *, is_video: bool) -> None:
        if self._info.live is not None:
            self._info.live.unsent += is_video

    def _commit(self, *, fragment: bool) -> None:
        self._discard()

    def _discard(self) -> None:
        if self._again is not None:
            self._again.close(lambda made: made.exits.close())
        if self._connection is not None:
            self._connection.exits.close()
            self._connection = None

    def _prepare(self, overwrite: bool, option: str) -> None:
        if self._address.scheme == "rtmp" and self.codec != "h264":
            raise OutputError(f"{self.target}: RTMP takes h264, not {self.codec}")
        super()._prepare(overwrite, option)

    def _can_hold(self, stream: Stream) -> bool:
        scheme = self._address.scheme
        if self._address.container == "mpegts":
            return super()._can_hold(stream)
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


@contextmanager
def _closing(opened: T) -> Iterator[T]:
    """Closes at its end what may be broken."""
    try:
        yield opened
    finally:
        with suppress(av.error.FFmpegError, OSError, ValueError):
            opened.close()
