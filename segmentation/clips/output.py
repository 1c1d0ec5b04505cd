"""From decoded frames to the arrays of a batch: crop, size, flip, color and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from av.filter import Graph
from av.filter.context import FilterContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from segmentation.errors import ConfigError
from segmentation.frames import LIMITED
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.media.opening.stream_properties import color_of

_FORMATS = {"rgb": "gbrp", "ycbcr": "yuv444p", "gray": "gray"}
_DTYPES = ("uint8", "float16", "float32")
_TURNS: dict[int, list[tuple[str, ...]]] = {
    0: [],
    1: [("transpose", "cclock")],
    2: [("hflip",), ("vflip",)],
    3: [("transpose", "clock")],
}


def upright_filters(orientation: Orientation) -> list[tuple[str, ...]]:
    """Returns FFmpeg's filters, with their arguments, that stand a stored picture upright."""
    return _TURNS[orientation.turns] + [("hflip",)] * orientation.mirrored


class Augmentation(NamedTuple):
    """Random choices for a clip, the same for all of its outputs and masks."""

    across: float  # 0..1: where a random crop lies in the room that it has
    down: float
    flip: bool  # for outputs with `flip`


class Window(NamedTuple):
    """The part of an upright picture that an output shows, in pixels of the picture."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool = False  # left to right

    def stored(self, size: tuple[int, int], orientation: Orientation) -> Window:
        """Returns the same part of the picture as it is stored. `size` is that of the upright one: height, width."""
        above, before = self.top, self.left
        below, behind = size[0] - above - self.height, size[1] - before - self.width
        if orientation.mirrored:
            before, behind = behind, before
        top, left = ((above, before), (before, below), (below, behind), (behind, above))[orientation.turns]
        width, height = orientation.size(self.width, self.height)
        return Window(top, left, height, width, self.mirrored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How the frames of a clip become an array.

    With a `crop`, the part of the picture that has the shape of `size` is taken, as large as it can be, or `size`
    pixels of the picture whose shorter side is `scale` pixels. It is then scaled to `size`, by the mean of areas.
    """

    size: tuple[int, int] | None = None  # height, width in pixels; None: the picture's own
    crop: Literal["random", "center"] | None = None  # None: the whole picture, squashed or stretched
    scale: int | None = None  # pixels
    flip: bool = False  # mirror every other clip, left to right
    dtype: str = "float32"  # or float16; with uint8 the values are 0 to 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)  # floats are (value - mean) / std, with values in 0..1
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    color: Literal["rgb", "ycbcr"] = "rgb"  # ycbcr: the stream's own numbers, with chroma at full size
    layout: str = "NTCHW"  # of the batch: any order of these letters

    def __post_init__(self) -> None:
        if self.size is not None and not (len(self.size) == 2 and all(side > 0 for side in self.size)):
            raise ConfigError(f"size {self.size}: must be (height, width), both above 0")
        if self.crop not in (None, "random", "center"):
            raise ConfigError(f"crop {self.crop!r}: must be 'random', 'center' or None")
        if self.crop is not None and self.size is None:
            raise ConfigError(f"crop {self.crop!r}: needs a size")
        if self.scale is not None and (self.crop is None or self.size is None or self.scale < max(self.size)):
            raise ConfigError(f"scale {self.scale}: needs a crop, and at least the longer side of its size")
        if self.dtype not in _DTYPES:
            raise ConfigError(f"dtype {self.dtype!r}: must be one of {', '.join(_DTYPES)}")
        if self.color not in ("rgb", "ycbcr"):
            raise ConfigError(f"color {self.color!r}: must be 'rgb' or 'ycbcr'")
        if sorted(self.layout) != sorted("NTCHW"):
            raise ConfigError(f"layout {self.layout!r}: must have each of the letters N, T, C, H and W once")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if np.shape(numbers) != (3,):
                raise ConfigError(f"{name} {numbers}: must be three numbers")
        if not all(self.std):
            raise ConfigError(f"std {self.std}: must not hold 0")

    def window(self, size: tuple[int, int], draw: Augmentation, orientation: Orientation = UPRIGHT) -> Window:
        """Returns which part is taken of an upright picture of this size (height, width).

        As the picture is stored, the part begins at an even row and column: chroma stays in place, and FFmpeg's crop of
        more than 8 bits would read halves of two samples at odd columns.
        """
        height, width = size
        mirrored = self.flip and draw.flip
        if self.crop is None or self.size is None:
            return Window(0, 0, height, width, mirrored)
        rows, columns = _covered(size, (self.size[0], self.size[1]), self.scale)
        down, across = (draw.down, draw.across) if self.crop == "random" else (0.5, 0.5)
        drawn = Window(round((height - rows) * down), round((width - columns) * across), rows, columns, mirrored)
        stored = drawn.stored(size, orientation)
        even = stored._replace(top=stored.top & ~1, left=stored.left & ~1)
        return even.stored(orientation.size(*size), orientation.inverse)

    def numbers(self, frames: list[NDArray[np.uint8]]) -> NDArray[np.generic]:
        """Returns frames (H, W, C) as (T, C, H, W), in the output's dtype."""
        pictures = np.stack(frames).transpose(0, 3, 1, 2)
        if self.dtype == "uint8":
            return np.ascontiguousarray(pictures)
        made = np.empty(pictures.shape, self.dtype)
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            table = ((np.arange(256) / 255 - mean) / std).astype(self.dtype)
            made[:, channel] = table[pictures[:, channel]]
        return made

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of a batch, as numbers of those of (N, T, C, H, W)."""
        return tuple("NTCHW".index(letter) for letter in self.layout)

    def batch(self, clips: list[NDArray[np.generic]]) -> NDArray[np.generic]:
        """Returns clips (T, C, H, W) as one array of the output's layout."""
        return np.ascontiguousarray(np.stack(clips).transpose(self.axes))


