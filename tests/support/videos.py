"""FFmpeg's own view of a file: frames, times and packets. And small videos to be made."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import LIMITED, Color, VideoInfo
from segmentation.frames.source import Source
from segmentation.media.opening.open_input import open_input
from segmentation.system.cores import kept_scheduling

Planes = tuple[NDArray[Any], ...]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A decoded frame as FFmpeg gives it: seconds, and planes cut to the picture."""

    time: Fraction
    duration: Fraction
    planes: Planes
    pix_fmt: str
    frame: av.VideoFrame


def pictures(path: Path, *, limit: int | None = None) -> Iterator[Picture]:
    """All frames of the main video, packet by packet, so that a bad one costs only itself."""
    for frame, base in itertools.islice(_frames(path), limit):
        yield Picture(
            time=(frame.pts or 0) * base,
            duration=(frame.duration or 0) * base,
            planes=planes(frame),
            pix_fmt=frame.format.name,
            frame=frame,
        )


def times(path: Path, *, limit: int | None = None) -> list[Fraction]:
    """When each frame of the main video is shown, in seconds."""
    return [(frame.pts or 0) * base for frame, base in itertools.islice(_frames(path), limit)]


def _frames(path: Path) -> Iterator[tuple[Any, Fraction]]:
    """Frames with the unit of their times."""
    with open_input(str(path)) as container:
        video = container.streams.best("video")
        assert video is not None and video.time_base is not None
        video.thread_type = "AUTO"
        for packet in container.demux(video):
            try:
                decoded = packet.decode()
            except av.error.FFmpegError:
                continue
            for frame in decoded:
                yield frame, video.time_base


def planes(frame: av.VideoFrame) -> Planes:
    """Copies of a planar frame's planes, (h, w) uint8 or uint16."""
    dtype = np.uint16 if frame.format.components[0].bits > 8 else np.uint8
    return tuple(
        np.frombuffer(p, dtype).reshape(p.height, -1)[:, : p.width].copy()  # type: ignore[call-overload]
        for p in frame.planes
    )


def same_times(actual: Sequence[Fraction], expected: Sequence[Fraction], tick: Fraction) -> bool:
    """Whether all times agree, to half a tick of the file that they were written to."""
    return len(actual) == len(expected) and all(abs(a - b) <= tick / 2 for a, b in zip(actual, expected, strict=True))


def tick(path: Path) -> Fraction:
    """The main video's time base."""
    with av.open(str(path)) as container:
        video = container.streams.best("video")
        assert video is not None and video.time_base is not None
        return video.time_base


@dataclass(frozen=True)
class StreamPacket:
    """A packet: its bytes, its presentation time and its duration in seconds."""

    data: bytes
    time: Fraction | None
    duration: Fraction = Fraction(0)


def packets(path: Path, kind: str, number: int = 0) -> list[StreamPacket]:
    """The packets of the `number`-th stream of a kind ("audio", "subtitle", "data")."""
    with open_input(str(path)) as container:
        stream = [s for s in container.streams if s.type == kind][number]
        return [
            StreamPacket(bytes(p), None if p.pts is None else p.pts * p.time_base, (p.duration or 0) * p.time_base)
            for p in container.demux(stream)
            if p.size
        ]


def same_packets(
    actual: Sequence[StreamPacket], expected: Sequence[StreamPacket], tick: Fraction = Fraction(1, 1000)
) -> bool:
    """Whether packets are equal byte for byte and in time, to `tick` (Matroska counts milliseconds)."""
    return [c.data for c in actual] == [c.data for c in expected] and all(
        a.time is not None and b.time is not None and abs(a.time - b.time) <= tick
        for a, b in zip(actual, expected, strict=True)
    )


