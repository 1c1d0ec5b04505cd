"""The type of an option's value: each kind of option once, with what makes the value one and with what to call it."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from segmentation.errors import ConfigError

Read = Callable[[Any], Any]  # raises TypeError, ValueError or OverflowError for what is not of its kind


def fitted(name: str, value: Any, annotation: Any) -> Any:
    """`value` as the option's annotation has it, such as a tuple for a list or a generator and a `float` for a number
    of NumPy's. Raises `ConfigError` if it is something else."""
    # What is not in the table is a Literal: text, and which is not checked here.
    kind = next((kind for kind in _KINDS if annotation in (kind, kind | None)), str)
    if value is None and annotation != kind:
        return None
    read, what = _KINDS[kind]
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise ConfigError(f"{name.replace('_', ' ')} {_line(value)}: must be {what}") from exc


def _line(value: Any) -> str:
    """What is wrong, in one short line: an array's `repr` has several, and that of a list has no end."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # thousands of digits
        return f"of type {type(value).__name__}"


def _one(accepted: Any, become: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and become is not bool):  # bool is an int too
            raise TypeError
        return become(value)

    return read


def _inexact(value: Real) -> Any:
    return value if isinstance(value, Fraction) else float(value)  # times may be given exactly


def _file(value: str | PathLike[str]) -> str:
    name = fspath(value)
    if not name or not isinstance(name, str):
        raise ValueError
    return str.__str__(name)


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping):  # which have items, but as one thing
        raise TypeError
    return tuple(value)


def _several(read: Read) -> Read:
    return lambda value: tuple(map(read, _items(value)))


def _pair(first: Read, second: Read) -> Read:
    return lambda value: tuple(read(item) for read, item in zip((first, second), _items(value), strict=True))


# `str` would make the name of a class's member of that member, where the class is a `str` and an `Enum`.
_whole, _number, _text = _one(Integral, int), _one(Real, _inexact), _one(str, str.__str__)
_KINDS: dict[Any, tuple[Read, str]] = {
    bool: (_one(bool | np.bool_, bool), "True or False"),
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    str: (_text, "text"),
    str | Path: (_file, "the name of a file"),
    tuple[str, ...]: (_several(_text), "a list of texts"),
    tuple[float, ...]: (_several(_number), "a list of numbers"),
    tuple[int, int]: (_pair(_whole, _whole), "two whole numbers, height and width"),
    Sequence[tuple[str, str | Path]]: (_several(_pair(_text, _file)), "a list of pairs, each an effect and a file"),
}
