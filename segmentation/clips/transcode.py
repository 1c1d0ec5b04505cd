"""Encodes videos anew for training: upright, small, with keyframes close to each other."""

from __future__ import annotations  # PyAV's types are generic for type checkers only

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import av.error
from av.filter import Graph
from av.video.frame import PictureType, VideoFrame
from av.video.stream import VideoStream

from segmentation.clips.index import interlaced
from segmentation.clips.output import colored, upright_filters
from segmentation.errors import ConfigError, InputError, OutputError, one_line
from segmentation.frames import VideoInfo
from segmentation.frames.orientation import Orientation
from segmentation.media.containers import open_for_writing
from segmentation.media.demux import demuxed
from segmentation.media.opening.open_input import decoder_options, open_input
from segmentation.media.opening.probe import probe
from segmentation.media.source_packets import decoded
from segmentation.options.config import Config
from segmentation.stages.decode.timestamps import Timeline
from segmentation.stages.encode.codec_settings import describe_context
from segmentation.system.access import Access
from segmentation.system.atomic_file import PendingFile
from segmentation.system.cores import kept_scheduling

_MAKER = "segmentation-clips"  # in the comment of files, so that others' comments are not read


@dataclass(frozen=True, slots=True)
class TrainingCodec:
    """How FFmpeg encodes a codec here. In its options, {g} is the distance of keyframes."""

    library: str
    suffix: str
    crf: int  # by default
    worst: int  # the highest crf
    options: dict[str, str]
    fixed: dict[str, str]  # options that are added where keyframes are not to be at cuts
    tag: str | None = None


