"""Reads what MP4 files state in boxes that FFmpeg keeps to itself. See ISO/IEC 14496-12."""

import struct
from collections.abc import Collection, Iterator
from fractions import Fraction
from io import RawIOBase
from typing import BinaryIO

from segmentation.frames.source import Source

_MOST_BOXES = 100_000  # a file of nothing but empty boxes would take minutes
UNKNOWN = {0, (1 << 32) - 1, (1 << 64) - 1}  # durations that state none


def boxes(file: BinaryIO | RawIOBase, inside: Collection[bytes]) -> Iterator[tuple[bytes, int, int]]:
    """Yields each box of a file as (type, where its content begins, where it ends), and those in boxes of `inside`.

    Raises `OSError`, and `struct.error` where the file is cut off.
    """
    file.seek(0, 2)
    open_boxes = [(0, file.tell())]  # (position of the next box, end of the box around it)
    for _ in range(_MOST_BOXES):
        while open_boxes and open_boxes[-1][0] + 8 > open_boxes[-1][1]:
            open_boxes.pop()
        if not open_boxes:
            return
        begin, limit = open_boxes.pop()
        file.seek(begin)
        size, kind = struct.unpack(">I4s", file.read(8) or b"")
        header = 8
        if size == 1:  # the size follows, in 64 bits
            header, size = 16, struct.unpack(">Q", file.read(8) or b"")[0]
        end = min(begin + size, limit) if size >= header else limit  # 0: up to the end
        yield kind, begin + header, end
        open_boxes.append((end, limit))
        if kind in inside:
            open_boxes.append((begin + header + (8 if kind == b"stsd" else 0), end))


def track_length(source: Source, track: int) -> Fraction | None:
    """Returns how long a track is shown in seconds, with its edit list, or `None` if the file does not state that."""
    if source.is_read_once:
        return None
    try:
        with source.open() as file:
            ticks = 0  # a second
            for kind, begin, _ in boxes(file, {b"moov", b"trak"}):
                if kind == b"mvhd":
                    ticks, _ = numbers(file, begin, between=0)
                elif kind == b"tkhd":
                    number, length = numbers(file, begin, between=4)
                    if number == track:
                        return Fraction(length, ticks) if ticks and length not in UNKNOWN else None
    except (OSError, struct.error):
        pass  # FFmpeg has opened the file, and says what is wrong with it
    return None


def numbers(file: BinaryIO | RawIOBase, begin: int, *, between: int) -> tuple[int, int]:
    """Returns the number after the two dates of a header, and the duration, `between` bytes after it."""
    file.seek(begin)
    version = (file.read(1) or b"\0")[0]
    file.seek(begin + (20 if version else 12))
    (number,) = struct.unpack(">I", file.read(4) or b"")
    file.seek(between, 1)
    (length,) = struct.unpack(">Q" if version else ">I", file.read(8 if version else 4) or b"")
    return number, length
