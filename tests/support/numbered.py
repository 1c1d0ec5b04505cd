"""Videos whose frames differ from each other, and what FFmpeg decodes of any video."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from barcode import drawn


def numbered(
    path: Path,
    count: int,
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    *,
    size: tuple[int, int] = (160, 96),
    times: Sequence[int] = (),
    pix_fmt: str = "yuv420p",
) -> Path:
    """Makes a video of `count` frames that carry their numbers. `times` in 30ths of a second; by default one each.

    Its pictures are the same each time it is made.
    """
    with av.open(str(path), "w") as container:
        cuts = {"sc_threshold": "0"} if codec == "libx264" else {}  # to x264 each frame could be one
        stream: Any = container.add_stream(codec, rate=30, options=cuts | (options or {}))
        stream.width, stream.height = size
        stream.pix_fmt = pix_fmt
        stream.codec_context.time_base = Fraction(1, 30)
        for number, time in zip(range(count), times or range(count), strict=True):
            frame = drawn(number, size, number / 30).reformat(format=pix_fmt)
            frame.pts, frame.time_base = time, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def damage(path: Path, number: int) -> None:
    """Overwrites a third of a packet, counted from 0 in decoding order."""
    with av.open(str(path)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][number]
    assert packet.pos is not None
    data, at, size = bytearray(path.read_bytes()), packet.pos + packet.size // 3 + 8, max(4, packet.size // 3)
    data[at : at + size] = bytes(size)
    path.write_bytes(data)


def all_frames(path: Path) -> list[av.VideoFrame]:
    """All frames of the first video, in the order in which they are shown."""
    with av.open(str(path)) as container:
        return list(container.decode(video=0))
