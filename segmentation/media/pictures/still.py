"""Still pictures as files: reads one upright, with alpha and color profile, and encodes one.

OpenCV does both: unlike FFmpeg it takes JPEG's usual scale of quality, and keeps profiles and mirrored orientations.
FFmpeg decodes the kinds of which OpenCV leaves the depth to the caller, and rare kinds.
"""

import logging
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.errors import InputError, OutputError, one_line
from segmentation.frames.orientation import Orientation
from segmentation.frames.source import Source
from segmentation.media.demux import demuxed
from segmentation.media.opening.open_input import open_input, too_large, video_stream
from segmentation.media.opening.probe import first_packet_and_frame
from segmentation.media.opening.stream_properties import display_matrix, shown_as
from segmentation.media.pictures.exif import metadata_of, turned
from segmentation.media.pictures.heif import BRANDS, is_heif, read_heif
from segmentation.media.pictures.tiff import profile as tiff_profile
from segmentation.media.pictures.tiff import warn_of_pages
from segmentation.media.planes import EXACT
from segmentation.options.keywords import Quality
from segmentation.options.rate_factor import RateFactor
from segmentation.system.access import Access

log = logging.getLogger(__name__)

Pixels = NDArray[np.uint8]  # (H, W, 3) RGB, or (H, W, 4) with straight alpha

QUALITY = RateFactor(92, 97)  # of JPEG and WebP, by default as ImageMagick
LOSSLESS_WEBP = 101  # OpenCV's quality above the scale
_BY_OPENCV = ("mjpeg", "png", "webp", "bmp", "tiff")  # FFmpeg's names of the codecs


@dataclass(frozen=True, slots=True, kw_only=True)
class Still:
    """A picture as it is to be seen."""

    rgb: Pixels  # (H, W, 3)
    alpha: NDArray[np.uint8] | None  # (H, W), None if the picture is opaque
    profile: bytes | None  # ICC, of RGB
    bits: int  # that the file has a sample
    metadata: str = ""  # in words: what the file has besides, but for the orientation


def is_still(given: str | Source, access: Access | None = None) -> bool:
    """Returns whether a file or an address is one picture rather than a video or an animation. Raises `InputError`."""
    source = Source.parse(given)
    if source.is_pattern:
        return False
    if is_heif(source.text):
        return True
    with open_input(source, access) as container:
        name = container.format.name
        if name == "image2" or name.endswith("_pipe"):
            return True
        return container.metadata.get("major_brand", "").strip() in BRANDS


def content_of(path: str) -> Literal["picture", "video", ""]:
    """Returns what a file holds, whatever its name says. An animation is a video, and a broken file nothing."""
    if not Path(path).is_file():  # opening a pipe would wait for its writer
        return ""
    with suppress(InputError):  # which the run says
        return "picture" if is_still(path) else "video"
    return ""


def read_still(given: str | Source, access: Access | None = None) -> Still:
    """Reads a picture. Raises `InputError` if it is broken, cut off, too large, or of an unknown kind."""
    source, access = Source.parse(given), access or Access()
    path = source.text
    if is_heif(path):
        picture = read_heif(path, access.max_pixels)
        still = _still(path, picture.pixels, picture.profile, picture.bits)
        return replace(still, metadata=metadata_of(Path(path).read_bytes()))
    with open_input(source, access) as container:
        stream = video_stream(container, path, access)
        codec, bits = stream.codec_context.name, _bits(stream)
        if not bits:  # FFmpeg refuses it before it takes memory
            if codec in _BY_OPENCV and not source.is_url and not cv2.haveImageReader(path):
                raise InputError(f"{path}: is no picture, whatever its name says")
            raise InputError(f"{path}: is damaged or cut off, of a kind that isn't read, or {too_large(access)}")
        if codec not in _BY_OPENCV:
            return _decoded(container, stream, path, access)
        data = bytes(next(demuxed(container, stream))) if source.is_url else Path(path).read_bytes()
    if codec == "png" and not all(_png_chunks(data)):  # libpng would print lines of its own
        raise InputError(f"{path}: is damaged or cut off")
    if codec == "tiff":
        warn_of_pages(data, path)
    jpeg = codec == "mjpeg"  # without alpha or depth, so that OpenCV can have it in RGB at once
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION if jpeg else cv2.IMREAD_UNCHANGED
    try:
        found, kinds, chunks = cv2.imdecodeWithMetadata(np.frombuffer(data, np.uint8), flags=flags)
    except cv2.error as exc:
        raise InputError(f"{path}: can't be read ({one_line(exc)})") from exc
    if found is None:
        raise InputError(f"{path}: is damaged or cut off")
    if found.dtype not in (np.uint8, np.uint16):
        raise InputError(f"{path}: its samples are {found.dtype}; pictures of 8 or 16 bits are read")
    about = {int(kind): bytes(chunk) for kind, chunk in zip(kinds, chunks, strict=True)}
    icc = tiff_profile(data) if codec == "tiff" else about.get(cv2.IMAGE_METADATA_ICCP)
    upright = np.ascontiguousarray(turned(about.get(cv2.IMAGE_METADATA_EXIF, b"")).upright(found))
    still = _still(path, np.asarray(upright, np.uint8) if jpeg else _rgb(upright), icc, bits)
    return replace(still, metadata=metadata_of(data))


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


