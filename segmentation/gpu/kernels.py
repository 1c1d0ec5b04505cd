"""The project's own CUDA kernels, in files ending with .cu: compiling and launching. Compiling needs no GPU."""

import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cuda.core import Program, ProgramOptions
from cuda.core.utils import FileStreamProgramCache

from segmentation.cache import engine_folder
from segmentation.frames import PixelFormat
from segmentation.gpu import driver
from segmentation.stages.masks import refinement, smoothing

_FOLDER = Path(__file__).parents[1]
COMMON = "gpu/common.cu"  # what both programs begin with
FRAMES = ("stages/preprocess/frames.cu", "stages/postprocess/background.cu", "stages/postprocess/composite.cu")
MASKS = ("stages/masks/masks.cu",)
THREADS = (32, 8)  # of a block: a warp along a row, so that it reads neighbouring samples
ROWS = 4  # chroma samples below each other that a thread composites: by how much to enlarge is worked out once for them
_FORMATS = {int: "i", np.float32: "f", np.int64: "q", np.uint64: "Q"}  # of arguments that are no tensors


class Kernels:
    """The functions of one of the programs, queued by name: `kernels("reduce", (width, height, count), *arguments)`."""

    def __init__(self, stream: int, program: Any) -> None:
        self._stream = stream
        self._program = program
        self._known: dict[str, int] = {}

    def __call__(self, name: str, size: tuple[int, int, int], *arguments: object) -> None:
        """Queues a kernel on `size` (x, y, z) threads, one frame of a batch for each z.

        Tensors are passed as pointers, `int` as a 32-bit number, anything else, a NumPy scalar, as it is.
        """
        kernel = self._known.get(name) or self._known.setdefault(name, int(self._program.get_kernel(name).handle))
        width, height, count = size
        grid = (-(-width // THREADS[0]), -(-height // THREADS[1]), count)
        form, length = _form(tuple(map(type, arguments)))
        packed = form.pack(*(value.data_ptr() if hasattr(value, "data_ptr") else value for value in arguments))
        driver.launch(kernel, grid, THREADS, packed, length, self._stream, name)


@cache
def _form(types: tuple[type, ...]) -> tuple[struct.Struct, Any]:
    """How arguments of these types lie in memory, in C and so in a kernel, and how long that is."""
    form = struct.Struct("".join(_FORMATS.get(kind, "P") for kind in types))
    return form, ctypes.pointer(ctypes.c_size_t(form.size))


@cache
def compiled(arch: str, layout: PixelFormat, turns: int, source: tuple[str, ...] = FRAMES) -> Any:
    """The kernels of a program as machine code: compiling takes a quarter of a second, so it is kept."""
    macros: list[Any] = list(macros_of(source, layout, turns).items())
    options = ProgramOptions(arch=f"sm_{arch}", std="c++17", define_macro=macros, lineinfo=True)
    program = Program(source_of(source), "c++", options)
    return program.compile("cubin", cache=FileStreamProgramCache(engine_folder() / "kernels"))


def source_of(files: tuple[str, ...]) -> str:
    """A program's text, behind what they have in common; the compiler counts each file's lines from 1."""
    return "".join(f'#line 1 "{name}"\n{(_FOLDER / name).read_text(encoding="utf-8")}' for name in (COMMON, *files))


def macros_of(source: tuple[str, ...], layout: PixelFormat, turns: int) -> dict[str, str]:
    """What a program is compiled for, as the heads of its files say."""
    sample = "unsigned char" if layout.bits == 8 else "unsigned short"
    values: dict[str, object] = {"SHIFT_X": layout.shift_x, "SHIFT_Y": layout.shift_y, "TURNS": turns, "ROWS": ROWS}
    if source == MASKS:
        names = ("REACH", "BLOCK", "CHANGE", "CHANGE_BOX", "DOUBT", "DOUBT_BOX", "CUT")
        values |= {name: getattr(smoothing, name) for name in names}
        values |= {name: getattr(refinement, name) for name in ("BOX", "EPSILON", "MISFIT")}
        values["REFINED"], values["UNREFINED"] = refinement.DOUBT
    return {"SAMPLE": sample} | {k: f"{v}f" if isinstance(v, float) else str(v) for k, v in values.items()}
