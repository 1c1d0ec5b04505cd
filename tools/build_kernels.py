"""Compiles the kernels for the usual GPUs into the package, so that a first run on one of them need not.

    python tools/build_kernels.py            # then build the wheel; without this it works too
    python tools/build_kernels.py --arch 90

It needs cuda-core, cuda-bindings and nvidia-cuda-nvrtc, and no GPU. A kernel that is changed later is compiled on the
machine that runs it, until this runs again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))  # so that a checkout works without being installed

if TYPE_CHECKING:
    from segmentation.gpu.kernels import Program

ARCHS = ("75", "80", "86", "89", "90", "100", "120")  # compute capabilities of GPUs in wide use
LAYOUTS = ("yuv420p", "yuv420p10le")  # of most videos
TURNS = (0, 1, 3)  # quarter turns, as cameras and phones record


def programs(arch: str) -> list[Program]:
    """Returns the programs that most runs on such a GPU ask for. Others are compiled at their first use."""
    from segmentation.frames import FORMATS  # --help needs none of these
    from segmentation.frames.orientation import Orientation
    from segmentation.gpu.kernels import Program
    from segmentation.interval.kernels import PROPAGATION
    from segmentation.stages.frame_kernels import FRAMES
    from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, INSTANCES, SEPARABLE, STEM
    from segmentation.stages.masks.mask_kernels import MASKS

    frames = [Program(arch, FRAMES, FORMATS[layout], Orientation(turns)) for layout in LAYOUTS for turns in TURNS]
    others = MASKS, PROPAGATION, INSTANCES, STEM, *DEPTHWISE.values(), *SEPARABLE.values()
    return frames + [Program(arch, source, FORMATS["yuv420p"]) for source in others]


def build(arch: str) -> Path:
    """Compiles the programs for one kind of GPU side by side, and returns the file that they are in."""
    from segmentation.gpu.built_kernels import write_built_kernels
    from segmentation.gpu.kernels import compile_program

    wanted = programs(arch)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC releases the GIL
        codes = list(pool.map(lambda program: bytes(compile_program(program, None, lines=False).code), wanted))
    found = {program.fingerprint(): code for program, code in zip(wanted, codes, strict=True)}
    return write_built_kernels(arch, found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles the kernels for the usual GPUs into the package.")
    parser.add_argument("--arch", choices=ARCHS, action="append", help="compute capability; as often as needed")
    archs = parser.parse_args().arch or ARCHS
    from segmentation.gpu.built_kernels import FOLDER

    shutil.rmtree(FOLDER, ignore_errors=True)  # what was built of earlier sources would only take room
    for arch in archs:
        path = build(arch)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
