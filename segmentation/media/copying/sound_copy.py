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

from segmentation.frames.live_sound import LiveSound

_G711 = ("pcm_mulaw", "pcm_alaw")
_TIMELESS = ("mov", "mp4")  # formats that keep the time of the first sample of PCM alone
_SHORTEST_GAP = 0.01  # seconds; what is shorter waits for more


class SoundCopy:
    """The sound in one output. Packets are copied; G.711 becomes 16-bit PCM where the format does not hold G.711.

    Where the format keeps no times of PCM, a gap gets silence. Without it all later sound would come early.
    """

    def __init__(self, sound: LiveSound, container: OutputContainer, can_hold: Callable[[Stream], bool]) -> None:
        """Adds the stream. Raises `ValueError` if the format can't hold it."""
        codec = sound.template.codec_context.name
        template, self._levels = sound.template, None
        if codec in _G711 and not can_hold(template):
            template, self._levels = _pcm(template), _levels(codec)
        if not can_hold(template):
            raise ValueError(f"{container.format.name} can't hold {codec}")
        assert isinstance(template, AudioStream)
        self._stream = container.add_stream_from_template(template)
        name_channels(self._stream)
        self._rate = self._stream.rate
        self._filler = _second_of_silence(self._stream) if container.format.name in _TIMELESS else b""
        self._begin: float | None = None  # seconds: when the first sample is heard
        self._written = 0  # bytes since then
        self._sound, self._waiting = sound, sound.subscribe()

    def until(self, seconds: Fraction | None, time_base: Fraction) -> Iterator[Packet[Stream]]:
        """Yields the packets that are heard before `seconds` of the output, in `time_base`; `None`: all of them."""
        for heard, sound in self._sound.until(self._waiting, inf if seconds is None else float(seconds)):
            for at, silence in self._silence(heard):
                yield self._packet(silence, at, 0.0, time_base)
            data = sound.data if self._levels is None else self._levels[np.frombuffer(sound.data, np.uint8)].tobytes()
            yield self._packet(data, heard, sound.length, time_base)
            self._written += len(data)

    def _silence(self, heard: float) -> Iterator[tuple[float, bytes]]:
        """Yields the silence between what was written and the time `heard`, each second of it with its time."""
        if not self._filler:
            return
        if self._begin is None:
            self._begin = heard
        end = self._begin + self._written / len(self._filler)
        samples = round((heard - end) * self._rate)
        if samples < _SHORTEST_GAP * self._rate:
            return
        for at in range(0, samples, self._rate):
            silence = self._filler[: (samples - at) * (len(self._filler) // self._rate)]
            yield end + at / self._rate, silence
            self._written += len(silence)

    def _packet(self, data: bytes, heard: float, length: float, time_base: Fraction) -> Packet[Stream]:
        packet: Packet[Stream] = Packet(data)
        packet.stream, packet.time_base = self._stream, time_base
        packet.pts = packet.dts = round(heard / time_base)
        packet.duration = round(length / time_base)
        packet.is_keyframe = True
        return packet


def name_channels(stream: AudioStream) -> None:
    """Gives the channels of an output's stream the usual names where the source did not say which they are.

    MP4 refuses PCM without them, only when all is done. With G.711, FFmpeg's FLV ends the process without them. Damaged
    headers may state no channel at all.
    """
    if stream.layout.nb_channels and stream.layout.name.endswith(" channels"):
        stream.codec_context.layout = f"{stream.layout.nb_channels}c"


def _second_of_silence(stream: AudioStream) -> bytes:
    """Returns a second of silence in PCM; none for other codecs, which have times in every format."""
    codec = stream.codec_context
    if codec.name in _G711:
        return {"pcm_mulaw": b"\xff", "pcm_alaw": b"\xd5"}[codec.name] * (codec.rate * codec.channels)  # level 0
    return bytes(2 * codec.rate * codec.channels) if codec.name == "pcm_s16le" else b""


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
