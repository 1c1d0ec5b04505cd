"""The clips that the benchmarks measure on: a source scaled and encoded once, then repeated to any length."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
from av.video.frame import PictureType
from av.video.reformatter import ColorRange, Colorspace


@dataclass(frozen=True)
class Codec:
    """How clips are encoded: with which library, how fast, and into which container."""

    library: str
    suffix: str
    options: dict[str, str]
    parameters: str = ""  # the option that takes what FFmpeg has no name for
    quiet: tuple[str, ...] = ()  # further ones of those, always given
    fixed: tuple[str, ...] = ()  # and those for groups of pictures of one length


_X26X_FIXED = ("keyint={gop}", "min-keyint={gop}", "scenecut=0", "open-gop=0", "bframes=3")
CODECS = {
    "h264": Codec("libx264", ".mp4", {"preset": "veryfast", "crf": "20"}, "x264-params", fixed=_X26X_FIXED),
    "hevc": Codec(
        *("libx265", ".mp4", {"preset": "ultrafast", "crf": "22"}, "x265-params"),
        quiet=("log-level=none",), fixed=_X26X_FIXED,
    ),
    "vp9": Codec(
        "libvpx-vp9", ".webm",
        {"deadline": "realtime", "cpu-used": "8", "row-mt": "1", "tile-columns": "2", "crf": "24", "b": "0"},
    ),
}  # fmt: skip


def make_clip(
    source: str,
    frames: int,
    size: tuple[int, int],
    folder: Path,
    *,
    codec: str = "h264",
    rate: int | None = None,
    gop: int | None = None,
    encode: int | None = None,
) -> Path:
    """`source` scaled to `size` (width, height), repeated to `frames` frames, in one of `CODECS`: BT.709, in `folder`.

    `rate` in frames a second replaces the source's own. `gop` is the fixed length of its groups of pictures, which are
    closed and, but for VP9, have 3 B-frames between others; without it the encoder sets keyframes where it likes. At
    most `encode` frames are encoded: longer clips repeat them.
    """
    suffix = CODECS[codec].suffix
    name = f"{Path(source).stem}-{size[0]}x{size[1]}" + (f"-{codec}" if codec != "h264" else "")
    name += f"-gop{gop}" if gop else ""
    target = folder / f"{name}-{frames}{suffix}"
    if not target.exists():
        count = min(frames, encode or frames)
        once = folder / f"{name}-once-{count}{suffix}"
        if not once.exists():
            _encode(source, count, size, CODECS[codec], rate, gop, once)
        lengthen(once, frames, target)
    return target


def lengthen(clip: Path, frames: int, target: Path) -> None:
    """Writes the packets of `clip`, again and again with later times, until there are `frames` of them.

    Should the end fall within a group of pictures, frames that are shown before the last one may be missing.
    """
    part = target.with_suffix(f".part{target.suffix}")
    with av.open(str(clip)) as given, av.open(str(part), "w") as made:
        stream = given.streams.video[0]
        packets = [packet for packet in given.demux(stream) if packet.size]
        length = max(p.pts + p.duration for p in packets) - min(p.pts for p in packets)
        copy = made.add_stream_from_template(stream)
        for i in range(frames):
            original, shift = packets[i % len(packets)], i // len(packets) * length
            packet = av.Packet(bytes(original))
            packet.pts, packet.dts, packet.duration = original.pts + shift, original.dts + shift, original.duration
            packet.stream, packet.time_base, packet.is_keyframe = copy, stream.time_base, original.is_keyframe
            made.mux(packet)
    part.replace(target)


def _encode(
    source: str, frames: int, size: tuple[int, int], codec: Codec, rate: int | None, gop: int | None, target: Path
) -> None:
    part = target.with_suffix(f".part{target.suffix}")
    parameters = (*codec.quiet, *(p.format(gop=gop) for p in codec.fixed if gop is not None))
    options = codec.options | ({codec.parameters: ":".join(parameters)} if parameters else {})
    with av.open(source) as given, av.open(str(part), "w") as made:
        given.streams.video[0].thread_type = "AUTO"
        frequency = Fraction(rate) if rate is not None else given.streams.video[0].average_rate
        stream = made.add_stream(codec.library, rate=frequency, options=options)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt, context.time_base = *size, "yuv420p", 1 / frequency
        context.colorspace = context.color_primaries = context.color_trc = Colorspace.ITU709
        context.color_range = ColorRange.MPEG
        if gop is not None:
            context.gop_size = gop
        for i, frame in enumerate(islice(given.decode(video=0), frames)):
            picture = frame.reformat(*size, "yuv420p", None, Colorspace.ITU709, dst_color_range=ColorRange.MPEG)
            picture.pts, picture.time_base = i, context.time_base
            picture.pict_type = PictureType.NONE  # else the encoder would take over where the source has its keyframes
            made.mux(stream.encode(picture))
        made.mux(stream.encode())
    part.replace(target)
