"""Sends packets to an address from a process of its own, which is killed where a server holds it up.

FFmpeg connects with the GIL, and its limits are those of single reads. A server that answers without end, or a byte at
a time, would hold all threads of this process, and its signals.
"""

from __future__ import annotations

import pickle
import select
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

import av
from av.audio.codeccontext import AudioCodecContext
from av.packet import Packet
from av.stream import Stream
from av.video.codeccontext import VideoCodecContext

from segmentation.live.sender_protocol import HEADER, WHOLE, Rest
from segmentation.system.child_process import ChildProcess

if TYPE_CHECKING:
    from av.video.stream import VideoStream

_HASTE = 2.0  # seconds for that once the run is to end
_GOODBYE = 4.0  # seconds for a connection's end
_START = 60.0  # seconds for the start of the process, on a busy machine too
_POLL = 100  # milliseconds between looks at whether the run is to end
_MODULE = "segmentation.live.sender_process"
_SYNCPOINT = b"NK\xe4\xad\xee\xca\x45\x69"  # with which packets of NUT begin ("startcodes" in its specification)


class Sender:
    """A process that sends to one address. After an error of `connect` or `mux_one` there is no connection.

    Both raise `OSError`, `ValueError` or an error of FFmpeg's.
    """

    def __init__(self, stop: threading.Event) -> None:
        """Returns once the process has started. `stop` shortens the time that a server gets. Raises `OSError`."""
        self._stop = stop
        self._link, others = socket.socketpair()
        self._link.settimeout(WHOLE)
        self._replies = self._link.makefile("rb")
        try:
            with others:
                self._process = ChildProcess(_MODULE, others.fileno())
        except OSError:
            self._close_link()
            raise
        self._take_reply(_START)

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def connect(
        self, address: str, container: str, options: Mapping[str, str], limit: float, streams: Sequence[Stream]
    ) -> None:
        """Connects with FFmpeg's muxer `container`. A step may take `limit` seconds. `streams` are templates."""
        self._ask("connect", address, container, dict(options), limit, _header(streams), [*map(_rest, streams)])

    def mux_one(self, packet: Packet[VideoStream] | Packet[Stream]) -> None:
        """Sends a packet of the stream that has the number `packet.stream_index`."""
        times = packet.pts, packet.dts, packet.duration, packet.time_base
        self._ask("mux", packet.stream_index, times, packet.is_keyframe, bytes(packet))

    def close(self) -> None:
        """Ends the connection with a message to the server, and the process."""
        self._end(_GOODBYE)

    def kill(self) -> None:
        """Ends the process at once. A thread that waits for it gets an error."""
        self._end(0)

    def _ask(self, *request: object) -> None:
        """Lets the process do something. Raises its error."""
        try:
            self._link.sendall(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
        except OSError as exc:
            self.kill()
            raise ConnectionError("the process that sends has ended") from exc
        self._take_reply(WHOLE)

    def _take_reply(self, seconds: float) -> None:
        """Waits for the reply, and kills the process if it does not come in time. Raises what it says."""
        try:
            self._wait(time.monotonic() + seconds)
            error = pickle.load(self._replies)
        except EOFError:
            death = self._process.describe_death()
            self.kill()
            raise ConnectionError(f"the process that sends {death}") from None
        except BaseException:  # an interrupt too: the next reply would be taken for this one
            self.kill()
            raise
        if error is not None:
            raise error

    def _wait(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        while not poll.poll(_POLL):
            now = time.monotonic()
            if self._stop.is_set():
                deadline = min(deadline, now + _HASTE)
            if now > deadline:
                raise ConnectionError("the server holds up what it is sent")

    def _end(self, patience: float) -> None:
        with suppress(OSError):  # it was closed before
            self._link.shutdown(socket.SHUT_RDWR)
        self._process.close(patience)
        self._close_link()

    def _close_link(self) -> None:
        self._replies.close()
        self._link.close()


def _header(streams: Sequence[Stream]) -> bytes:
    """Returns a file of NUT without packets: the parameters of these streams."""
    file = BytesIO()
    with av.open(file, "w", format=HEADER) as container:
        for stream in streams:
            container.add_stream_from_template(stream)
        container.start_encoding()
    return file.getvalue() + _SYNCPOINT


def _rest(stream: Stream) -> Rest:
    codec = stream.codec_context
    frame_rate = codec.framerate if isinstance(codec, VideoCodecContext) else None
    return Rest(codec.bit_rate or 0, frame_rate, codec.layout.name if isinstance(codec, AudioCodecContext) else None)
