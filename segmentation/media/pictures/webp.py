"""Animated WebP as input. FFmpeg can't decode it, so OpenCV does, and FFmpeg gets it as a lossless video in memory."""

from pathlib import Path

import cv2
import numpy as np
from av.container import InputContainer

from segmentation.errors import InputError, one_line
from segmentation.media.pictures.lossless import lossless_video
from segmentation.system.access import check_size

_MOST_BYTES = 1 << 31  # of all frames, which OpenCV decodes at once


def is_animated_webp(path: str) -> bool:
    """Returns whether a file is an animated WebP."""
    if not Path(path).is_file():  # opening a pipe would wait for its writer
        return False
    try:
        with Path(path).open("rb") as file:
            header = file.read(21)
    except OSError:  # reported where the file is opened
        return False
    return header[:4] == b"RIFF" and header[8:16] == b"WEBPVP8X" and len(header) == 21 and bool(header[20] & 2)


def open_animated_webp(path: str, max_pixels: int) -> InputContainer:
    """Returns the animation as a Matroska file with FFV1, each frame at its time.

    Raises `InputError`, also for frames of more than `max_pixels`.
    """
    data = np.fromfile(path, np.uint8)
    if 8 + int.from_bytes(data[4:8].tobytes(), "little") > len(data):  # OpenCV would print lines of its own
        raise InputError(f"{path}: is cut off")
    width, height = (1 + int.from_bytes(data[at : at + 3].tobytes(), "little") for at in (24, 27))
    size = width * height * 4 * data.tobytes().count(b"ANMF")
    if size > _MOST_BYTES:
        raise InputError(f"{path}: its frames of {width}x{height} take {size >> 20} MiB; make it a video or a GIF")
    check_size(width, height, path, max_pixels)
    try:
        done, found = cv2.imdecodeanimation(data[np.newaxis])  # OpenCV 4 wants a row
    except cv2.error as exc:
        raise InputError(f"{path}: can't be read ({one_line(exc)})") from exc
    if not done or not len(found.frames):
        raise InputError(f"{path}: is damaged or cut off")
    durations = [max(1, int(duration)) for duration in found.durations]
    return lossless_video([np.asarray(frame, np.uint8) for frame in found.frames], durations)