def gray_png(levels: NDArray[np.uint8]) -> bytes:
    """Returns a mask's levels (H, W) as a gray PNG."""
    # Against zlib's level 1 and OpenCV's filter, a mask of 12 megapixels takes 0.4 times the time and 0.7 the bytes.
    options = [cv2.IMWRITE_PNG_COMPRESSION, 1]  # first, as it resets the strategy
    options += [cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    options += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP]
    return bytes(cv2.imencode(".png", levels, options)[1])


def _bits(stream: VideoStream) -> int:
    """Returns how many bits a sample has, 0 where FFmpeg did not take the picture."""
    layout = stream.codec_context.format
    return 0 if layout is None or not stream.width else max(component.bits for component in layout.components)


def _decoded(container: InputContainer, stream: VideoStream, path: str, access: Access) -> Still:
    """Returns a picture as FFmpeg decodes it, upright. Raises `InputError`."""
    head, frame = first_packet_and_frame(container, stream, path, access)
    if "f16" in frame.format.name or "f32" in frame.format.name:
        raise InputError(f"{path}: its samples are {frame.format.name}; pictures of 8 or 16 bits are read")
    bits = max(component.bits for component in frame.format.components)
    alpha = any(component.is_alpha for component in frame.format.components)
    rgb = frame.reformat(format="rgba" if alpha else "rgb24", interpolation=EXACT).to_ndarray()
    shown = shown_as(display_matrix(frame), path)
    pixels = Orientation(shown["rotation"] // 90, shown["mirrored"]).upright(np.asarray(rgb, np.uint8))
    return _still(path, pixels, _jp2_profile(bytes(head or b"")), bits)


def _still(path: str, pixels: Pixels, profile: bytes | None, bits: int) -> Still:
    """Returns an upright picture, RGB or RGBA."""
    if profile is not None and profile[16:20] != b"RGB ":  # outputs are RGB
        log.warning("%s: its color profile is not one of RGB, and left out", path)
        profile = None
    alpha = np.ascontiguousarray(pixels[..., 3]) if pixels.shape[2] == 4 else None
    return Still(
        rgb=np.ascontiguousarray(pixels[..., :3]),
        alpha=None if alpha is None or alpha.min() == 255 else alpha,
        profile=profile,
        bits=bits,
    )


def _rgb(found: NDArray[Any]) -> Pixels:
    """Returns pixels of OpenCV (gray, BGR or BGRA; 8 or 16 bits) as RGB or RGBA of 8 bits."""
    if found.dtype == np.uint16:
        found = np.rint(found / np.float32(257)).astype(np.uint8)
    if found.ndim == 2:
        return np.asarray(cv2.cvtColor(found, cv2.COLOR_GRAY2RGB), np.uint8)
    return np.asarray(cv2.cvtColor(found, cv2.COLOR_BGR2RGB if found.shape[2] == 3 else cv2.COLOR_BGRA2RGBA), np.uint8)


def _jp2_profile(data: bytes) -> bytes | None:
    """Returns the ICC profile of a JP2 file, `None` if there is none: ISO/IEC 15444-1, I.5.3.3."""
    at = data.find(b"colr\x02") if data[4:8] == b"jP  " else -1
    return None if at < 0 else data[at + 7 : at - 4 + int.from_bytes(data[at - 4 : at])]


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
