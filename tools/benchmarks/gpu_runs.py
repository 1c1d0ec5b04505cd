"""What `benchmark_gpu.py` measures, each function in a fresh process; each returns one result or more, by name.

`fps` is that of whole runs, with models loaded, decoders made and graphs captured; `steady` is the rate inside the run,
see `benchmark.steady_rate`.
"""

import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from benchmark import WARM_UP as FEW
from benchmark import Result, measured, steady_rate
from no_encoder import NoEncoder

from segmentation import Config, segment
from segmentation.frames import Frame, FrameBatch
from segmentation.media.muxer import Muxer
from segmentation.media.opening.probe import probe
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.pipeline.request import Progress
from segmentation.stages.encode.segments import SegmentEncoder
from segmentation.stages.inference import GPU_BATCH
from segmentation.system.shared_memory import SharedPlanes

WARM_UP = 64  # frames
IN_MEMORY = 1200  # frames that encoders get again and again: all that differ in the clips
KINDS: dict[str, dict[str, Any]] = {  # options of the pipeline
    "null": {"encode": "null"},
    "jpeg": {"encode": "jpeg"},
    "nvenc": {"encode": "nvenc"},
    "x264 ultrafast": {"encode": "x264-segments", "preset": "ultrafast"},
    "x264 default": {"encode": "x264-segments"},
}
# The container of each kind's output. MP4's index goes to the front in the end, which would copy gigabytes of JPEG.
_SUFFIXES = {"jpeg": ".mkv"}
IMPLEMENTATIONS["encode"]["null"] = Implementation(f"{NoEncoder.__module__}:{NoEncoder.__name__}")


class GpuMemory:
    """The most GPU memory that this process takes, in MiB, its CUDA context included: looked at every 50 ms."""

    def __init__(self) -> None:
        self._before = _free_before()
        self._least = self._before
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "GpuMemory":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    @property
    def peak(self) -> float:
        return (self._before - self._least) / 2**20

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self._least = min(self._least, torch.cuda.mem_get_info()[0])


def _free_before() -> int:
    """Bytes that are free on the GPU; asked of nvidia-smi, since asking CUDA takes half a gigabyte of them."""
    try:
        query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits", "--id=0"]
        return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout) * 2**20
    except (OSError, ValueError, subprocess.CalledProcessError):
        return torch.cuda.mem_get_info()[0]


def watched(work: str, *arguments: Any) -> dict[str, Result]:
    """The results of one of the functions below, with the GPU memory that this process took at the most."""
    with GpuMemory() as memory:
        results: dict[str, Result] = globals()[work](*arguments)
    return {name: {**result, "gpu": memory.peak} for name, result in results.items()}


def from_inside(run: Callable[[int, Progress], int], frames: int) -> Result:
    """Measures `run`: it processes as many frames as it is told, says how many are done, and returns their number."""
    run(WARM_UP, lambda done, expected: None)
    marks: list[tuple[int, float]] = []
    result = measured(lambda: run(frames, lambda done, expected: marks.append((done, time.perf_counter()))))
    return {**result, "steady": steady_rate(marks)}


def pipeline(folder: Path, clip: Path, model: str, kind: str, frames: int) -> dict[str, Result]:
    """Ours, whole files, with one of `KINDS`."""
    config = Config(mode="optimized", model=model, overwrite=True, **KINDS[kind])
    target = folder / f"out{_SUFFIXES.get(kind, '.mp4')}"
    reports = []

    def run(count: int, progress: Progress) -> int:
        reports.append(segment(clip, target, config, max_frames=count, progress=progress))
        return reports[-1].frames

    result = from_inside(run, frames)
    return {kind: {**result, "busy": reports[-1].stages, "plan": reports[-1].plan}}


def decoding(folder: Path, clip: Path, frames: int) -> dict[str, Result]:
    """NVDEC alone: in order as in the pipeline, and the limit, decoders that know nothing of each other."""
    from gpu_decoders import Independent

    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec import NvdecDecoder
    from segmentation.stages.decode.nvdec_support import nvdec_engines

    gpu, info = Gpu(), probe(str(clip))

    def ordered(count: int, progress: Progress) -> int:
        done = 0
        for batch in NvdecDecoder(info, info.pix_fmt, Config(batch_size=GPU_BATCH, max_frames=count), gpu):
            done += len(batch)
            progress(done, count)
        gpu.stream.synchronize()
        return done

    results = {"ordered decoder": from_inside(ordered, frames)}
    engines = nvdec_engines(Config(), info)
    with Independent(info, engines) as limit:
        result = measured(lambda: limit.decode(frames))
    return {**results, f"{engines} independent decoders": {**result, "steady": result["fps"]}}


