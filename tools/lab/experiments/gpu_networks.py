"""Times of networks alone on a GPU, for `network_times.py`."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from circumstances import ROOT

from segmentation import Config
from segmentation.gpu.context import Gpu
from segmentation.media.opening.probe import probe
from segmentation.models.model import load_model
from segmentation.stages.inference.instances.torch_instances import TorchInstanceInference
from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

WARM_UP, IN_A_ROW = 3, 20


def measured(names: Sequence[str], batches: Sequence[int], repeats: int) -> tuple[str, list[dict[str, Any]]]:
    """Returns the GPU's name, and the times of each network with each batch size, which take turns."""
    gpu = Gpu()
    calls = {(name, n): call(name, n, gpu) for name in names for n in batches}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    for repeat in range(WARM_UP + repeats):
        for key, run in calls.items():
            spent = milliseconds(run, gpu)
            if repeat >= WARM_UP:
                times[key].append(spent)
    rows = [
        {"model": Path(name).name, "batch": n, "median_ms": statistics.median(found), "min_ms": min(found)}
        for (name, n), found in times.items()
    ]
    return torch.cuda.get_device_name(gpu.device), rows


def call(name: str, batch: int, gpu: Gpu) -> Callable[[], object]:
    """Returns a call of the network `name` on pictures that are on the GPU."""
    model = load_model(Config(model=name), probe(str(ROOT / "samples" / "astronaut.mp4")))
    implementation = TorchFp16Inference if model.detection is None else TorchInstanceInference
    infer = implementation(model, Config(batch_size=batch), gpu)
    pictures = torch.randn((batch, 3, model.height, model.width), device=f"cuda:{gpu.index}")
    return lambda: infer(pictures)


def milliseconds(run: Callable[[], object], gpu: Gpu) -> float:
    """Returns the GPU's time of one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(gpu.stream)
    for _ in range(IN_A_ROW):
        run()
    end.record(gpu.stream)
    end.synchronize()
    return begin.elapsed_time(end) / IN_A_ROW
