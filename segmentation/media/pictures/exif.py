"""EXIF's orientation of pictures, and the display matrix that says the same (CIPA DC-008, 4.6.4)."""

from segmentation.frames.orientation import Orientation
from segmentation.media.pictures.tiff import orientation

_TURNS = {2: (0, True), 3: (2, False), 4: (2, True), 5: (3, True), 6: (3, False), 7: (1, True), 8: (1, False)}
_NAME = b"Exif\0\0"  # begins EXIF data in JPEG
_TIFF = (b"II", b"MM")


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


def matrix_of(shown: Orientation) -> tuple[int, ...] | None:
    """Returns FFmpeg's display matrix of an orientation, 9 integers; `None` for upright pictures."""
    if shown == Orientation(0, False):
        return None
    one = 1 << 16
    cos, sin = ((one, 0), (0, one), (-one, 0), (0, -one))[shown.turns]
    across = -1 if shown.mirrored else 1
    return (across * cos, -sin, 0, across * sin, cos, 0, 0, 0, 1 << 30)
