"""Packs the arguments of kernels, checked against the signatures in their source.

A kernel takes arguments as bare bytes. Without the check, two swapped arguments corrupt memory.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:  # compiling kernels, and so this module, does without PyTorch
    import torch

Scalar: TypeAlias = "int | np.float32 | np.int64 | np.uint64"
Argument: TypeAlias = "torch.Tensor | Scalar"
_Kind: TypeAlias = "type | torch.dtype"  # of an argument: the type of a scalar, the dtype of a tensor

_SCALARS = frozenset((int, np.float32, np.int64, np.uint64))  # all but tensors; np.uint64 is an address
_FORMATS = {"int": "i", "float": "f", "long long": "q"}  # of `struct`
_ACCEPTED = {"int": int, "float": np.float32, "long long": np.int64}
_DTYPES = {  # the names of the dtypes that a pointer's target may have
    "float": ("torch.float32",),
    "float4": ("torch.float32",),
    "half": ("torch.float16",),
    "int": ("torch.int32",),
    "long long": ("torch.int64",),
    "unsigned char": ("torch.uint8",),
    "unsigned short": ("torch.uint16", "torch.int16"),  # PyTorch has few operations on uint16; the bits are the same
}
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
_PARAMETER = re.compile(r"(?P<type>\w+(?: \w+)*?) ?(?P<pointer>\*?) ?(?P<name>\w+)")
_STRUCT = re.compile(r"struct (\w+) \{\s*float ([^;{}]*);\s*\};")  # whose members are all float


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument that a kernel takes. A struct of numbers by value is a parameter for each number."""

    name: str
    type: str  # in C, without qualifiers: of a pointer, the type of its target
    pointer: bool = False

    def accepts(self, kind: _Kind) -> bool:
        """Returns whether an argument of this kind has the parameter's type."""
        if not self.pointer:
            return kind is _ACCEPTED[self.type]
        return kind is np.uint64 or str(kind) in _DTYPES[self.type]

    def __str__(self) -> str:
        return f"{self.name} ({self.type}{' *' if self.pointer else ''})"


@dataclass(frozen=True, slots=True)
class Signature:
    """The name and parameters of a kernel."""

    kernel: str
    parameters: tuple[Parameter, ...]
    form: struct.Struct = field(init=False)  # the layout of the arguments, in C and so in a kernel
    _checked: set[tuple[_Kind, ...]] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        form = struct.Struct("".join("P" if p.pointer else _FORMATS[p.type] for p in self.parameters))
        object.__setattr__(self, "form", form)

    def pack(self, arguments: tuple[Argument, ...]) -> bytes:
        """Returns the arguments as a kernel takes them; tensors become pointers.

        Raises `TypeError` for arguments that don't fit. Each combination of types is checked once.
        """
        kinds = tuple([type(a) if type(a) in _SCALARS else getattr(a, "dtype", type(a)) for a in arguments])
        if kinds not in self._checked:
            self._check(kinds)
            self._checked.add(kinds)
        return self.form.pack(*[a if type(a) in _SCALARS else a.data_ptr() for a in arguments])  # type: ignore[union-attr]

    def _check(self, kinds: tuple[_Kind, ...]) -> None:
        for parameter, kind in zip(self.parameters, kinds, strict=False):
            if not parameter.accepts(kind):
                raise TypeError(f"kernel {self.kernel}: {parameter} can't take {_shown(kind)}")
        given, expected = len(kinds), len(self.parameters)
        if given < expected:
            raise TypeError(f"kernel {self.kernel}: {self.parameters[given]} is missing, behind {given} arguments")
        if given > expected:
            raise TypeError(
                f"kernel {self.kernel}: {_shown(kinds[expected])} is behind the last of {expected} arguments"
            )


def signatures_of(text: str, sample: str) -> dict[str, Signature]:
    """Returns the signatures of all kernels in a program's text, by name. `sample` is the C type of that name."""
    structs = {name: _size(members) for name, members in _STRUCT.findall(text)}
    return {
        name: Signature(name, tuple(_parameters(name, parameters, structs, sample)))
        for name, parameters in _KERNEL.findall(text)
    }


def _parameters(kernel: str, text: str, structs: dict[str, int], sample: str) -> Iterable[Parameter]:
    for part in text.split(","):
        plain = " ".join(re.sub(r"\b(?:const|__restrict__)\b", " ", part).split())
        match = _PARAMETER.fullmatch(plain)
        if match is None:
            raise ValueError(f"kernel {kernel}: the parameter {plain!r} can't be read")
        name, pointer = match["name"], bool(match["pointer"])
        kind = sample if match["type"] == "sample" else match["type"]
        if kind in structs:  # by reference the tensor that holds it, by value its numbers
            names = [name] if pointer else [f"{name}[{i}]" for i in range(structs[kind])]
            yield from (Parameter(name, "float", pointer) for name in names)
        elif kind in (_DTYPES if pointer else _FORMATS):
            yield Parameter(name, kind, pointer)
        else:
            raise ValueError(f"kernel {kernel}: arguments of the type of {plain!r} can't be checked")


def _size(members: str) -> int:
    """Returns how many numbers a struct has, from its members, such as `matrix[3][4], scale[3]`."""
    return sum(math.prod(map(int, re.findall(r"\[(\d+)\]", member))) for member in members.split(","))


def _shown(kind: _Kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
