"""EXIF data of pictures: the orientation, as a display matrix too (CIPA DC-008, 4.6.4), and what else there is."""

import re

from segmentation.frames.orientation import Orientation
from segmentation.media.pictures.tiff import EXIF, ORIENTATION, PLACE, orientation, tags

_TURNS = {2: (0, True), 3: (2, False), 4: (2, True), 5: (3, True), 6: (3, False), 7: (1, True), 8: (1, False)}
_NAME = b"Exif\0\0"  # begins EXIF data in JPEG
_TIFF = (b"II", b"MM")
_IN_HEIF = re.compile(rb"infe.{8,10}Exif", re.DOTALL)  # an item's kind, ISO/IEC 14496-12, 8.11.6
_XMP = b"<x:xmpmeta"


def turned(exif: bytes) -> Orientation:
    """Returns how a picture with this EXIF data stands upright."""
    return Orientation(*_TURNS.get(orientation(exif.removeprefix(_NAME)), (0, False)))


def exif_of(data: bytes) -> bytes:
    """Returns the EXIF data of a coded picture: JPEG, PNG, WebP or TIFF; none where it has none."""
    if data[:2] in _TIFF:
        return data
    if data[:2] == b"\xff\xd8":
        at = data.find(_NAME)
        return data[at:] if at >= 4 and data[at - 4 : at - 2] == b"\xff\xe1" else b""
    is_png = data[:4] == b"\x89PNG"
    at = data.find(b"eXIf" if is_png else b"EXIF") if is_png or data[:4] == b"RIFF" else -1
    return b"" if at < 0 else data[at + (4 if is_png else 8) :]


def metadata_of(data: bytes) -> str:
    """Returns the names of a coded picture's EXIF data, if they say more than the orientation, and XMP; or ""."""
    exif = exif_of(data)
    found = tags(exif.removeprefix(_NAME))
    found &= {EXIF, PLACE} if data[:2] in _TIFF else found - {ORIENTATION}
    names = ["EXIF with the place" if PLACE in found else "EXIF"] if found or _IN_HEIF.search(data) else []
    return " and ".join([*names, *(["XMP"] if _XMP in data else [])])


def matrix_of(shown: Orientation) -> tuple[int, ...] | None:
    """Returns FFmpeg's display matrix of an orientation, 9 integers; `None` for upright pictures."""
    if shown == Orientation(0, False):
        return None
    one = 1 << 16
    cos, sin = ((one, 0), (0, one), (-one, 0), (0, -one))[shown.turns]
    across = -1 if shown.mirrored else 1
    return (across * cos, -sin, 0, across * sin, cos, 0, 0, 0, 1 << 30)
