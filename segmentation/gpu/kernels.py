"""Compiles and launches the project's own CUDA kernels, in files ending with .cu. Compiling needs no GPU."""

import ctypes
import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from segmentation.frames import PixelFormat
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.gpu import cuda_calls
from segmentation.gpu.built_kernels import built_kernels
from segmentation.gpu.signatures import Argument, Signature, signatures_of
from segmentation.system.cache import engine_folder
from segmentation.system.imports import imported

if TYPE_CHECKING:  # most starts find all machine code in the package, and do without a tenth of a second of imports
    from cuda.core import ObjectCode, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache

if find_spec("cuda.core") is None:
    raise ModuleNotFoundError("No module named 'cuda.core'", name="cuda.core")

log = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]
_COMMON = "gpu/common.cu"
_STANDARD = "c++17"
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


@dataclass(frozen=True, slots=True)
class Program:
    """A program for one kind of GPU and of frames."""

    arch: str  # the compute capability without its point, such as "90"
    source: KernelSource
    layout: PixelFormat
    orientation: Orientation = UPRIGHT

    def macros(self) -> dict[str, str]:
        """Returns the macros that the program is compiled with."""
        return self.source.macros(self.layout, self.orientation)

    def fingerprint(self) -> str:
        """Returns a name that is another one for any other machine code: for another text, macro, option or GPU."""
        facts = self.arch, _STANDARD, sorted(self.macros().items()), self.source.text()
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def sample_type(layout: PixelFormat) -> str:
    """Returns the C type of a sample."""
    return "unsigned char" if layout.bits == 8 else "unsigned short"


@dataclass(frozen=True, slots=True)
class _Kernel:
    handle: int
    signature: Signature
    size: "ctypes._Pointer[ctypes.c_size_t]"  # to the length of the arguments, in bytes


class MachineCode:
    """The machine code of a program, which the driver loads when a kernel is first asked for."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        self._lock = threading.Lock()
        self._library: int | None = None

    def kernel(self, name: str) -> int:
        """Returns the driver's handle of a kernel. Raises `DriverError`."""
        with self._lock:
            if self._library is None:
                self._library = cuda_calls.load_library(self.code)
        return cuda_calls.kernel_of(self._library, name)


class Kernels:
    """Queues the kernels of one program by name: `kernels("reduce", (width, height, count), *arguments)`."""

    def __init__(self, stream: int, program: MachineCode, signatures: dict[str, Signature]) -> None:
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
        cuda_calls.launch(kernel.handle, blocks(size), THREADS, packed, kernel.size, self._stream, name)

    def packed(self, name: str, *arguments: Argument) -> bytes:
        """Returns arguments as a kernel takes them, for a library that queues it by itself."""
        return self._signatures[name].pack(arguments)

    def handle(self, name: str) -> int:
        """Returns the driver's CUfunction of a kernel, for a library that queues it by itself."""
        return (self._loaded.get(name) or self._load(name)).handle

    def _load(self, name: str) -> _Kernel:
        signature = self._signatures[name]
        size = ctypes.pointer(ctypes.c_size_t(signature.form.size))
        kernel = _Kernel(self._program.kernel(name), signature, size)
        return self._loaded.setdefault(name, kernel)


def blocks(size: tuple[int, int, int]) -> tuple[int, int, int]:
    """Returns how many blocks of `THREADS` cover so many threads."""
    return -(-size[0] // THREADS[0]), -(-size[1] // THREADS[1]), size[2]


class _Compiler:
    """Compiles each program of the process once, several at a time: NVRTC releases the GIL, and uses one core each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: dict[Program, Future[MachineCode]] = {}

    def begin(self, program: Program, done: Callable[[], None] | None = None) -> Future[MachineCode]:
        """Returns the machine code as it will be. Any number of threads may ask for one program.

        `done` is called when it is compiled, unless another thread has begun that before.
        """
        with self._lock:
            if program not in self._programs:
                pool = ThreadPoolExecutor(1, "kernels")
                self._programs[program] = pool.submit(_compile, program, done)
                pool.shutdown(wait=False)
            return self._programs[program]

    def has(self, program: Program) -> bool:
        """Returns whether a program has been begun."""
        with self._lock:
            return program in self._programs

    def forget(self) -> None:
        """Makes the next requests look in the cache on disk again."""
        with self._lock:
            self._programs.clear()


COMPILER = _Compiler()


def compiled(arch: str, source: KernelSource, layout: PixelFormat, orientation: Orientation) -> MachineCode:
    """Returns the machine code of a program: the package's, else from a cache on disk, else compiled, which takes long.

    `arch` is the compute capability without its point, such as "90". See `KernelSource.macros` for the rest.
    """
    return COMPILER.begin(Program(arch, source, layout, orientation)).result()


def begin_compiling(programs: Sequence[Program]) -> None:
    """Begins to compile all of these side by side, and says how many are done while some are not there yet."""
    new = [program for program in programs if not COMPILER.has(program) and not _is_there(program)]
    numbers = count(1)

    def say() -> None:
        log.warning("preparing the GPU for its first run: kernels %d of %d", next(numbers), len(new))

    for program in programs:
        COMPILER.begin(program, say if program in new else None)


def compile_program(program: Program, cache: "FileStreamProgramCache | None", *, lines: bool) -> "ObjectCode":
    """Compiles a program, unless it is in the `cache`. With `lines` profilers show source beside the machine code."""
    compiler = imported("cuda.core").Program(program.source.text(), "c++", _options(program, lines))
    return compiler.compile("cubin", cache=cache)


def _compile(program: Program, done: Callable[[], None] | None) -> MachineCode:
    if (built := built_kernels(program.arch).get(program.fingerprint())) is not None:
        return MachineCode(built)
    code = MachineCode(bytes(compile_program(program, _cache(), lines=True).code))
    if done is not None:
        done()
    return code


def _is_there(program: Program) -> bool:
    """Returns whether a program's machine code is in the package or in the cache on disk."""
    if program.fingerprint() in built_kernels(program.arch):
        return True
    options, text = _options(program, lines=True), program.source.text()
    make_key = imported("cuda.core.utils").make_program_cache_key
    key = make_key(code=text, code_type="c++", options=options, target_type="cubin")
    return _cache().get(key) is not None


def _options(program: Program, lines: bool) -> "ProgramOptions":
    macros: list[str | tuple[str, str]] = list(program.macros().items())
    options = {"arch": f"sm_{program.arch}", "std": _STANDARD, "define_macro": macros, "lineinfo": lines}
    return imported("cuda.core").ProgramOptions(**options)


def _cache() -> "FileStreamProgramCache":
    return imported("cuda.core.utils").FileStreamProgramCache(engine_folder() / "kernels")


@cache
def signatures(source: KernelSource, layout: PixelFormat) -> dict[str, Signature]:
    """Returns the signatures of a program's kernels, by name."""
    return signatures_of(source.text(), sample_type(layout))
