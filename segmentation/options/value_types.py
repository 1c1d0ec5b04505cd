"""The type of an option's value: each kind of option once, with its conversion and its name in messages."""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from types import UnionType
from typing import NamedTuple, TextIO

import numpy as np

from segmentation.errors import ConfigError
from segmentation.options.keywords import Interval, Network, Quality

Read = Callable[[object], object]  # raises TypeError, ValueError or OverflowError for a value of another kind


class OptionType(NamedTuple):
    """How an option's values are converted."""

    read: Read
    what: str  # the type's name in messages
    optional: bool  # whether the option may be `None`


@cache
def option_type(annotation: object) -> OptionType:
    """Returns the type that an option's annotation names."""
    # An annotation that the table lacks is a Literal: text, whose choices Config checks.
    kind = next((kind for kind in _KINDS if annotation in (kind, kind | None)), str)
    return OptionType(*_KINDS[kind], optional=annotation != kind)


def fitted(name: str, value: object, kind: OptionType) -> object:
    """Returns `value` converted to the option's type, such as a list or a generator to a tuple, or a number of NumPy's
    to a `float`. `name` is the option's. Raises `ConfigError` if `value` is of another kind."""
    if value is None and kind.optional:
        return None
    try:
        return kind.read(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise ConfigError(f"{name.replace('_', ' ')} {_line(value)}: must be {kind.what}") from exc


def _line(value: object) -> str:
    """Returns `value` as one short line: an array's `repr` has several lines, and a list's has no limit."""
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # thousands of digits
        return f"of type {type(value).__name__}"


def _one(accepted: type | UnionType, become: Callable[..., object]) -> Read:
    """Returns a conversion of one value of the types `accepted`."""

    def read(value: object) -> object:
        if not isinstance(value, accepted) or (isinstance(value, bool) and become is not bool):  # bool is an int too
            raise TypeError
        return become(value)

    return read


def _inexact(value: Real) -> object:
    return value if isinstance(value, Fraction) else float(value)  # times may be given exactly


def _file(value: object) -> object:
    if not isinstance(value, str | PathLike):
        raise TypeError
    name = fspath(value)
    if not name or not isinstance(name, str):
        raise ValueError
    return str.__str__(name)


def _whole_or(word: str) -> Read:
    """Returns a conversion of a whole number, or of one word."""
    return lambda value: value if isinstance(value, str) and value == word else _whole(value)


def _file_or_object(value: object) -> object:
    return value if callable(getattr(value, "write", None)) else _file(value)


def _file_or_function(value: object) -> object:
    return value if callable(value) else _file(value)


def _items(value: object) -> tuple[object, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):  # text has items, but is one value
        raise TypeError
    return tuple(value)


def _several(read: Read) -> Read:
    return lambda value: tuple(map(read, _items(value)))


def _pair(first: Read, second: Read) -> Read:
    return lambda value: tuple(read(item) for read, item in zip((first, second), _items(value), strict=True))


# `str.__str__`, since `str` returns the member's name for a member of a class that is a `str` and an `Enum`.
_whole, _number, _text = _one(Integral, int), _one(Real, _inexact), _one(str, str.__str__)
_KINDS: dict[type | UnionType, tuple[Read, str]] = {
    bool: (_one(bool | np.bool_, bool), "True or False"),
    int: (_whole, "a whole number"),
    Quality: (_whole_or("high"), "a whole number, or 'high'"),
    Interval: (_whole_or("auto"), "a whole number, or 'auto'"),
    float: (_number, "a number"),
    str: (_text, "text"),
    str | Path: (_file, "the name of a file"),
    str | Path | Network: (_file_or_function, "the name of a file, or a function"),
    str | Path | TextIO: (_file_or_object, "the name of a file, or a file object for text"),
    tuple[str, ...]: (_several(_text), "a list of texts"),
    tuple[float, ...]: (_several(_number), "a list of numbers"),
    tuple[int, int]: (_pair(_whole, _whole), "two whole numbers, height and width"),
    Sequence[tuple[str, str | Path]]: (_several(_pair(_text, _file)), "a list of pairs, each an effect and a file"),
}
