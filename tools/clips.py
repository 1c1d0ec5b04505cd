"""The clips that the benchmarks measure on: a source scaled and encoded once, then repeated to any length."""

from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
from av.video.frame import PictureType
from av.video.reformatter import ColorRange, Colorspace


def make_clip(
    source: str,
    frames: int,
    size: tuple[int, int],
    folder: Path,
    *,
    rate: int | None = None,
    gop: int | None = None,
    encode: int | None = None,
) -> Path:
    """`source` scaled to `size` (width, height), repeated to `frames` frames: H.264, BT.709, in `folder`.

    `rate` in frames a second replaces the source's own. `gop` is the fixed length of its groups of pictures, which are
    closed and have 3 B-frames between others; without it libx264 sets keyframes where it likes, 250 apart at the most.
    At most `encode` frames are encoded: longer clips repeat them.
    """
    name = f"{Path(source).stem}-{size[0]}x{size[1]}" + (f"-gop{gop}" if gop else "")
    target = folder / f"{name}-{frames}.mp4"
    if not target.exists():
        count = min(frames, encode or frames)
        once = folder / f"{name}-once-{count}.mp4"
        if not once.exists():
            _encode(source, count, size, rate, gop, once)
        lengthen(once, frames, target)
    return target


def lengthen(clip: Path, frames: int, target: Path) -> None:
    """Writes the packets of `clip`, again and again with later times, until there are `frames` of them.

    Should the end fall within a group of pictures, frames that are shown before the last one may be missing.
    """
    part = target.with_suffix(".part.mp4")
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


def _encode(source: str, frames: int, size: tuple[int, int], rate: int | None, gop: int | None, target: Path) -> None:
    part = target.with_suffix(".part.mp4")
    options = {"preset": "veryfast", "crf": "20"}
    if gop is not None:
        options["x264-params"] = f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes=3"
    with av.open(source) as given, av.open(str(part), "w") as made:
        given.streams.video[0].thread_type = "AUTO"
        frequency = Fraction(rate) if rate is not None else given.streams.video[0].average_rate
        stream = made.add_stream("libx264", rate=frequency, options=options)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt, context.time_base = *size, "yuv420p", 1 / frequency
        context.colorspace = context.color_primaries = context.color_trc = Colorspace.ITU709
        context.color_range = ColorRange.MPEG
        for i, frame in enumerate(islice(given.decode(video=0), frames)):
            picture = frame.reformat(*size, "yuv420p", None, Colorspace.ITU709, dst_color_range=ColorRange.MPEG)
            picture.pts, picture.time_base = i, context.time_base
            picture.pict_type = PictureType.NONE  # else libx264 would take over where the source has its keyframes
            made.mux(stream.encode(picture))
        made.mux(stream.encode())
    part.replace(target)
