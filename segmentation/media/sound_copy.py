"""Sound of a live source in an output."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from io import BytesIO
from math import inf

import av
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.packet import Packet
from av.stream import Stream
from numpy.typing import NDArray

from segmentation.live_sound import LiveSound

_G711 = ("pcm_mulaw", "pcm_alaw")


class SoundCopy:
    """The sound in one output. Packets are copied; G.711 becomes 16-bit PCM where the format does not hold G.711."""

    def __init__(self, sound: LiveSound, container: OutputContainer, can_hold: Callable[[Stream], bool]) -> None:
        """Adds the stream. Raises `ValueError` if the format can't hold it."""
        codec = sound.template.codec_context.name
        template, self._levels = sound.template, None
        if codec in _G711 and not can_hold(template):
            template, self._levels = _pcm(template), _levels(codec)
        if not can_hold(template):
            raise ValueError(f"{container.format.name} can't hold {codec}")
        self._stream = container.add_stream_from_template(template)
        self._sound, self._waiting = sound, sound.subscribe()

    def until(self, seconds: Fraction | None, time_base: Fraction) -> Iterator[Packet[Stream]]:
        """Yields the packets that are heard before `seconds` of the output, in `time_base`; `None`: all of them."""
        for heard, sound in self._sound.until(self._waiting, inf if seconds is None else float(seconds)):
            data = sound.data if self._levels is None else self._levels[np.frombuffer(sound.data, np.uint8)].tobytes()
            packet: Packet[Stream] = Packet(data)
            packet.stream, packet.time_base = self._stream, time_base
            packet.pts = packet.dts = round(heard / time_base)
            packet.duration = round(sound.length / time_base)
            packet.is_keyframe = True
            yield packet


def _pcm(g711: Stream) -> Stream:
    """Returns a stream of 16-bit PCM with the same rate and channels."""
    assert isinstance(g711, AudioStream)
    container = av.open(BytesIO(), "w", format="nut")
    return container.add_stream("pcm_s16le", rate=g711.rate, layout=f"{g711.layout.nb_channels}c")


@cache
def _levels(codec: str) -> NDArray[np.int16]:
    """Returns the level of each byte of G.711."""
    decoder = av.CodecContext.create(codec, "r")
    assert isinstance(decoder, AudioCodecContext)
    decoder.sample_rate, decoder.layout = 8000, "mono"
    (frame,) = decoder.decode(Packet(bytes(range(256))))
    return np.asarray(frame.to_ndarray()[0], np.int16)
