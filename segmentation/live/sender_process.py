"""The process that sends to an address: `python -m segmentation.live.sender_process DESCRIPTOR`.

The descriptor is that of a socket; `sender` starts the process and holds the other end. A request is a method of
`_Connection` with its arguments, and the reply is the error or `None`; the first reply says that the process is ready.
"""

from __future__ import annotations

import math
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from io import BytesIO

import av
import av.error
from av.audio.codeccontext import AudioCodecContext
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream
from av.video.codeccontext import VideoCodecContext

from segmentation.live.sender_protocol import HEADER, WHOLE, Rest
from segmentation.live.srt import BUFFER, SrtOutput
from segmentation.system.child_process import ignore_interrupts, picklable

_LONGEST = math.ceil(2 * WHOLE)  # seconds of a request, where the other process, which waits for less, has been killed
_HEADER_ALONE = {"probesize": "32", "analyzeduration": "0"}  # there are no packets to read


class _Connection:
    """The connection to the server, if there is one."""

    def __init__(self) -> None:
        self._container: OutputContainer | None = None
        self._exits = ExitStack()

    def connect(
        self,
        address: str,
        container: str,
        options: dict[str, str],
        limit: float,
        header: bytes,
        rests: Sequence[Rest],
    ) -> None:
        """See `Sender.connect`. `header` has the streams as NUT, and `rests` what that lacks."""
        self.close()
        with ExitStack() as exits:
            file = exits.enter_context(_closed(SrtOutput(address, limit))) if address.startswith("srt:") else address
            opened = av.open(file, "w", format=container, container_options=options, buffer_size=BUFFER)
            exits.enter_context(_closed(opened))
            with av.open(BytesIO(header), format=HEADER, options=_HEADER_ALONE) as templates:
                for template, rest in zip(templates.streams, rests, strict=True):
                    codec = opened.add_stream_from_template(template).codec_context
                    codec.bit_rate = rest.bit_rate
                    if isinstance(codec, VideoCodecContext) and rest.frame_rate is not None:
                        codec.framerate = rest.frame_rate
                    if isinstance(codec, AudioCodecContext) and rest.layout is not None:
                        codec.layout = rest.layout
            opened.start_encoding()
            self._container, self._exits = opened, exits.pop_all()

    def mux(
        self, stream: int, times: tuple[int | None, int | None, int | None, Fraction], keyframe: bool, data: bytes
    ) -> None:
        """Sends a packet: `times` are its pts, dts and duration, and their unit in seconds."""
        if self._container is None:
            raise ConnectionError("there is no connection")
        packet: Packet[Stream] = Packet(data)
        packet.stream = self._container.streams[stream]
        packet.pts, packet.dts, packet.duration, packet.time_base = times
        packet.is_keyframe = keyframe
        self._container.mux_one(packet)

    def close(self) -> None:
        """Ends the connection, and says so to the server."""
        self._container = None
        self._exits.close()


@contextmanager
def _closed(opened: OutputContainer | SrtOutput) -> Iterator[OutputContainer | SrtOutput]:
    """Closes at its end what may be broken."""
    try:
        yield opened
    finally:
        with suppress(av.error.FFmpegError, OSError, ValueError):
            opened.close()


def main(link: socket.socket) -> None:
    """Works until the other end of the socket is closed. The kernel ends it within a request that takes too long."""
    ignore_interrupts()
    connection, file = _Connection(), link.makefile("rwb")
    error: BaseException | None = None
    with suppress(EOFError, OSError):
        while True:
            signal.alarm(0)
            pickle.dump(error, file)
            file.flush()
            method, *arguments = pickle.load(file)
            signal.alarm(_LONGEST)
            try:
                getattr(connection, method)(*arguments)
                error = None
            except Exception as exc:
                connection.close()
                if not isinstance(exc, av.error.FFmpegError | OSError | ValueError):  # a bug
                    exc.add_note(f"In the process that sends:\n{''.join(traceback.format_exception(exc))}".rstrip())
                error = picklable(exc)
    signal.alarm(_LONGEST)
    connection.close()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