@dataclass(kw_only=True)
class Synthetic:
    """A small video to be made: moving gradients with noise, and what goes with it."""

    size: tuple[int, int] = (64, 48)
    frames: Sequence[av.VideoFrame] | None = None  # instead of gradients
    pts: Sequence[int] = tuple(range(25))
    time_base: Fraction = Fraction(1, 25)
    last_duration: int = 1
    codec: str = "ffv1"
    pix_fmt: str = "yuv420p"
    options: dict[str, str] = field(default_factory=dict)
    gop: int = 12
    range: int = 0
    color: tuple[int, int, int] = (2, 2, 2)  # matrix, primaries, transfer
    aspect: Fraction | None = None
    rotation: int = 0
    matrix: tuple[int, ...] | None = None  # of the display, instead
    audio: str | None = None  # codec
    audio_bit_rate: int | None = None  # bits a second
    audio_rate: int = 48000  # Hz
    audio_seconds: float | None = None  # instead of the video's length
    subtitles: Sequence[tuple[float, float, str]] = ()  # (begin, end, text)
    subtitle_codec: str = "subrip"
    chapters: Sequence[tuple[float, float, str]] = ()
    attachments: Sequence[tuple[str, bytes]] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    video_tags: dict[str, str] = field(default_factory=dict)
    audio_tags: dict[str, str] = field(default_factory=dict)
    second_video: bool = False
    clock: float = 0.0  # seconds at which everything begins
    format: str | None = None
    container_options: dict[str, str] = field(default_factory=dict)

    @kept_scheduling()
    def write(self, path: Path) -> Path:
        """Makes the file."""
        with av.open(str(path), "w", format=self.format, container_options=self.container_options) as container:
            video = container.add_stream(self.codec, rate=round(1 / self.time_base), options=self.options)
            assert isinstance(video, av.VideoStream)
            first = self.frames[0] if self.frames is not None else None
            video.width, video.height = (first.width, first.height) if first is not None else self.size
            video.pix_fmt = self.pix_fmt
            context = video.codec_context
            context.time_base, context.gop_size = self.time_base, self.gop
            context.flags |= av.codec.context.Flags.frame_duration
            context.color_range = self.range
            context.colorspace, context.color_primaries, context.color_trc = self.color
            if self.aspect is not None:
                context.sample_aspect_ratio = self.aspect  # type: ignore[misc]
            if self.rotation:
                video.set_display_rotation(self.rotation)
            if self.matrix is not None:
                video.set_display_matrix(self.matrix)
            video.metadata.update(self.video_tags)
            other = container.add_stream("mjpeg", rate=1) if self.second_video else None
            if other is not None:
                other.width, other.height, other.pix_fmt = 32, 32, "yuvj420p"
            audio = container.add_stream(self.audio, rate=self.audio_rate) if self.audio else None
            if audio is not None:
                audio.metadata.update(self.audio_tags)
                if self.audio_bit_rate is not None:
                    audio.bit_rate = self.audio_bit_rate
            subtitle = container.add_mux_stream(self.subtitle_codec) if self.subtitles else None
            if subtitle is not None:
                subtitle.time_base = Fraction(1, 1000)
                subtitle.metadata["language"] = "swe"
            for name, data in self.attachments:
                container.add_attachment(name, "font/ttf", data)
            container.metadata.update(self.metadata)
            container.set_chapters(
                [
                    dict(
                        id=i,
                        start=round(b * 1000),
                        end=round(e * 1000),
                        time_base=Fraction(1, 1000),
                        metadata={"title": t},
                    )
                    for i, (b, e, t) in enumerate(self.chapters)
                ]
            )
            packets = list(self._video(video))
            if other is not None:
                still = av.VideoFrame(32, 32, "yuvj420p")
                still.pts, still.time_base = 0, Fraction(1, 1)
                packets += [*other.encode(still), *other.encode()]
            if audio is not None:
                packets += self._audio(audio)
            for begin, end, text in self.subtitles:
                packets.append(self._subtitle(subtitle, begin, end, text))
            packets.sort(key=lambda p: p.dts * p.time_base)
            for packet in packets:
                shift = round(Fraction(self.clock) / packet.time_base)
                packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                container.mux(packet)
        return path

    def _video(self, stream: Any) -> Iterator[Any]:
        noise = np.random.default_rng(7)
        ends = [*self.pts[1:], self.pts[-1] + self.last_duration]
        for number, (pts, end) in enumerate(zip(self.pts, ends, strict=True)):
            if self.frames is not None:
                frame = self.frames[number].reformat(format=self.pix_fmt)
            else:
                frame = av.VideoFrame(*self.size, self.pix_fmt)
                deep = frame.format.components[0].bits > 8
                for plane in frame.planes:
                    width = plane.line_size // 2 if deep else plane.line_size
                    ramp = np.add.outer(np.arange(plane.height) * 2, np.arange(width) * 3) + number * 5
                    levels = (ramp + noise.integers(0, 9, ramp.shape)) % 200 + 20
                    plane.update(
                        (levels * 4).astype(np.uint16).tobytes() if deep else levels.astype(np.uint8).tobytes()
                    )
            frame.pts, frame.time_base, frame.duration = pts, self.time_base, end - pts
            frame.pict_type = 0
            yield from stream.encode(frame)
        yield from stream.encode()

    def _audio(self, stream: Any) -> list[Any]:
        seconds = self.audio_seconds or float((self.pts[-1] + self.last_duration) * self.time_base)
        count = int(self.audio_rate * seconds)
        wave = (np.sin(np.arange(count) * 440 * 2 * np.pi / self.audio_rate) * 8000).astype(np.int16)
        packets = []
        for begin in range(0, count, 1024):
            part = wave[begin : begin + 1024]
            frame = av.AudioFrame.from_ndarray(np.stack([part, part], 1).reshape(1, -1), "s16", "stereo")
            frame.sample_rate, frame.pts, frame.time_base = self.audio_rate, begin, Fraction(1, self.audio_rate)
            packets += stream.encode(frame)
        return [*packets, *stream.encode()]

    def _subtitle(self, stream: Any, begin: float, end: float, text: str) -> Any:
        data = text.encode()
        packet = av.Packet(len(data).to_bytes(2, "big") + data if self.subtitle_codec == "mov_text" else data)
        packet.stream, packet.time_base = stream, Fraction(1, 1000)
        packet.pts = packet.dts = round(begin * 1000)
        packet.duration = round((end - begin) * 1000)
        return packet


