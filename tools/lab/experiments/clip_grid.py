"""Measures what clips add to a training's iteration: sources of several sizes, crops of one, as in NVVL's paper.

    python tools/lab/experiments/clip_grid.py ../shared/corpus/05_default_juggle.mp4 --device cuda -o grid.json

Batches of 8 random clips of 3 frames, cut and scaled to 540x960. What the first batch takes is counted from the making
of the loader on. Then the loader runs alone: that is the loading time of a batch. Then an iteration also computes for
1.5 times as long, on a GPU with products of matrices, else by waiting. The overhead is the mean of such an iteration
less that of one whose batch is there already, each from one synchronization to the next. CPU seconds are those of the
process, for 1,000 frames. A dataset has the video several times, so that no epoch ends on the way: the next one
begins with nothing decoded.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from circumstances import ROOT, circumstances
from clips import make_clip

from segmentation.clips import Batch, ClipDataset, ClipLoader, Output

LENGTH, BATCH, CROP = 3, 8, (540, 960)
SOURCES = {540: (960, 540), 720: (1280, 720), 1080: (1920, 1080), 2160: (3840, 2160)}
_WARM_UP = 5  # batches
Work = Callable[[], object]


def batches(dataset: ClipDataset, dtype: str, device: str, workers: int | None) -> Iterator[Batch]:
    """Yields batches for ever."""
    outputs = {"input": Output(size=CROP, crop="random", flip=True, dtype=dtype)}
    loader = ClipLoader(dataset, BATCH, outputs=outputs, shuffle="full", device=device, workers=workers)
    while True:
        yield from loader


def waiter(device: str) -> Work:
    """Returns what waits until the device has done what the calling thread has queued, as `loss.item()` does."""
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.current_stream(device).synchronize


def computing(seconds: float, device: str) -> Work:
    """Returns what keeps the device busy for so long, more or less."""
    if device == "cpu":
        return lambda: time.sleep(seconds)
    import torch

    factor = torch.zeros((4096, 4096), dtype=torch.float16, device=device)
    target = torch.empty_like(factor)

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(factor, factor, out=target)

    multiply(10)
    alone = mean(timed(lambda: multiply(20), 3, torch.cuda.synchronize)) / 20
    return lambda: multiply(max(1, round(seconds / alone)))


def timed(iteration: Work, count: int, wait: Work) -> list[float]:
    """Returns the seconds of so many iterations, each from one synchronization to the next."""
    found = []
    for _ in range(count):
        wait()
        begin = time.perf_counter()
        iteration()
        wait()
        found.append(time.perf_counter() - begin)
    return found


def measured(dataset: ClipDataset, dtype: str, device: str, workers: int | None, iterations: int) -> dict[str, float]:
    """Returns milliseconds of an iteration, and CPU seconds."""
    wait, begin = waiter(device), time.perf_counter()
    source = batches(dataset, dtype, device, workers)
    next(source)
    wait()
    first = time.perf_counter() - begin
    for _ in range(_WARM_UP):  # decoders, kernels and what is decoded ahead
        next(source)
    cpu = time.process_time()
    loading = mean(timed(lambda: next(source), iterations, wait))
    cpu = time.process_time() - cpu
    compute = computing(1.5 * loading, device)
    alone = mean(timed(compute, iterations, wait))

    def train() -> None:
        next(source)
        compute()

    both = mean(timed(train, iterations, wait))
    return {
        "first_ms": round(first * 1000, 1),
        "loading_ms": round(loading * 1000, 2),
        "computing_ms": round(alone * 1000, 2),
        "overhead_ms": round((both - alone) * 1000, 2),
        "frames_per_second": round(LENGTH * BATCH / loading, 1),
        "cpu_seconds": round(cpu / (iterations * BATCH * LENGTH) * 1000, 2),
        "host_pss_mib": round(pss()),
        **({} if device == "cpu" else {"gpu_mib": round(gpu_memory(device))}),
    }


def pss() -> float:
    """Returns the proportional set size of this process, in MiB. For Linux."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(row.split()[1] for row in rows if row.startswith("Pss:"))) / 1024


def gpu_memory(device: str) -> float:
    """Returns the memory of the GPU that is in use, by all programs, in MiB."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return (total - free) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (%(default)s)")
    parser.add_argument("--workers", type=int, help="threads that decode; by default as many as the loader has")
    parser.add_argument("--heights", type=int, nargs="+", choices=SOURCES, default=list(SOURCES), help="of the sources")
    parser.add_argument("--frames", type=int, default=480, help="of a source (%(default)s)")
    parser.add_argument("--keyframes", type=int, default=30, help="frames from one to the next (%(default)s)")
    parser.add_argument("--iterations", type=int, default=50, help="(%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "clip-grid.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    about = circumstances(f"lab/experiments/{Path(__file__).name}", sys.argv[1:]) | {"device": options.device}
    about["workers"] = options.workers
    if options.device != "cpu":
        import torch

        about["hardware"]["gpu"] = torch.cuda.get_device_name(options.device)
    for height in options.heights:
        with tempfile.TemporaryDirectory() as folder:
            size = SOURCES[height]
            video = make_clip(options.video, options.frames, size, Path(folder), rate=30, gop=options.keyframes)
            clips = (_WARM_UP + 2 * options.iterations + 1) * BATCH
            dataset = ClipDataset([video] * -(-clips // (options.frames // LENGTH)), length=LENGTH)
            for dtype in ("float32", "float16"):
                found = measured(dataset, dtype, options.device, options.workers, options.iterations)
                results[f"{height}p, {dtype}"] = found
                print(
                    f"{height}p, {dtype}: " + ", ".join(f"{name} {value}" for name, value in found.items()), flush=True
                )
                options.output.write_text(json.dumps(about | {"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