@cache
def _covered(size: tuple[int, int], target: tuple[int, int], scale: int | None) -> tuple[int, int]:
    """Returns how many rows and columns of a picture of `size` become a crop of `target`, see `Output`."""
    if scale is None:
        ratio = min(Fraction(size[0], target[0]), Fraction(size[1], target[1]))
    else:
        ratio = Fraction(min(size), scale)
    return max(1, round(target[0] * ratio)), max(1, round(target[1] * ratio))


class Chain:
    """FFmpeg's filters for the frames of one clip: upright, cropped, scaled, mirrored, in 8 bits."""

    def __init__(
        self,
        output: Output,
        draw: Augmentation,
        size: tuple[int, int],
        orientation: Orientation = UPRIGHT,
        *,
        mask: bool = False,
    ) -> None:
        """`size` of the upright picture: height, width. `orientation` of the video.

        `mask`: the frames are gray masks of it, of any size, upright, and scaled by the nearest sample.
        """
        self._output, self._draw, self._size, self._mask = output, draw, size, mask
        self._of_video, self._orientation = orientation, UPRIGHT if mask else orientation  # and of these frames
        self._graph: Graph | None = None
        self._format: tuple[int, int, str] | None = None  # of the graph's input

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Returns (H, W, C), of a mask (H, W)."""
        own = frame.width, frame.height, frame.format.name
        if self._graph is None or own != self._format:
            self._graph, self._format = self._made(frame), own
        self._graph.push(frame)
        made = self._graph.pull()
        assert isinstance(made, VideoFrame)
        picture = np.asarray(made.to_ndarray(), np.uint8)
        return picture if made.format.name != _FORMATS["ycbcr"] else picture.transpose(1, 2, 0)

    def _made(self, frame: VideoFrame) -> Graph:
        output, size = self._output, self._size
        orientation = self._orientation
        window = output.window(size, self._draw, self._of_video).stored(size, orientation)
        stored = orientation.size(*size)
        graph = Graph()
        graph.threads = 1  # several clips are made at once
        nodes = colored(graph, frame, frame.time_base or Fraction(1, 1000))
        if (frame.height, frame.width) != stored:  # masks, and frames of another size on the way
            flags = ":flags=neighbor" if self._mask else ""
            nodes.append(graph.add("scale", f"{stored[1]}:{stored[0]}{flags}"))
        if (window.height, window.width) != stored:
            place = f"{window.width}:{window.height}:{window.left}:{window.top}:exact=1"
            nodes.append(graph.add("crop", place))
        rows, columns = orientation.size(*(output.size or size))
        flags = "neighbor" if self._mask else "area+accurate_rnd+full_chroma_int+full_chroma_inp"
        nodes.append(graph.add("scale", f"{columns}:{rows}:flags={flags}"))
        nodes.append(graph.add("format", _FORMATS["gray" if self._mask else output.color]))
        nodes += [graph.add(*step) for step in upright_filters(orientation)]  # of the small picture, which is quick
        if window.mirrored:
            nodes.append(graph.add("hflip"))
        nodes.append(graph.add("buffersink"))
        graph.link_nodes(*nodes).configure()
        return graph


def colored(graph: Graph, frame: VideoFrame, time_base: Fraction) -> list[FilterContext]:
    """Adds the filters at the beginning, for frames like this one. They state the color: else others convert it."""
    nodes = [graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=time_base)]
    if not frame.format.is_rgb:
        color = color_of(frame)
        nodes.append(graph.add("setparams", f"colorspace={color.swscale}:range={color.range or LIMITED}"))
    return nodes
