"""How many videos at once are usually processed: a thread for each, with a loop of OpenCV's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmark import measured
from typical_workflow import blur_background, on_cpu, on_gpu

from segmentation.gpu.discovery import find_gpu
from segmentation.media.opening.probe import probe
from segmentation.models.model import load_model
from segmentation.options.config import Config

LOOP = "a loop of OpenCV's in a thread for each"


def loops(clip: Path, model: str, streams: int, frames: int, folder: Path) -> dict[str, Any]:
    """Returns the figures of so many threads, which share a network and encode as OpenCV does."""
    network = (
        on_cpu(load_model(Config(model=model), probe(str(clip)))) if find_gpu() is None else on_gpu(model, str(clip))
    )

    def stream(number: int) -> int:
        return blur_background(str(clip), str(folder / f"{number}.mp4"), network, max_frames=frames)

    with ThreadPoolExecutor(streams) as pool:
        return whole_run(lambda: sum(pool.map(stream, range(streams))), streams)


def whole_run(work: Callable[[], int], streams: int) -> dict[str, Any]:
    """Returns the figures of `work`, which returns the number of its frames, from its start to its end."""
    result = measured(work)
    rate = round(result["fps"] / streams, 2)
    return {
        "fps": rate,
        "fps_of_all_the_run": rate,
        "cpu_seconds_per_1000_frames": round(result["cpu"], 2),
        "peak_memory_mib": round(result["peak"]),
    }
