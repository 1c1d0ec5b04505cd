"""Files of still pictures, made here."""

import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from paths import ROOT

PHOTO = ROOT / "segmentation" / "models" / "astronaut.jpg"
# An ICC profile: its header, of RGB with the illuminant D50, and one tag of 256 bytes.
_HEADER = (400, b"mntr", b"RGB ", b"XYZ ", b"acsp", 0xF6D6, 0x10000, 0xD32D, 1, b"desc", 144, 256)
PROFILE = struct.pack(">I8x4s4s4s12x4s28x3I48xI4sII", *_HEADER) + bytes(range(256))


def photo(width: int = 301, height: int = 415) -> NDArray[np.uint8]:
    """A person, RGB (H, W, 3)."""
    picture = cv2.imread(str(PHOTO))
    assert picture is not None
    return np.ascontiguousarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)[..., ::-1])


def write(
    path: Path,
    pixels: NDArray[Any],
    *,
    orientation: int | None = None,
    place: bool = False,
    profile: bytes | None = None,
) -> Path:
    """Writes pixels, gray, RGB or RGBA, as they are stored, with EXIF's orientation and an ICC profile if given.

    `place` adds a latitude to the orientation.
    """
    kinds, chunks = [], []
    if orientation is not None:
        exif = b"MM\0*" + struct.pack(">IHHHIHxx", 8, 1 + place, 0x0112, 3, 1, orientation)
        exif += struct.pack(">HHIII", 0x8825, 4, 1, 38, 0) if place else struct.pack(">I", 0)
        exif += struct.pack(">HHHI2sxxI", 1, 1, 2, 2, b"N", 0) if place else b""
        kinds.append(cv2.IMAGE_METADATA_EXIF)
        chunks.append(np.frombuffer(exif, np.uint8))
    if profile is not None:
        kinds.append(cv2.IMAGE_METADATA_ICCP)
        chunks.append(np.frombuffer(profile, np.uint8))
    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR if pixels.shape[2] == 3 else cv2.COLOR_RGBA2BGRA)
    done, data = cv2.imencodeWithMetadata(path.suffix, pixels, kinds, chunks)
    assert done
    path.write_bytes(data)
    return path


def read(path: Path) -> NDArray[np.uint8]:
    """The pixels of a picture as they are stored: gray, RGB or RGBA."""
    pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    assert pixels is not None
    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB if pixels.shape[2] == 3 else cv2.COLOR_BGRA2RGBA)
    return np.asarray(pixels, np.uint8)


def animation(path: Path) -> tuple[list[NDArray[np.uint8]], list[int], int]:
    """The frames of a GIF or WebP, BGR or BGRA, how many milliseconds each is shown, and how often all; 0: forever."""
    done, found = cv2.imdecodeanimation(np.fromfile(path, np.uint8)[np.newaxis])
    assert done
    return list(found.frames), [int(duration) for duration in found.durations], int(found.loop_count)


def write_animation(path: Path, frames: list[NDArray[np.uint8]], durations: list[int]) -> Path:
    """Writes a GIF or WebP of RGB frames (H, W, 3), each shown for so many milliseconds."""
    made = cv2.Animation()
    made.frames = [np.ascontiguousarray(frame[..., ::-1]) for frame in frames]
    made.durations = np.array(durations, np.int32)
    assert cv2.imwriteanimation(str(path), made)
    return path
