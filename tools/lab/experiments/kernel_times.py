"""Times the kernels that work on masks on a GPU: smoothing, refinement, propagation and effects of one batch.

    python tools/lab/experiments/kernel_times.py ../shared/clips/person-walking.mp4 -o kernel-times.json

Frames are noise of 1920x1080 in the video's format. Masks are soft ellipses, about as large as a person in front of a
camera, in the size of the built-in network's masks or of a heavy one's.
Times are the GPU's own, between events around each kernel: all launches are queued while the GPU is kept busy, so that
none waits for the host. `copy_us` is what a copy takes that moves as many bytes as propagation has to read and write
once: lumas and masks of the keys, lumas of the frames between, and their masks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation.frames import ON_GPU, Frame, FrameBatch, MaskedBatch, VideoInfo
from segmentation.interval.propagation import FrameBetween
from segmentation.media.opening.probe import probe
from segmentation.models.model import Model, load_model
from segmentation.options.config import Config
from segmentation.options.effect import Effect

if TYPE_CHECKING:
    import torch

    from segmentation.gpu.context import Gpu

SIZES = ((336, 192), (520, 520))  # of the built-in network's input, and of a heavy network's
FRAME = (1920, 1080)
BUSY = 100_000_000  # cycles that the GPU is kept busy while kernels are queued
INTERVAL = 3  # frames between two keys
STEP = INTERVAL + 1
COUNT = 16  # frames of a batch
REPEATS = 20


class Timed:
    """Launches kernels with an event before and behind each."""

    def __init__(self, kernels: Any, torch: Any) -> None:
        self._kernels, self._torch = kernels, torch
        self.events: list[tuple[str, Any, Any]] = []

    def __call__(self, name: str, *arguments: Any) -> None:
        before, after = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        self._kernels(name, *arguments)
        after.record()
        self.events.append((name, before, after))


def microseconds(stage: Any, call: Callable[[], object]) -> dict[str, float]:
    """Returns the time of each kernel that `stage` launches in a call; of several launches, their sum."""
    import torch

    call()  # warms up
    stage._kernels = timed = Timed(stage._kernels, torch)
    for _ in range(REPEATS):
        torch.cuda._sleep(BUSY)  # type: ignore[no-untyped-call]
        call()
        torch.cuda.synchronize()
    by_kernel: dict[str, float] = defaultdict(float)
    for name, before, after in timed.events:
        by_kernel[name] += 1000 * before.elapsed_time(after) / REPEATS
    return {name: round(us, 1) for name, us in by_kernel.items()}


def masks_of(model: Model, info: VideoInfo, gpu: Gpu) -> dict[str, Any]:
    """Returns microseconds by kernel of smoothing, refinement and effects, and the sum of the refined masks.

    The total is that of a blur.
    """
    from segmentation.stages.masks.cuda import CudaRefiner, CudaSmoothing
    from segmentation.stages.postprocess.cvcuda import CvCudaPostprocessor

    config = Config(batch_size=COUNT)
    pictures = (_pictures(1, model, gpu) + 0.01 * _pictures(COUNT, model, gpu)).contiguous()  # no cuts between them
    masks = _ellipses(COUNT, model, gpu)
    batch = _frames(info, gpu)
    smoothing = CudaSmoothing(model, config, gpu)
    refiner: Any = CudaRefiner(info, "yuv420p", config, gpu)
    blur, pixelate = (CvCudaPostprocessor(info, "yuv420p", Effect.parse(e), config, gpu) for e in ("blur", "pixelate"))

    def smooth() -> Any:
        return smoothing.average(smoothing.keep(pictures, masks, COUNT), 0, COUNT)

    smoothed = microseconds(smoothing, smooth)
    refined = microseconds(refiner, lambda: refiner(batch, masks))
    shown = MaskedBatch(frames=batch, masks=refiner(batch, masks).clone())
    kernels = {**smoothed, **refined, **microseconds(blur, lambda: blur(shown))}
    return {
        "kernels_us": kernels,
        "pixelate_us": microseconds(pixelate, lambda: pixelate(shown))["pixelate"],
        "total_us": round(sum(kernels.values()), 1),
        "checksum": float(refiner(batch, smooth()).double().sum().item()),
    }


def propagation(model: Model, gpu: Gpu) -> dict[str, Any]:
    """Returns microseconds by kernel for a batch of frames between keys of random pictures."""
    from segmentation.interval.cuda_propagation import CudaPropagation

    backend = CudaPropagation(model, gpu)
    keys = range(0, -(-COUNT // INTERVAL) * STEP + 1, STEP)
    count = keys[-1] + 1
    pictures = _pictures(count, model, gpu)
    masks = (pictures[:, 0] > 0).float()
    _, lumas = backend.keep(pictures, count)
    found = backend.split(masks, None, count)
    between = [
        FrameBetween(lumas[at], (lumas[key], lumas[key + STEP]), (found[key], found[key + STEP]), 1 / 2)
        for key in keys[:-1]
        for at in range(key + 1, key + STEP)
    ][:COUNT]
    made, _ = backend.propagate(between, doubt=True)
    kernels = microseconds(backend, lambda: backend.propagate(between, doubt=True))
    moved = (COUNT + len(keys)) * (lumas[0].record.numel() + 4 * model.width * model.height)
    return {
        "kernels_us": kernels,
        "total_us": round(sum(us for name, us in kernels.items() if name != "measure_doubt"), 1),
        "copy_us": _copy_us(moved),
        "checksum": float(sum(one.mask.double().sum().item() for one in made)),
    }


def _pictures(count: int, model: Model, gpu: Gpu) -> torch.Tensor:
    """Returns smooth noise in -1..1, (count, 3, H, W), the same each time."""
    import torch

    seeded = torch.Generator("cuda").manual_seed(1)
    small = torch.rand((count, 3, model.height // 8, model.width // 8), device=gpu.device, generator=seeded)
    large: torch.Tensor = torch.nn.functional.interpolate(small, (model.height, model.width), mode="bicubic")
    return large * 2 - 1


def _ellipses(count: int, model: Model, gpu: Gpu) -> torch.Tensor:
    """Returns masks (count, H, W) of an ellipse that moves to the right, with a soft edge."""
    import torch

    rows, columns, steps = (
        torch.linspace(0, 1, size, device=gpu.device) for size in (model.height, model.width, count)
    )
    across = (columns - 0.3 - 0.4 * steps[:, None, None]) / 0.15
    down = ((rows - 0.5) / 0.4)[:, None]
    masks: torch.Tensor = (10 * (1 - across.square() - down.square())).clamp(0, 1).contiguous()
    return masks


def _frames(info: VideoInfo, gpu: Gpu) -> FrameBatch:
    import torch

    shapes = [(info.height, info.width), *[(info.height // 2, info.width // 2)] * 2]
    seeded = torch.Generator("cuda").manual_seed(2)
    planes = tuple(
        torch.randint(16, 236, (COUNT, *shape), dtype=torch.uint8, device=gpu.device, generator=seeded)
        for shape in shapes
    )
    frames = tuple(Frame(planes=ON_GPU, pts=number, duration=1) for number in range(COUNT))
    return FrameBatch(frames=frames, index=0, planes=planes)


def _copy_us(moved: int) -> float:
    """Returns the median microseconds of a copy that reads and writes so many bytes in all."""
    import torch

    source = torch.zeros(moved // 2, dtype=torch.uint8, device="cuda")
    target, times = torch.empty_like(source), []
    for _ in range(REPEATS):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(BUSY // 100)
        before.record()
        target.copy_(source)
        after.record()
        torch.cuda.synchronize()
        times.append(1000 * before.elapsed_time(after))
    return round(statistics.median(times), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", help="whose color and rate the frames have")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "kernel-times.json")
    options = parser.parse_args()
    import torch  # --help does not need it

    from segmentation.gpu.context import Gpu

    gpu = Gpu()
    info = replace(probe(options.video), width=FRAME[0], height=FRAME[1])
    rows: dict[str, list[dict[str, Any]]] = {"masks": [], "propagation": []}
    for width, height in SIZES:
        model = replace(load_model(Config()), width=width, height=height)
        size = {"width": width, "height": height, "frames": COUNT}
        with torch.inference_mode(), torch.cuda.stream(gpu.stream):
            rows["masks"].append(size | masks_of(model, info, gpu))
            rows["propagation"].append(size | propagation(model, gpu))
    about = circumstances(f"lab/experiments/{Path(__file__).name}", sys.argv[1:])
    about["hardware"]["gpu"] = torch.cuda.get_device_name()
    options.output.write_text(json.dumps(about | rows, indent=2) + "\n")
    for name, several in rows.items():
        for row in several:
            print(f"{name} {row['width']}x{row['height']}: {row['total_us']} us", row["kernels_us"], row["checksum"])


if __name__ == "__main__":
    main()
