"""The form of a network's own tensors, and how they become those of the pipeline.

The pipeline gives pictures (N, 3, H, W) in floating point and takes scores (N, C, h, w). A file may want channels last
or bytes, put out class numbers in place of scores, and have further inputs: constants, and states that it puts out for
one frame and wants back for the next. `onnx_form.py` makes the same of the graph itself, for GPUs.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

FLOATS: dict[str, Any] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
INTEGERS: dict[str, Any] = {"tensor(uint8)": np.uint8, "tensor(int32)": np.int32, "tensor(int64)": np.int64}
DTYPES = {**FLOATS, **INTEGERS, "tensor(bool)": np.bool_, "tensor(double)": np.float64}
BYTE = 1 / 255  # the `std` with which (rgb - 0) / std is 0..255


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """An input besides the picture, with what it holds: always, or in the first frame."""

    name: str
    dtype: str  # NumPy's name
    shape: tuple[int, ...]
    values: tuple[float, ...]  # all of them, or one for all
    source: str = ""  # the output that it holds from the second frame on, if it is a state

    @property
    def array(self) -> NDArray[Any]:
        return np.broadcast_to(np.array(self.values, self.dtype).reshape(-1), (self._size,)).reshape(self.shape).copy()

    @property
    def _size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a file's tensors differ from (N, 3, H, W) and (N, C, h, w) in floating point."""

    input_last: bool = False  # the input is (N, H, W, 3)
    bytes: bool = False  # the input is uint8, 0..255
    output_last: bool = False  # the output is (N, h, w, C)
    output_flat: bool = False  # the output is (N, h, w)
    classes: int = 0  # the output holds one of so many class numbers at each place; 0: it holds scores
    first: bool = True  # the output is the first of the file's
    extras: tuple[Extra, ...] = ()

    @property
    def recurrent(self) -> bool:
        """Whether frames have to come one after the other, in order."""
        return any(extra.source for extra in self.extras)

    @property
    def plain(self) -> bool:
        """Whether there is no difference."""
        return self == Form()


class Runner:
    """Runs a file's session on pictures (N, 3, H, W) and returns scores (N, C, h, w) float32.

    A recurrent network takes one picture a call, in presentation order, and is to be called from one thread at a time.
    """

    def __init__(self, session: ort.InferenceSession, input_name: str, output_name: str, form: Form) -> None:
        self._session, self._input, self._form = session, input_name, form
        self._states = [extra for extra in form.extras if extra.source]
        self._outputs = [output_name, *(extra.source for extra in self._states)]
        self._extras: dict[str, NDArray[Any]] = {extra.name: extra.array for extra in form.extras}

    def __call__(self, pictures: NDArray[Any]) -> NDArray[np.float32]:
        return to_scores(self.raw(pictures), self._form)

    def fresh(self) -> "Runner":
        """A runner on the same session, with the states as they are before the first picture."""
        runner = copy(self)
        runner._extras = {extra.name: extra.array for extra in self._form.extras}
        return runner

    def raw(self, pictures: NDArray[Any]) -> NDArray[Any]:
        """The output as the file has it."""
        given = {self._input: to_input(pictures, self._form), **self._extras}
        found, *states = self._session.run(self._outputs, given)
        self._extras.update({extra.name: state for extra, state in zip(self._states, states, strict=True)})
        return np.asarray(found)


def to_input(pictures: NDArray[Any], form: Form) -> NDArray[Any]:
    """Pictures (N, 3, H, W) as the file wants them."""
    if form.bytes:
        pictures = np.floor(pictures + np.float32(0.5)).astype(np.uint8)
    return np.ascontiguousarray(pictures.transpose(0, 2, 3, 1)) if form.input_last else pictures


def to_scores(raw: NDArray[Any], form: Form) -> NDArray[np.float32]:
    """What the file puts out as scores (N, C, h, w); of class numbers 1 for the class that it is, else 0."""
    if form.output_flat:
        raw = raw[:, None]
    elif form.output_last:
        raw = raw.transpose(0, 3, 1, 2)
    if form.classes:
        raw = raw == np.arange(form.classes, dtype=raw.dtype).reshape(1, -1, 1, 1)
    return np.asarray(raw, np.float32)


def is_channels_last(shape: tuple[int, ...], size: tuple[int, int], otherwise: bool) -> bool:
    """Whether a tensor of four dimensions is (N, h, w, C), not (N, C, h, w), for an input of `size` (height, width).

    `otherwise` is returned where both may be, or neither.
    """
    first, last = is_picture(shape[2:], size), is_picture(shape[1:3], size)
    return last if first != last else otherwise


def is_picture(sides: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Whether two sides may be height and width of what a network puts out for an input of `size` (height, width):
    they are in its proportion, to a pixel of the input."""
    (h, w), (height, width) = sides, size
    return abs(h / height - w / width) * min(height, width) < 1


def extra_of(node: Any, values: tuple[float, ...], source: str = "") -> Extra:
    """An input of the session's with its values. Raises `ValueError` if they are not as many as it has.

    A side that is dynamic is 1; the only one of its input is as long as there are values.
    """
    sides = [side if isinstance(side, int) and side > 0 else None for side in node.shape]
    if len(sides) == 1 and sides[0] is None:
        sides = [len(values)]
    shape = tuple(side or 1 for side in sides)
    dtype = np.dtype(DTYPES[node.type]).name
    extra = Extra(name=node.name, dtype=dtype, shape=shape, values=values, source=source)
    extra.array  # noqa: B018  # raises where the values do not fit
    return extra


def state_sources(inputs: list[str], outputs: list[str]) -> Mapping[str, str]:
    """Inputs that an output of the frame before feeds, by their names: these differ only in an `i` or `in` at the end
    of the one and an `o` or `out` at the end of the other, such as r1i and r1o, h_in and h_out."""
    found = {}
    for name in inputs:
        for end, other in (("in", "out"), ("i", "o"), ("In", "Out"), ("IN", "OUT")):
            if name.endswith(end) and name.removesuffix(end) + other in outputs:
                found[name] = name.removesuffix(end) + other
                break
    return found