def repeated(source: Path, target: Path, count: int) -> Path:
    """Makes a video of the packets of another one, several times after each other. Sound that overlaps is left out."""
    with av.open(str(target), "w") as to, av.open(str(source)) as container:
        copies = {stream.index: to.add_stream_from_template(stream) for stream in container.streams}
        length, last = Fraction(container.duration or 0, 1_000_000), dict.fromkeys(copies, -math.inf)
        packets = [packet for packet in container.demux() if packet.size]
        for number, packet in itertools.product(range(count), packets):
            copy, unit = av.Packet(bytes(packet)), packet.time_base
            shift = round(number * length / unit)
            copy.pts, copy.dts, copy.time_base = packet.pts + shift, packet.dts + shift, unit
            copy.duration, copy.is_keyframe = packet.duration, packet.is_keyframe
            copy.stream = copies[packet.stream_index]
            if copy.dts > last[packet.stream_index]:
                last[packet.stream_index] = copy.dts
                to.mux(copy)
    return target


def real_frames(path: Path, count: int, *, size: tuple[int, int], pix_fmt: str) -> list[av.VideoFrame]:
    """The first frames of a real video, in another size and format."""
    width, height = size
    return [p.frame.reformat(width, height, pix_fmt) for p in pictures(path, limit=count)]


def video_info(size: tuple[int, int] = (96, 64), **others: Any) -> VideoInfo:
    """What `probe` would say of a video that nobody has made: 30 fps, BT.709, limited range."""
    fields: dict[str, Any] = dict(
        source=Source.parse("synthetic"),
        stream_index=0,
        width=size[0],
        height=size[1],
        pix_fmt="yuv420p",
        codec="h264",
        color=Color(1, LIMITED, 1, 1),
        time_base=Fraction(1, 30),
        rate=Fraction(30),
        start=Fraction(0),
        frames=0,
        frames_exact=False,
        end=None,
        sample_aspect_ratio=None,
        display_matrix=None,
        rotation=0,
        interlaced=False,
    )
    return VideoInfo(**fields | others)
