"""Moves the pitch of copied sound, so that fewer people are recognized by their voices."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

import av
import av.error
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.codec import Codec
from av.container import OutputContainer
from av.filter import Graph
from av.packet import Packet
from av.stream import Stream

_FORMAT = "fltp"  # of samples between the filters and the encoder
_OCTAVE = 12  # semitones, each of which multiplies the frequency by the same factor
_BIT_RATE = 128_000  # where the source states none


class PitchShift:
    """A stream of sound that is decoded, moved in pitch and encoded: it is as long as before, and begins at its time.

    FFmpeg plays it at another speed, and then changes the tempo back. Gaps become silence. Where times go on by less
    than half of the sound that they are of, they are taken for wrong, and the sound is kept.
    """

    def __init__(self, source: AudioStream, codec: str, semitones: float, container: OutputContainer) -> None:
        """Adds the stream. Raises `ValueError`, or an error of FFmpeg's, if it can't be decoded or encoded."""
        context = source.codec_context
        if not context.rate or not context.channels:
            raise ValueError("it states no rate")
        rates = Codec(codec, "w").audio_rates
        self._rate = context.rate if not rates or context.rate in rates else max(rates)
        self._layout = context.layout.name if context.channels <= 2 else f"{context.channels}c"
        stream = container.add_stream(codec, rate=self._rate, layout=self._layout)
        assert isinstance(stream, AudioStream)
        self.stream = stream
        self.stream.bit_rate = source.bit_rate or _BIT_RATE * -(-context.channels // 2)
        self._played = round(self._rate * 2 ** (semitones / _OCTAVE))  # Hz, at which the samples are played
        self._graph: Graph | None = None
        self._form: tuple[object, ...] = ()  # of the frames that the graph takes
        self._begin: Fraction | None = None  # seconds, on the source's clock
        self._last = self._end = Fraction(0)  # when the last frame began by its own time, and ended
        self._length = Fraction(0)  # of that frame
        self._made = 0  # samples since the beginning

    def packets(self, packet: Packet[Stream]) -> Iterator[Packet[Stream]]:
        """Yields what there is of the stream once a packet of the source is known, on the source's clock."""
        frames: list[AudioFrame] = []
        with suppress(av.error.FFmpegError):  # a damaged packet is a gap
            frames = [frame for frame in packet.decode() if isinstance(frame, AudioFrame)]
        for frame in frames:
            if frame.pts is None or not frame.time_base or not frame.samples:
                continue
            form = frame.format.name, frame.layout.name, frame.sample_rate, frame.time_base
            if self._graph is None or form != self._form:
                yield from self._drained()
                self._graph, self._form = self._filters(frame), form
            at = self._place(frame, frame.pts * frame.time_base)
            self._begin = at if self._begin is None else self._begin
            self._end = at + self._length
            self._graph.push(frame)
            yield from self._encoded(self._graph, self._begin)

    def _place(self, frame: AudioFrame, at: Fraction) -> Fraction:
        """Returns when a frame of this time is to be heard, in seconds, and sets its pts to that."""
        wrong = self._begin is not None and (at - self._last) * 2 < self._length
        self._last, self._length = at, Fraction(frame.samples, frame.sample_rate)
        if wrong and at < self._end and frame.time_base:
            frame.pts = round(self._end / frame.time_base)
            return self._end
        return at

    def rest(self) -> Iterator[Packet[Stream]]:
        """Yields the rest of the stream, once."""
        yield from self._drained()
        if self._begin is not None:
            missing = round((self._end - self._begin) * self._rate) - self._made
            if missing > 0:  # what the filters keep, less than a tenth of a second
                yield from self._encode(_silence(missing, self._layout, self._rate), self._begin)
            yield from self.stream.encode(None)
        self._begin = None

    def _drained(self) -> Iterator[Packet[Stream]]:
        if self._graph is not None and self._begin is not None:
            self._graph.push(None)
            yield from self._encoded(self._graph, self._begin)
        self._graph = None

    def _filters(self, frame: AudioFrame) -> Graph:
        graph = Graph()
        steps = (
            ("aresample", f"{self._rate}:async=1"),  # gaps are filled
            ("asetrate", str(self._played)),
            ("aresample", str(self._rate)),
            ("atempo", str(self._rate / self._played)),
            ("aformat", f"sample_fmts={_FORMAT}:channel_layouts={self._layout}"),
        )
        chain = [
            graph.add_abuffer(
                template=None,
                sample_rate=frame.sample_rate,
                format=frame.format.name,
                layout=frame.layout.name,
                time_base=frame.time_base,
            )
        ]
        chain += [graph.add(name, arguments) for name, arguments in steps]
        graph.link_nodes(*chain, graph.add("abuffersink")).configure()
        return graph

    def _encoded(self, graph: Graph, begin: Fraction) -> Iterator[Packet[Stream]]:
        while True:
            try:
                frame = graph.pull()
            except (BlockingIOError, EOFError, av.error.EOFError):
                return
            assert isinstance(frame, AudioFrame)
            yield from self._encode(frame, begin)

    def _encode(self, frame: AudioFrame, begin: Fraction) -> Iterator[Packet[Stream]]:
        frame.pts = round(begin * self._rate) + self._made
        frame.time_base = Fraction(1, self._rate)
        self._made += frame.samples
        yield from self.stream.encode(frame)


def _silence(samples: int, layout: str, rate: int) -> AudioFrame:
    channels = av.AudioLayout(layout).nb_channels
    frame = AudioFrame.from_ndarray(np.zeros((channels, samples), np.float32), format=_FORMAT, layout=layout)
    frame.sample_rate = rate
    return frame
