"""Times the kernels that propagate masks on a GPU, as runs with `--interval` launch them.

    python tools/benchmarks/propagation_times.py -o propagation.json

Times are the GPU's own, between events around each kernel: all launches are queued while the GPU is kept busy, so that
none waits for the host. `copy_us` is what a copy takes that moves as many bytes as the kernels have to read and write
once: lumas and masks of the keys, lumas of the frames between, and their masks.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

SIZES = ((336, 192), (520, 520))  # of the built-in network's input, and of a heavy network's
BUSY = 100_000_000  # cycles that the GPU is kept busy while kernels are queued
INTERVAL = 3  # frames between two keys
STEP = INTERVAL + 1


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


def measured(size: tuple[int, int], frames: int, repeats: int) -> dict[str, Any]:
    """Returns microseconds by kernel for so many frames between keys of random pictures."""
    from dataclasses import replace

    import torch

    from segmentation.gpu.context import Gpu
    from segmentation.models.model import load_model
    from segmentation.options.config import Config
    from segmentation.stages.masks.cuda_propagation import CudaPropagation
    from segmentation.stages.masks.propagation import FrameBetween

    gpu, (width, height) = Gpu(), size
    backend = CudaPropagation(replace(load_model(Config()), width=width, height=height), gpu)
    with torch.cuda.stream(gpu.stream):
        keys = range(0, -(-frames // INTERVAL) * STEP + 1, STEP)
        count = keys[-1] + 1
        pictures = torch.rand((count, 3, height // 8, width // 8), device=gpu.device, generator=_seeded(torch))
        pictures = torch.nn.functional.interpolate(pictures, (height, width), mode="bicubic") * 2 - 1
        masks = (pictures[:, 0] > 0).float()
        _, lumas = backend.keep(pictures, count)
        found = backend.split(masks, None, count)
        between = [
            FrameBetween(lumas[at], (lumas[key], lumas[key + STEP]), (found[key], found[key + STEP]), 1 / 2)
            for key in keys[:-1]
            for at in range(key + 1, key + STEP)
        ][:frames]
        made, doubts = backend.propagate(between, doubt=True)  # warms up
        doubts()
        timed = backend._kernels = Timed(backend._kernels, torch)  # type: ignore[assignment]
        for _ in range(repeats):
            torch.cuda._sleep(BUSY)  # type: ignore[no-untyped-call]
            backend.propagate(between, doubt=True)
            torch.cuda.synchronize()
        record = lumas[0].record.numel()
        moved = (frames + len(keys)) * (record + 4 * width * height)
        copy = _copy_us(torch, moved, repeats)
    by_kernel: dict[str, list[float]] = defaultdict(list)
    for name, before, after in timed.events:
        by_kernel[name].append(1000 * before.elapsed_time(after) / repeats)
    kernels = {name: round(sum(times), 1) for name, times in by_kernel.items()}
    return {
        "width": width,
        "height": height,
        "frames": len(between),
        "kernels_us": kernels,
        "total_us": round(sum(us for name, us in kernels.items() if name != "doubt"), 1),
        "copy_us": copy,
        "checksum": float(sum(one.mask.double().sum().item() for one in made)),
    }


def _seeded(torch: Any) -> Any:
    return torch.Generator("cuda").manual_seed(1)


def _copy_us(torch: Any, moved: int, repeats: int) -> float:
    """Returns the median microseconds of a copy that reads and writes so many bytes in all."""
    source = torch.zeros(moved // 2, dtype=torch.uint8, device="cuda")
    target, times = torch.empty_like(source), []
    for _ in range(repeats):
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
    parser.add_argument("--frames", type=int, default=16, help="between keys, in one call")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "results" / "propagation.json")
    options = parser.parse_args()
    import torch  # --help does not need it

    rows = [measured(size, options.frames, options.repeats) for size in SIZES]
    about = circumstances(f"benchmarks/{Path(__file__).name}", sys.argv[1:])
    about["hardware"]["gpu"] = torch.cuda.get_device_name()
    options.output.write_text(json.dumps(about | {"propagation": rows}, indent=2) + "\n")
    for row in rows:
        print(
            f"{row['width']}x{row['height']}: {row['total_us']} us for {row['frames']} frames, a copy {row['copy_us']}"
        )
        print("   ", row["kernels_us"], row["checksum"])


if __name__ == "__main__":
    main()
