"""The form of a network's tensors, and the conversion between them and the pipeline's tensors.

The pipeline passes pictures (N, 3, H, W) in floating point and takes scores (N, C, h, w). A file may take channels last
or bytes, and return class numbers instead of scores. A file may have further inputs: constants, and states that it
returns for one frame and takes for the next. `onnx_adapter.py` changes the graph likewise, for GPUs.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.errors import ModelError

FLOATS: dict[str, type[np.float32 | np.float16]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
INTEGERS: dict[str, type[np.uint8 | np.int32 | np.int64]] = {
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}
DTYPES: dict[str, type[np.generic]] = {**FLOATS, **INTEGERS, "tensor(bool)": np.bool_, "tensor(double)": np.float64}
BYTE = 1 / 255  # a `std`: rgb / std is 0..255


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """An input besides the picture, with its values: those of all frames, or of the first frame if it is a state."""

    name: str
    dtype: str  # NumPy's name
    shape: tuple[int, ...]
    values: tuple[float, ...]  # all of them, or one for all
    source: str = ""  # of a state: the output whose value for one frame is the input for the next

    @property
    def array(self) -> NDArray[np.generic]:
        """A new array of the values."""
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
    single: bool = False  # the input is one picture, (3, H, W), and no output has a batch dimension
    extras: tuple[Extra, ...] = ()

    @property
    def recurrent(self) -> bool:
        """Whether the network has states, so that frames have to be passed one by one and in order."""
        return any(extra.source for extra in self.extras)

    @property
    def plain(self) -> bool:
        """Whether the file has the pipeline's tensors."""
        return self == Form()


class Session(Protocol):
    """The part of an ONNX Runtime session that runs a network."""

    def run(self, outputs: Sequence[str], inputs: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        """Returns the named outputs for the inputs by name, as new arrays."""


class Runner:
    """Runs a file's session on pictures (N, 3, H, W) and returns scores (N, C, h, w) float32.

    A recurrent network takes one picture a call, in presentation order, from one thread at a time.
    """

    def __init__(self, session: Session, input_name: str, output_name: str, form: Form) -> None:
        self._session, self._input, self._form = session, input_name, form
        self._states = [extra for extra in form.extras if extra.source]
        self._outputs = [output_name, *(extra.source for extra in self._states)]
        self._extras = {extra.name: extra.array for extra in form.extras}

    def __call__(self, pictures: NDArray[np.floating]) -> NDArray[np.float32]:
        return to_scores(self.raw(pictures), self._form)

    def fresh(self) -> "Runner":
        """Returns a runner on the same session, with the states of the first picture."""
        runner = copy(self)
        runner._extras = {extra.name: extra.array for extra in self._form.extras}
        return runner

    def raw(self, pictures: NDArray[np.floating]) -> NDArray[np.generic]:
        """Runs the file on pictures (N, 3, H, W) and returns the output in the file's own form.

        Raises `ModelError` where that is of another number of pictures.
        """
        given = {self._input: to_input(pictures, self._form), **self._extras}
        found, *states = self._session.run(self._outputs, given)
        check_count(self._outputs[0], np.shape(found), len(pictures))
        self._extras.update({extra.name: state for extra, state in zip(self._states, states, strict=True)})
        return np.asarray(found)


def check_count(name: str, shape: tuple[int, ...], count: int) -> None:
    """Raises `ModelError` if an output of this shape is not that of `count` pictures."""
    if shape[:1] != (count,):
        raise ModelError(f"the network's output {name} is {shape} for {count} pictures; {count} masks are needed")


def to_input(pictures: NDArray[np.floating], form: Form) -> NDArray[np.generic]:
    """Returns pictures (N, 3, H, W) in the form of the file's input."""
    given: NDArray[np.generic] = np.floor(pictures + np.float32(0.5)).astype(np.uint8) if form.bytes else pictures
    return np.ascontiguousarray(given.transpose(0, 2, 3, 1)) if form.input_last else given


def to_scores(raw: NDArray[np.generic], form: Form) -> NDArray[np.float32]:
    """Returns the file's output as scores (N, C, h, w); class numbers become 1 for that class and 0 for the others."""
    if form.output_flat:
        raw = raw[:, None]
    elif form.output_last:
        raw = raw.transpose(0, 3, 1, 2)
    if form.classes:
        raw = raw == np.arange(form.classes, dtype=raw.dtype).reshape(1, -1, 1, 1)
    return np.asarray(raw, np.float32)


def is_channels_last(shape: tuple[int, ...], size: tuple[int, int], otherwise: bool) -> bool:
    """Returns whether an output of this shape is (N, h, w, C), not (N, C, h, w), for an input of `size`.

    `size` is (height, width). `otherwise` is returned where both are possible, or neither.
    """
    first, last = is_picture(shape[2:], size), is_picture(shape[1:3], size)
    return last if first != last else otherwise


def is_picture(sides: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Returns whether two sides may be an output's height and width for an input of `size` (height, width).

    They are if their proportion is that of the input, to a pixel of the input.
    """
    (h, w), (height, width) = sides, size
    return abs(h / height - w / width) * min(height, width) < 1


def extra_of(node: ort.NodeArg, values: tuple[float, ...], source: str = "") -> Extra:
    """Returns an input of the session with its values. Raises `ValueError` if their number does not fit.

    A dynamic side is 1, but the only side of an input is as long as there are values.
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
    """Returns the outputs that feed states, by the names of these inputs.

    The two names differ only in their ends, `i` and `o` or `in` and `out`, such as r1i and r1o, h_in and h_out.
    """
    found = {}
    for name in inputs:
        for end, other in (("in", "out"), ("i", "o"), ("In", "Out"), ("IN", "OUT")):
            if name.endswith(end) and name.removesuffix(end) + other in outputs:
                found[name] = name.removesuffix(end) + other
                break
    return found
