"""Writes edit lists of MP4 files, which FFmpeg's muxer does not let one choose."""

import struct
from collections.abc import Sequence
from pathlib import Path

Edit = tuple[float, float | None]  # seconds shown, and the second at which they begin; `None`: nothing is shown


def edited(source: Path, edits: Sequence[Edit], target: Path) -> Path:
    """Writes an MP4 of one stream, whose index lies at its end, with other edits. The source must have one edit."""
    data = bytearray(source.read_bytes())
    boxes = {name: data.rindex(name) - 4 for name in (b"moov", b"trak", b"edts", b"elst", b"mvhd", b"mdhd")}
    movie, media = (struct.unpack_from(">I", data, boxes[name] + 20)[0] for name in (b"mvhd", b"mdhd"))
    at = boxes[b"elst"]
    (size,) = struct.unpack_from(">I", data, at)
    (first,) = struct.unpack_from(">i", data, at + 20)  # where the only entry begins, in the media's ticks
    entries = b""
    for long, begin in edits:
        entry = -1 if begin is None else round(begin * media) + first
        entries += struct.pack(">Iihh", round(long * movie), entry, 1, 0)
    box = struct.pack(">I4sII", 16 + 12 * len(edits), b"elst", 0, len(edits)) + entries
    data[at : at + size] = box
    for name in (b"moov", b"trak", b"edts"):  # they lie behind all pictures, so nothing else moves
        (long,) = struct.unpack_from(">I", data, boxes[name])
        struct.pack_into(">I", data, boxes[name], long + len(box) - size)
    target.write_bytes(data)
    return target
