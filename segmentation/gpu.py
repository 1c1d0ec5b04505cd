"""The GPU of a run: its memory, the one stream that all libraries share, and the project's own kernels."""

import threading
from functools import cache
from pathlib import Path
from typing import Any

import cvcuda
import numpy as np
import torch
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch
from cuda.core.utils import FileStreamProgramCache

from segmentation.folders import engine_folder
from segmentation.frames import PixelFormat

_SOURCE = Path(__file__).parent / "kernels.cu"
_BLOCK = (32, 8)  # threads: a warp along a row, so that it reads neighbouring samples


class Gpu:
    """One device and its one stream. Whatever a stage queues on the stream happens in the order of queueing.

    Device memory is PyTorch's: it goes back to PyTorch when its last reference is gone, and the next that asks for as
    much gets it again, without a wait, because both use it on the same stream.
    """

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.device = torch.device("cuda", index)
        self._entered = threading.local()
        self.enter()
        self.stream = torch.cuda.Stream(self.device)
        self.cvcuda_stream = cvcuda.as_stream(self.stream.cuda_stream)
        self._launch_stream = Stream.from_handle(self.stream.cuda_stream)

    def enter(self) -> None:
        """Makes this device the current one of the calling thread, as every thread that queues work must."""
        if not hasattr(self._entered, "yes"):
            torch.cuda.set_device(self.device)
            Device(self.index).set_current()
            self._entered.yes = True

    def free_bytes(self) -> int:
        """Memory that nobody has taken."""
        free: int = torch.cuda.mem_get_info(self.device)[0]
        return free

    def event(self) -> torch.cuda.Event:
        """An event that tells when the stream has passed it."""
        return torch.cuda.Event(enable_timing=True)

    def kernels(self, layout: PixelFormat, turns: int = 0) -> "Kernels":
        """The kernels for frames of this layout that stand upright after `turns` quarter turns."""
        return Kernels(self._launch_stream, _compiled(Device(self.index).arch, layout, turns))

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Device memory for use on the stream."""
        with torch.cuda.stream(self.stream):
            return torch.empty(shape, dtype=dtype, device=self.device)


class Kernels:
    """The functions of `kernels.cu`, queued by name: `kernels("reduce", (width, height, count), *arguments)`."""

    def __init__(self, stream: Any, program: Any) -> None:
        self._stream = stream
        self._program = program
        self._known: dict[str, Any] = {}

    def __call__(self, name: str, size: tuple[int, int, int], *arguments: object) -> None:
        """Queues a kernel on `size` (x, y, z) threads, one frame of a batch for each z.

        Tensors are passed as pointers, `int` as a 32-bit number, anything else as it is.
        """
        kernel = self._known.get(name) or self._known.setdefault(name, self._program.get_kernel(name))
        width, height, count = size
        grid = (-(-width // _BLOCK[0]), -(-height // _BLOCK[1]), count)
        launch(self._stream, _config(grid), kernel, *map(_argument, arguments))


def torch_dtype(layout: PixelFormat) -> torch.dtype:
    """uint8 for 8 bits, uint16 for 10."""
    return torch.uint8 if layout.bits == 8 else torch.uint16


def _argument(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return np.int32(value) if isinstance(value, int) else value


@cache
def _config(grid: tuple[int, int, int]) -> LaunchConfig:
    return LaunchConfig(grid=grid, block=_BLOCK)


@cache
def _compiled(arch: str, layout: PixelFormat, turns: int) -> Any:
    """The kernels as machine code: compiling takes a quarter of a second, so it is kept."""
    sample = "unsigned char" if layout.bits == 8 else "unsigned short"
    values = {"SAMPLE": sample, "SHIFT_X": layout.shift_x, "SHIFT_Y": layout.shift_y, "TURNS": turns}
    macros: list[Any] = [(name, str(value)) for name, value in values.items()]
    options = ProgramOptions(arch=f"sm_{arch}", std="c++17", define_macro=macros, lineinfo=True)
    program = Program(_SOURCE.read_text(encoding="utf-8"), "c++", options)
    return program.compile("cubin", cache=FileStreamProgramCache(engine_folder() / "kernels"))
