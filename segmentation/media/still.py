"""Still pictures as files: reads one upright, with alpha and color profile, and encodes one.

OpenCV does both: unlike FFmpeg it takes JPEG's usual scale of quality, and keeps profiles and mirrored orientations.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.access import Access
from segmentation.errors import InputError, OutputError, one_line
from segmentation.media.containers import is_sequence
from segmentation.media.input import is_url, open_input, video_stream
from segmentation.options.keywords import Quality
from segmentation.options.rate_factor import RateFactor

Pixels = NDArray[np.uint8]  # (H, W, 3) RGB, or (H, W, 4) with straight alpha

QUALITY = RateFactor(92, 97)  # of JPEG and WebP, by default as ImageMagick
LOSSLESS_WEBP = 101  # OpenCV's quality above the scale
_HEIF = ("avif", "mif1", "heic", "heix", "heim", "heis")  # major brands of single pictures
_ORIENTATION = 0x0112  # EXIF's tag
# Quarters counter-clockwise by which the stored picture has to be turned, and whether it is mirrored then, EXIF 2.3.
_TURNS = {2: (0, True), 3: (2, False), 4: (2, True), 5: (3, True), 6: (3, False), 7: (1, True), 8: (1, False)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Still:
    """A picture as it is to be seen."""

    rgb: Pixels  # (H, W, 3)
    alpha: NDArray[np.uint8] | None  # (H, W), None if the picture is opaque
    profile: bytes | None  # ICC, of RGB
    deep: bool  # whether it had more than 8 bits


def is_still(path: str, access: Access | None = None) -> bool:
    """Returns whether a file or an address is one picture rather than a video or an animation. Raises `InputError`."""
    if is_sequence(path):
        return False
    with open_input(path, access) as container:
        name = container.format.name
        if name == "image2" or name.endswith("_pipe"):
            return True
        return container.metadata.get("major_brand", "").strip() in _HEIF


def read_still(path: str, access: Access | None = None) -> Still:
    """Reads a picture. Raises `InputError` if it is broken, cut off, too large, or of an unknown kind."""
    with open_input(path, access) as container:
        video_stream(container, path, access)  # checks the size before OpenCV takes memory for it
        data = bytes(next(container.demux(video=0))) if is_url(path) else Path(path).read_bytes()
    if data.startswith(b"\x89PNG") and not all(_png_chunks(data)):  # libpng would print lines of its own
        raise InputError(f"{path}: is damaged or cut off")
    try:
        found, kinds, chunks = cv2.imdecodeWithMetadata(np.frombuffer(data, np.uint8), flags=cv2.IMREAD_UNCHANGED)
    except cv2.error as exc:
        raise InputError(f"{path}: can't be read ({one_line(exc)})") from exc
    if found is None:
        known = data.startswith((b"\xff\xd8", b"RIFF", b"BM"))
        other = "is damaged, or a kind of picture that OpenCV can't read, such as HEIC; make it a JPEG or PNG"
        raise InputError(f"{path}: {'is damaged or cut off' if known else other}")
    if found.dtype not in (np.uint8, np.uint16):
        raise InputError(f"{path}: its samples are {found.dtype}; pictures of 8 or 16 bits are read")
    about = {int(kind): bytes(chunk) for kind, chunk in zip(kinds, chunks, strict=True)}
    return _still(found, about)


def encode_still(pixels: Pixels, target: Path, quality: Quality | None, profile: bytes | None = None) -> bytes:
    """Returns a picture as a file of the suffix of `target`. `quality` is 1 to 100 or "high"; at 100 WebP is lossless.

    Raises `OutputError` if the format can't hold the picture.
    """
    suffix = target.suffix.lower()
    number = QUALITY.of(quality)
    match suffix:
        case ".png":
            options = [cv2.IMWRITE_PNG_COMPRESSION, 3]  # a quarter smaller than by default
        case ".webp":
            options = [cv2.IMWRITE_WEBP_QUALITY, LOSSLESS_WEBP if number == 100 else number]
        case _:
            options = [cv2.IMWRITE_JPEG_QUALITY, number]
            options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    stored = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR if pixels.shape[2] == 3 else cv2.COLOR_RGBA2BGRA)
    kinds = [] if profile is None else [cv2.IMAGE_METADATA_ICCP]
    chunks: list[Any] = [] if profile is None else [np.frombuffer(profile, np.uint8)]
    try:
        done, data = cv2.imencodeWithMetadata(suffix, stored, kinds, chunks, options)
    except cv2.error:
        done = False
    if not done:
        raise OutputError(f"{target}: {suffix} files can't hold {pixels.shape[1]}x{pixels.shape[0]} pixels")
    return bytes(data)


def _still(found: NDArray[Any], about: dict[int, bytes]) -> Still:
    """Returns pixels of OpenCV (gray, BGR or BGRA) as a picture, upright."""
    deep = found.dtype == np.uint16
    if deep:
        found = np.rint(found / np.float32(257)).astype(np.uint8)
    turns, mirrored = _TURNS.get(_orientation(about.get(cv2.IMAGE_METADATA_EXIF, b"")), (0, False))
    found = np.rot90(found, turns)
    found = np.ascontiguousarray(found[:, ::-1] if mirrored else found)
    alpha = np.ascontiguousarray(found[..., 3]) if found.ndim == 3 and found.shape[2] == 4 else None
    if found.ndim == 2:
        rgb = cv2.cvtColor(found, cv2.COLOR_GRAY2RGB)
    else:
        rgb = cv2.cvtColor(found, cv2.COLOR_BGR2RGB if alpha is None else cv2.COLOR_BGRA2RGB)
    profile = about.get(cv2.IMAGE_METADATA_ICCP)
    return Still(
        rgb=np.asarray(rgb, np.uint8),
        alpha=None if alpha is None or alpha.min() == 255 else alpha,
        profile=profile if profile is not None and profile[16:20] == b"RGB " else None,  # outputs are RGB
        deep=deep,
    )


def _orientation(exif: bytes) -> int:
    """Returns EXIF's orientation, 1 to 8; 1, as it is, if there is none."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (begin,) = struct.unpack_from(f"{order}4xI", exif)
        (count,) = struct.unpack_from(f"{order}H", exif, begin)
        for i in range(count):
            tag, value = struct.unpack_from(f"{order}H6xH", exif, begin + 2 + 12 * i)
            if tag == _ORIENTATION:
                return int(value)
    except struct.error:  # cut off
        pass
    return 1


def _png_chunks(data: bytes) -> Iterator[bool]:
    """Yields for each chunk of a PNG whether its checksum is right, and False if the end is missing."""
    at, kind = 8, b""
    while kind != b"IEND":
        if at + 12 > len(data):
            yield False
            return
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        yield zlib.crc32(data[at + 4 : at + 8 + length]) == int.from_bytes(data[at + 8 + length : at + 12 + length])
        at += 12 + length
