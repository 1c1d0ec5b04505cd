"""Compiles and launches the project's own CUDA kernels, in files ending with .cu. Compiling needs no GPU."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cuda.core import ObjectCode, Program, ProgramOptions
from cuda.core.utils import FileStreamProgramCache

from segmentation.frames import PixelFormat
from segmentation.frames.orientation import Orientation
from segmentation.gpu import cuda_calls
from segmentation.gpu.signatures import Argument, Packer, Signature, signatures_of
from segmentation.system.cache import engine_folder

_PACKAGE = Path(__file__).parents[1]
_COMMON = "gpu/common.cu"
THREADS = (32, 8)  # of a block: a warp along a row, so that neighbouring threads read neighbouring samples


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Files that are compiled together into one program, behind common.cu."""

    files: tuple[str, ...]  # in this order, relative to the package
    constants: tuple[tuple[str, int | float], ...] = ()  # macros: what the files share with Python

    def text(self) -> str:
        """Returns the program's text; the compiler counts the lines of each file from 1."""
        return "".join(
            f'#line 1 "{name}"\n{(_PACKAGE / name).read_text(encoding="utf-8")}' for name in (_COMMON, *self.files)
        )

    def macros(self, layout: PixelFormat, orientation: Orientation) -> dict[str, str]:
        """Returns the macros of common.cu, for frames of this layout that are stored so, and the constants."""
        frames = {"SHIFT_X": layout.shift_x, "SHIFT_Y": layout.shift_y}
        frames |= {"TURNS": orientation.turns, "MIRRORED": int(orientation.mirrored)}
        values = frames | {"THREADS_X": THREADS[0], "THREADS_Y": THREADS[1]} | dict(self.constants)
        texts = {name: f"{value}f" if isinstance(value, float) else str(value) for name, value in values.items()}
        return {"SAMPLE": sample_type(layout)} | texts


def sample_type(layout: PixelFormat) -> str:
    """Returns the C type of a sample."""
    return "unsigned char" if layout.bits == 8 else "unsigned short"


@dataclass(frozen=True, slots=True)
class _Kernel:
    handle: int
    signature: Signature
    size: "ctypes._Pointer[ctypes.c_size_t]"  # to the length of the arguments, in bytes


class Kernels:
    """Queues the kernels of one program by name: `kernels("reduce", (width, height, count), *arguments)`."""

    def __init__(self, stream: int, program: ObjectCode, signatures: dict[str, Signature]) -> None:
        self._stream = stream
        self._program = program
        self._signatures = signatures
        self._loaded: dict[str, _Kernel] = {}

    def __call__(self, name: str, size: tuple[int, int, int], *arguments: Argument) -> None:
        """Queues a kernel on `size` (x, y, z) threads, with one frame of a batch for each z.

        Tensors are passed as pointers, `int` as a 32-bit number, NumPy scalars in their own type. Raises `TypeError`
        for arguments that don't fit the kernel's parameters.
        """
        kernel = self._loaded.get(name) or self._load(name)
        packed = kernel.signature.pack(arguments)
        cuda_calls.launch(kernel.handle, _grid(size), THREADS, packed, kernel.size, self._stream, name)

    def prepared(self, name: str, size: tuple[int, int, int], *arguments: Argument) -> Callable[..., None]:
        """Returns a function that queues a kernel again and again. Its keywords change arguments, see `Packer`."""
        kernel = self._loaded.get(name) or self._load(name)
        packer, grid = Packer(kernel.signature, arguments), _grid(size)

        def queue(**changed: int) -> None:
            cuda_calls.launch(kernel.handle, grid, THREADS, packer(**changed), kernel.size, self._stream, name)

        return queue

    def _load(self, name: str) -> _Kernel:
        signature = self._signatures[name]
        size = ctypes.pointer(ctypes.c_size_t(signature.form.size))
        kernel = _Kernel(int(self._program.get_kernel(name).handle), signature, size)
        return self._loaded.setdefault(name, kernel)


def _grid(size: tuple[int, int, int]) -> tuple[int, int, int]:
    """Returns how many blocks of `THREADS` cover so many threads."""
    return -(-size[0] // THREADS[0]), -(-size[1] // THREADS[1]), size[2]


def compiled(arch: str, source: KernelSource, layout: PixelFormat, orientation: Orientation) -> ObjectCode:
    """Returns the machine code of a program, from a cache on disk where possible: compiling takes long.

    `arch` is the compute capability without its point, such as "90". See `KernelSource.macros` for the rest.
    """
    return _compiled(arch, source, layout, orientation)


@cache  # for type checkers it takes anything that is hashable
def _compiled(arch: str, source: KernelSource, layout: PixelFormat, orientation: Orientation) -> ObjectCode:
    macros: list[str | tuple[str, str]] = list(source.macros(layout, orientation).items())
    options = ProgramOptions(arch=f"sm_{arch}", std="c++17", define_macro=macros, lineinfo=True)
    program = Program(source.text(), "c++", options)
    return program.compile("cubin", cache=FileStreamProgramCache(engine_folder() / "kernels"))


@cache
def signatures(source: KernelSource, layout: PixelFormat) -> dict[str, Signature]:
    """Returns the signatures of a program's kernels, by name."""
    return signatures_of(source.text(), sample_type(layout))
