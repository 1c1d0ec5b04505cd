"""HEIF pictures: AVIF by OpenCV, HEIC by libheif of the extra `heif`.

Phones store them as tiles, which FFmpeg's demuxer gives as streams of their own, without their places.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from numpy.typing import NDArray

from segmentation.errors import InputError, one_line
from segmentation.media.pictures.lossless import lossless_video
from segmentation.system.access import check_size
from segmentation.system.imports import imported
from segmentation.system.installation import install

BRANDS = ("avif", "mif1", "heic", "heix", "heim", "heis")  # major brands of single pictures

_SHOWN = 40  # milliseconds, as FFmpeg shows pictures


@dataclass(frozen=True, slots=True)
class HeifPicture:
    """A picture, upright."""

    pixels: NDArray[np.uint8]  # (H, W, 3) RGB, or (H, W, 4) with straight alpha
    profile: bytes | None  # ICC
    bits: int  # that the file has a sample


def is_heif(path: str) -> bool:
    """Returns whether a file is a HEIF picture, by its first bytes."""
    if not Path(path).is_file():  # opening a pipe would wait for its writer
        return False
    try:
        with Path(path).open("rb") as file:
            begin = file.read(12)
    except OSError:  # reported where the file is opened
        return False
    return begin[4:8] == b"ftyp" and begin[8:].decode("latin-1") in BRANDS


def is_tiled(container: InputContainer) -> bool:
    """Returns whether an opened file is a picture of tiles."""
    return container.metadata.get("major_brand", "").strip() in BRANDS and any(
        stream.disposition & Disposition.dependent for stream in container.streams.video
    )


def open_heif(path: str, max_pixels: int) -> InputContainer:
    """Returns the picture as a lossless video of one frame. Raises as `read_heif`."""
    pixels = read_heif(path, max_pixels).pixels
    order = [2, 1, 0, 3][: pixels.shape[2]]
    return lossless_video([pixels[..., order]], [_SHOWN])


def read_heif(path: str, max_pixels: int) -> HeifPicture:
    """Reads a picture.

    Raises `InputError` if it is damaged, has more than `max_pixels`, or needs a library that is not installed.
    """
    data = Path(path).read_bytes()
    for size in _properties(data, b"ispe"):  # of the tiles and of the whole
        if len(size) >= 12:
            width, height = struct.unpack_from(">4xII", size)
            check_size(width, height, path, max_pixels)
    return _read_avif(path, data) if _properties(data, b"av1C") else _read_heic(path, max_pixels)


def _read_avif(path: str, data: bytes) -> HeifPicture:
    """Reads a picture of AV1. OpenCV leaves depth, rotation, mirroring and profile to the caller."""
    level = cv2.utils.logging.setLogLevel(0)  # OpenCV would print lines of its own
    try:
        found = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as exc:
        raise InputError(f"{path}: can't be read ({one_line(exc)})") from exc
    finally:
        cv2.utils.logging.setLogLevel(level)
    if found is None:
        raise InputError(f"{path}: is damaged or cut off")
    deep, twelve = (bool(_properties(data, b"av1C")[0][2] & bit) for bit in (0x40, 0x20))  # AV1-ISOBMFF, 2.3.3
    bits = 8 + 2 * deep + 2 * (deep and twelve)
    if found.dtype == np.uint16:
        found = np.rint(found * np.float32(255 / ((1 << bits) - 1))).astype(np.uint8)
    if found.ndim == 2:
        pixels = cv2.cvtColor(found, cv2.COLOR_GRAY2RGB)
    else:
        pixels = cv2.cvtColor(found, cv2.COLOR_BGR2RGB if found.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    for turns in _properties(data, b"irot")[:1]:  # quarters counter-clockwise, ISO/IEC 23008-12, 6.5.10
        pixels = np.rot90(pixels, turns[0] & 3)
    for axis in _properties(data, b"imir")[:1]:  # 0: top to bottom, 6.5.12
        pixels = pixels[:, ::-1] if axis[0] & 1 else pixels[::-1]
    profiles = [color[4:] for color in _properties(data, b"colr") if color[:4] in (b"prof", b"rICC")]
    return HeifPicture(np.ascontiguousarray(pixels, np.uint8), profiles[0] if profiles else None, bits)


def _read_heic(path: str, max_pixels: int) -> HeifPicture:
    """Reads a picture of HEVC."""
    try:
        library = imported("pi_heif")
    except ModuleNotFoundError as exc:
        raise InputError(f"{path}: HEIC pictures need pi-heif; {install('heif')}, or make it a JPEG or PNG") from exc
    try:
        found = library.open_heif(path)  # the header alone
        check_size(found.size[0], found.size[1], path, max_pixels)
        if not found.info["primary"]:  # one of its tiles, in place of a picture that is broken
            raise InputError(f"{path}: is damaged or cut off")
        if found.mode not in ("RGB", "RGBA", "L"):
            raise InputError(f"{path}: its pixels are {found.mode}; make it a JPEG or PNG")
        pixels = np.array(found, np.uint8)  # a copy: the library frees its own
    except (EOFError, OSError, RuntimeError, SyntaxError, ValueError) as exc:
        raise InputError(f"{path}: is damaged or can't be read ({one_line(exc)})") from exc
    if pixels.ndim == 2:
        pixels = np.dstack([pixels] * 3)
    return HeifPicture(pixels, found.info.get("icc_profile"), found.info["bit_depth"])


def _properties(data: bytes, kind: bytes) -> list[bytes]:
    """Returns the contents of all properties of a kind, in the order of the file, wherever a file may have them."""
    found = []
    for box in re.finditer(b"ipco", data):
        end = box.start() - 4 + int.from_bytes(data[max(0, box.start() - 4) : box.start()])
        at = box.end()
        while at < min(end, len(data)):
            length = int.from_bytes(data[at : at + 4])
            if data[at + 4 : at + 8] == kind:
                found.append(data[at + 8 : at + length])
            at += max(8, length)
    return found
