"""Directories of TIFF files, of which EXIF data is one: a picture's orientation, color profile and further pages."""

import logging
import struct
from collections.abc import Iterator

log = logging.getLogger(__name__)

Directory = dict[int, bytes]  # values, as they are stored, by tag

ORIENTATION, EXIF, PLACE = 0x0112, 0x8769, 0x8825  # CIPA DC-008, tables 3 and 4: the last two lead to directories
_PROFILE, _SUBFILE = 0x8773, 0x00FE  # TIFF 6.0, and ICC.1 annex B for the profile
_REDUCED = 1  # the subfile's bit of a thumbnail
_SIZES = {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}  # bytes by type, else 1


def orientation(data: bytes) -> int:
    """Returns EXIF's orientation, 1 to 8, of a TIFF file or EXIF data; 1, as it is, if there is none."""
    return _number(data, next(_directories(data), {}).get(ORIENTATION, b"")) or 1


def tags(data: bytes) -> set[int]:
    """Returns the tags of a TIFF file's first page, or of EXIF data."""
    return set(next(_directories(data), {}))


def profile(data: bytes) -> bytes | None:
    """Returns the ICC profile of a TIFF file's first page, `None` if there is none."""
    return next(_directories(data), {}).get(_PROFILE)


def warn_of_pages(data: bytes, path: str) -> None:
    """Warns of the pages of a TIFF file behind its first. Thumbnails are none."""
    pages = sum(not _number(data, found.get(_SUBFILE, b"")) & _REDUCED for found in _directories(data))
    if pages > 1:
        log.warning("%s: has %d pages; the first is read", path, pages)


def _number(data: bytes, value: bytes) -> int:
    return int.from_bytes(value, "big" if data[:2] == b"MM" else "little")


def _directories(data: bytes) -> Iterator[Directory]:
    """Yields the directories one after the other, up to the first that is cut off or came before."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None or len(data) < 8:
        return
    big = data[2:4] in (b"+\0", b"\0+")  # BigTIFF
    count, entry, offset = ("Q", "HHQ8s", "Q") if big else ("H", "HHI4s", "I")
    begins: set[int] = set()
    try:
        (begin,) = struct.unpack_from(order + offset, data, 8 if big else 4)
        while begin and begin not in begins:
            begins.add(begin)
            (entries,) = struct.unpack_from(order + count, data, begin)
            begin += struct.calcsize(order + count)
            size = struct.calcsize(order + entry)
            (end,) = struct.unpack_from(order + offset, data, begin + entries * size)
            fields = struct.iter_unpack(order + entry, data[begin : begin + entries * size])
            yield {tag: _value(data, order + offset, kind, number, stored) for tag, kind, number, stored in fields}
            begin = end
    except struct.error:
        return


def _value(data: bytes, offset: str, kind: int, number: int, stored: bytes) -> bytes:
    """Returns a field's value, which lies elsewhere where it is longer than its place."""
    length = _SIZES.get(kind, 1) * number
    if length <= len(stored):
        return stored[:length]
    (at,) = struct.unpack(offset, stored)
    return data[at : at + length]
