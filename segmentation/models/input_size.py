"""Chooses the input size of a network whose height and width are dynamic."""

import logging
import reprlib
from collections.abc import Sequence
from math import ceil, log
from pathlib import Path
from typing import TypeGuard

from segmentation.errors import ModelError
from segmentation.frames import VideoInfo

logger = logging.getLogger(__name__)

Size = tuple[int, int]  # height, width in pixels
LEAST, MOST = 8, 8192  # pixels of a side
MOST_SIZES = 64
DEFAULT: Size = (512, 512)
VIDEO = "video"  # in place of sizes: the video's own
_GRAIN, _LONGEST = 64, 1920  # pixels: sides are multiples, and larger videos are seen smaller


def sizes_of(value: object, path: Path) -> list[Size]:
    """Returns the sizes in a model's `input_size`: `[height, width]`, or a list of such pairs.

    Raises `ModelError`, which names the model's `path`, if `value` is anything else.
    """
    pairs = value if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple) else [value]
    sizes = []
    for pair in pairs:
        if len(pairs) > MOST_SIZES or not _is_pair(pair):
            raise ModelError(
                f"{path}: its input_size is {reprlib.repr(value)}; [height, width] is needed, or a list of such pairs, "
                f"at most {MOST_SIZES}, each number in {LEAST} to {MOST}"
            )
        sizes.append((pair[0], pair[1]))
    return sizes


def nearest_size(sizes: Sequence[Size], info: VideoInfo | None) -> Size:
    """Returns the size whose shape is nearest to the video's, as players show it; without a video the first size.

    Near means near in log(width / height).
    """
    if info is None:
        return sizes[0]
    width, height = shape_shown(info, info.width, info.height)
    return min(sizes, key=lambda size: abs(log(size[1] / size[0]) - log(width / height)))


def own_size(info: VideoInfo) -> Size:
    """Returns the size that holds the video as players show it, at most `_LONGEST` a side."""
    width, height = shape_shown(info, info.width, info.height)
    scale = min(1.0, _LONGEST / max(width, height))
    high, wide = (ceil(round(side * scale) / _GRAIN) * _GRAIN for side in (height, width))
    return high, wide


def shape_shown(info: VideoInfo, width: int, height: int) -> tuple[float, float]:
    """Returns width and height of a stored picture of the video as players show it.

    They show the picture upright and stretch it by its sample aspect ratio.
    """
    wide = width * float(info.sample_aspect_ratio or 1)
    return (height, wide) if info.orientation.sideways else (wide, height)


def choose_size(sizes: Sequence[Size], path: Path, asked: Size | None, info: VideoInfo | None) -> Size:
    """Returns the input size of the model at `path`: the one of `sizes` for the video.

    Raises `ModelError` if the user has `asked` for another size than the model allows.
    """
    if asked not in (None, sizes[0]):
        raise ModelError(
            f"{path}: its input is {sizes[0][0]}x{sizes[0][1]} and can't be changed; leave out --input-size"
        )
    size = nearest_size(sizes, info)
    if len(set(sizes)) > 1:
        known = ", ".join(f"{h}x{w}" for h, w in sizes)
        logger.info("%s: is run at %dx%d, of the sizes %s", path, *size, known)
    return size


def _is_pair(value: object) -> TypeGuard[Sequence[int]]:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_side, value))


def _is_side(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and LEAST <= value <= MOST