def segments(folder: Path, clip: Path, model: str, frames: int) -> dict[str, Result]:
    """x264 in segments alone, given from memory what the pipeline makes of the clip: blurred pictures are easier.

    Whole runs begin with the start of the encoders' process, and with one copy of the pictures to where it sees them.
    """
    from segmentation.stages.decode.pyav import PyAVDecoder

    finished = folder / "finished.mp4"
    segment(clip, finished, model=model, max_frames=IN_MEMORY, encode="x264-segments", preset="ultrafast", quality=0)
    info = probe(str(finished))
    decoder = PyAVDecoder(info, info.pix_fmt, Config(batch_size=GPU_BATCH), None)
    pictures = [tuple(np.array(plane) for plane in frame.planes) for batch in decoder for frame in batch.frames]
    step = round(1 / info.rate / info.time_base)
    whole = len(pictures) // GPU_BATCH * GPU_BATCH  # the pictures of whole batches

    def run(config: Config, count: int, progress: Progress) -> int:
        config = replace(config, max_frames=count)
        told = replace(info, frames=count)
        with Muxer(folder / "out.mp4", told, config) as muxer:
            encoder = SegmentEncoder(muxer, told, info.pix_fmt, config, None)
            blocks = encoder.blocks
            assert blocks is not None
            lent: dict[int, SharedPlanes] = {}  # each of the batches, where the encoders see it, as from a GPU
            for first in range(0, count, GPU_BATCH):
                begin = first % whole
                if begin not in lent:
                    lent[begin] = blocks.planes(
                        [(GPU_BATCH, *plane.shape) for plane in pictures[0]], pictures[0][0].dtype
                    )
                    for n, planes in enumerate(pictures[begin : begin + GPU_BATCH]):
                        for rows, plane in zip(lent[begin].arrays, planes, strict=True):
                            rows[n] = plane
                times = [n * step for n in range(first, min(first + GPU_BATCH, count))]
                batch = tuple(
                    Frame(planes=tuple(rows[n] for rows in lent[begin].arrays), pts=pts, duration=step)  # type: ignore[arg-type]
                    for n, pts in enumerate(times)
                )
                muxer.write(encoder.encode(FrameBatch(frames=batch, index=first, shared=lent[begin])))
                progress(first + len(batch), count)  # taken by the encoders, as in a pipeline
            muxer.write(encoder.flush())
            muxer.finish(None)
        return count

    results = {}
    for kind in ("x264 ultrafast", "x264 default"):
        config = Config(overwrite=True, **KINDS[kind])
        results[f"{kind} alone"] = from_inside(partial(run, config), frames)
    return results


def typical(folder: Path, clip: Path, model: str, frames: int) -> dict[str, Result]:
    """The workflow that people usually write; the time that its network takes to load does not count."""
    from typical_workflow import blur_background, on_gpu

    network, target = on_gpu(model, str(clip)), str(folder / "out.mp4")
    blur_background(str(clip), target, network, max_frames=FEW)
    return {"typical workflow": measured(lambda: blur_background(str(clip), target, network, max_frames=frames))}


def sample(folder: Path, clip: Path, model: str, frames: int) -> dict[str, Result]:
    """What NVIDIA's sample does, with x264 and with nothing encoded; loading does not count."""
    from gpu_peers import BATCH, run_sample
    from torch_network import TorchNetwork

    network = TorchNetwork(model, probe(str(clip)), torch.device("cuda"), half=True, batch=BATCH)
    results = {}
    for name, target in (("sample, x264 ultrafast", str(folder / "out.mp4")), ("sample, null", None)):
        run_sample(str(clip), target, network, max_frames=WARM_UP)
        results[name] = measured(lambda target=target: run_sample(str(clip), target, network, max_frames=frames))
    return results


def flatness(folder: Path, clip: Path, model: str, marks: tuple[int, ...]) -> dict[str, Result]:
    """What one run with nothing encoded holds after so many frames: GPU memory, host memory, open files, threads."""
    config = Config(mode="optimized", model=model, overwrite=True, **KINDS["null"])
    waiting, held = deque(sorted(marks)), []

    def look(done: int, expected: int) -> None:
        if waiting and done >= waiting[0]:
            held.append({"frames": waiting.popleft(), **_holdings()})

    work = measured(lambda: segment(clip, folder / "out.mp4", config, progress=look).frames)
    return {"flatness": {**work, "held": held}}


def _holdings() -> Result:
    free, total = torch.cuda.mem_get_info()
    resident = int(re.findall(r"VmRSS:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
    return {
        "gpu_used_mib": round((total - free) / 2**20, 1),
        "host_mib": round(resident, 1),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def export(target: Path, name: str, size: tuple[int, int]) -> None:
    """A network of torchvision with random weights as ONNX, as `segmentation-build NAME --no-weights` makes it."""
    from segmentation.models.graph.torchvision_export import export_by_name

    part = target.with_suffix(".part")
    export_by_name(name, part, size, weights=False)
    part.replace(target)