_HEVC = "log-level=none:open-gop=0:keyint={g}"
CODECS = {
    "h264": TrainingCodec("libx264", ".mp4", 18, 51, {"preset": "medium"}, {"x264-params": "scenecut=0"}),
    "hevc": TrainingCodec(
        "libx265", ".mp4", 20, 51, {"preset": "fast", "x265-params": f"{_HEVC}:min-keyint=1"},
        {"x265-params": f"{_HEVC}:min-keyint={{g}}:scenecut=0"}, tag="hvc1",
    ),
    "vp9": TrainingCodec(
        "libvpx-vp9", ".webm", 28, 63, {"b": "0", "deadline": "good", "cpu-used": "4", "row-mt": "1"},
        {"keyint_min": "{g}"},
    ),
    "av1": TrainingCodec("libsvtav1", ".mp4", 30, 63, {"preset": "8"}, {}),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How videos are encoded anew. Raises `ConfigError` for values that can't be."""

    codec: str = "h264"  # or hevc, vp9, av1
    keyframes: int = 16  # frames from one to the next, at most
    scenes: bool = False  # whether the encoder sets more keyframes, where scenes are cut
    size: tuple[int, int] | None = None  # pixels, height and width (of upright videos the reverse), at most
    rate: Fraction | None = None  # frames a second; None: all frames, with their times
    crf: int | None = None  # the codec's quality, less is better; None: the codec's default here

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ConfigError(f"codec {self.codec!r}: must be one of {', '.join(CODECS)}")
        if self.keyframes < 1:
            raise ConfigError(f"keyframes {self.keyframes}: must be at least 1")
        if self.scenes and self.codec == "av1":
            raise ConfigError("scenes: SVT-AV1 does not look for cuts; choose another codec")
        if self.size is not None and min(self.size) < 16:
            raise ConfigError(f"size {self.size[1]}x{self.size[0]}: must be at least 16x16")
        if self.rate is not None and not 0 < self.rate <= 1000:
            raise ConfigError(f"rate {self.rate}: must lie above 0, up to 1000")
        if self.crf is not None and not 0 <= self.crf <= CODECS[self.codec].worst:
            raise ConfigError(f"crf {self.crf}: must lie in 0 to {CODECS[self.codec].worst} for {self.codec}")

    @property
    def suffix(self) -> str:
        """The files' suffix."""
        return CODECS[self.codec].suffix

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width, both even, of a picture that is scaled to fit, and never enlarged."""
        ratio = Fraction(1)
        if self.size is not None:
            most = (max(self.size), min(self.size)) if height > width else (min(self.size), max(self.size))
            ratio = min(ratio, Fraction(most[0], height), Fraction(most[1], width))
        rows, columns = (max(2, round(side * ratio / 2) * 2) for side in (height, width))
        return rows, columns

    def options(self) -> dict[str, str]:
        """Returns FFmpeg's options for the codec."""
        codec = CODECS[self.codec]
        crf = codec.crf if self.crf is None else self.crf
        options = codec.options | ({} if self.scenes else codec.fixed) | {"crf": str(crf), "g": str(self.keyframes)}
        return {name: value.format(g=self.keyframes) for name, value in options.items()}


@dataclass(frozen=True, slots=True)
class Transcoded:
    """A file that was made, or had been made before."""

    source: str
    target: str
    frames: int
    bytes: int
    source_bytes: int
    skipped: bool  # whether it had been made before


def transcode(
    source: str,
    target: Path,
    recipe: Recipe,
    *,
    overwrite: bool = False,
    threads: int = 0,
    advance: Callable[[int, int], None] = lambda done, expected: None,
    stop: threading.Event | None = None,
) -> Transcoded:
    """Encodes a video anew. A file that the same recipe has made of the same source is left as it is.

    The picture is upright, with 8 bits in 4:2:0, as are the source's colors; there is no sound. `threads` for the
    encoder, 0 as many as there are cores. `advance` is called with the frames done and expected. Raises `InputError`
    for sources that are damaged, interlaced or encrypted, and where `stop` was set, and `OutputError`; nothing is
    written then.
    """
    state = os.stat(source) if os.path.exists(source) else None
    size = state.st_size if state else 0
    made_by = {"by": _MAKER, **asdict(recipe), "rate": str(recipe.rate), "source": [size, state and state.st_mtime_ns]}
    comment = json.dumps(made_by)
    if (frames := _frames_of(target, comment)) is not None:
        return Transcoded(source, str(target), frames, target.stat().st_size, size, skipped=True)
    info = probe(source)
    if info.interlaced:
        raise interlaced(source)
    with PendingFile(target, overwrite=overwrite) as pending:
        pending.check("the folder")
        try:
            pending.create()
            frames = _encode(info, pending, recipe, comment, threads, _Watch(info, recipe, advance, stop))
            pending.commit()
        except (OSError, ValueError) as exc:  # FFmpeg's errors are some of both
            raise OutputError(f"{target}: cannot be written ({one_line(exc)})") from exc
    return Transcoded(source, str(target), frames, target.stat().st_size, size, skipped=False)


def _frames_of(target: Path, comment: str) -> int | None:
    """Returns the frames of a file with this comment; `None` if there is no such file."""
    if not target.is_file():
        return None
    try:
        with av.open(str(target)) as container:
            if container.metadata.get("comment", container.metadata.get("COMMENT")) != comment:
                return None
            return sum(
                1 for packet in demuxed(container, container.streams.video[0]) if packet.size and not packet.is_discard
            )
    except av.error.FFmpegError:
        return None


class _Watch:
    """Follows the frames of one source: reports progress, and ends the work if it is to stop."""

    def __init__(
        self, info: VideoInfo, recipe: Recipe, advance: Callable[[int, int], None], stop: threading.Event | None
    ) -> None:
        self._path, self._advance, self._stop = info.path, advance, stop
        ratio = Fraction(1) if recipe.rate is None else recipe.rate / info.rate
        self._expected = round(info.frames * ratio)

    def __call__(self, frames: int) -> None:
        if self._stop is not None and self._stop.is_set():
            raise InputError(f"{self._path}: was not finished")
        self._advance(frames, self._expected)


def _encode(info: VideoInfo, file: PendingFile, recipe: Recipe, comment: str, threads: int, watch: _Watch) -> int:
    """Writes the file; returns its frames."""
    codec = CODECS[recipe.codec]
    height, width = recipe.fitted(*info.upright_size[::-1])
    ratio = info.sample_aspect_ratio
    if ratio and info.orientation.sideways:
        ratio = 1 / ratio
    made = replace(
        info,
        rate=recipe.rate or info.rate,
        time_base=info.time_base if recipe.rate is None else 1 / recipe.rate,
        sample_aspect_ratio=ratio,
    )
    count = 0
    options = {"movflags": "+faststart"} if recipe.suffix == ".mp4" else {}
    with open_for_writing(file.address, file.target.name, options) as container:
        container.metadata["comment"] = comment
        stream = container.add_stream(codec.library, options=recipe.options())
        assert isinstance(stream, VideoStream)
        context = stream.codec_context
        describe_context(context, made, codec.tag)
        stream.time_base = made.time_base
        context.width, context.height, context.pix_fmt, context.thread_count = width, height, "yuv420p", threads
        with kept_scheduling():
            context.open()
        for picture in _pictures(info, (height, width), recipe.rate):
            picture.pict_type = PictureType.NONE  # else the encoder takes over where the source has its keyframes
            container.mux(stream.encode(picture))
            count += 1
            watch(count)
        if not count:  # FFmpeg's filter rounds the end of a frame that is shorter than half a new one to its beginning
            raise InputError(f"{info.path}: is shorter than half a frame at {recipe.rate} a second; name another rate")
        container.mux(stream.encode(None))
    return count


def _pictures(info: VideoInfo, size: tuple[int, int], rate: Fraction | None) -> Iterator[VideoFrame]:
    """Yields the frames of a video, upright, of one size and at one rate. Raises `InputError` for damage."""
    graph: Graph | None = None
    form: tuple[int, int, str] | None = None  # of the graph's input
    for frame in _frames(info):
        own = frame.width, frame.height, frame.format.name
        if graph is None or own != form:
            if graph is not None:
                yield from _rest(graph)
            graph, form = _graph(frame, info.orientation, size, rate), own
        graph.push(frame)
        yield from _ready(graph)
    if graph is not None:
        yield from _rest(graph)


def _frames(info: VideoInfo) -> Iterator[VideoFrame]:
    with open_input(info.path, info.access) as container:
        stream = container.streams[info.stream_index]
        assert isinstance(stream, VideoStream)
        stream.codec_context.options = decoder_options(Access())
        stream.thread_type = "AUTO"
        number = 0
        timeline = Timeline(info, Config())
        try:
            for frame in decoded(container, stream):
                if frame.interlaced_frame:
                    raise interlaced(info.path)
                if frame.is_corrupt:
                    raise InputError(f"{info.path}: frame {number} is damaged")
                frame.pts = timeline.place(None if info.decoding_times else frame.pts)
                yield frame
                number += 1
        except av.error.FFmpegError as exc:
            raise InputError(f"{info.path}: frame {number} can't be decoded ({one_line(exc)})") from exc
    if info.frames_exact and number < info.frames:
        raise InputError(f"{info.path}: has {number} frames that can be decoded of {info.frames}")


def _graph(frame: VideoFrame, orientation: Orientation, size: tuple[int, int], rate: Fraction | None) -> Graph:
    """Returns filters that turn, scale and repeat or leave out frames like this one."""
    graph = Graph()
    nodes = colored(graph, frame, frame.time_base or Fraction(1, 1000))
    if rate is not None:
        nodes.append(graph.add("fps", str(rate)))
    rows, columns = orientation.size(*size)
    nodes.append(graph.add("scale", f"{columns}:{rows}:flags=area+accurate_rnd"))
    nodes.append(graph.add("format", "yuv420p"))
    nodes += [graph.add(*step) for step in upright_filters(orientation)]
    graph.link_nodes(*nodes, graph.add("buffersink")).configure()
    return graph


def _ready(graph: Graph) -> Iterator[VideoFrame]:
    while True:
        try:
            frame = graph.pull()
        except (av.error.BlockingIOError, av.error.EOFError):
            return
        assert isinstance(frame, VideoFrame)
        yield frame


def _rest(graph: Graph) -> Iterator[VideoFrame]:
    graph.push(None)
    yield from _ready(graph)
