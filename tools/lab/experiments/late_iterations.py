"""Lists the iterations of a training beside which clips are decoded, one by one, with what the late ones waited for.

    python tools/lab/experiments/late_iterations.py VIDEO --work DIR -o late.json

As in clip_grid.py, an iteration takes a batch, multiplies matrices, and waits for the GPU. Iterations with and without
loading follow each other in blocks. The milliseconds that one takes more than the median without are split:

take     until the batch is there. The GPU has nothing to do meanwhile
launch   from then on, until the GPU begins
starved  the GPU has nothing to do, as the thread is late with the next product
shared   the GPU takes longer for the products, and had them in time
back     from the end of the work on the GPU until the thread goes on

Modes: "eager" queues each product, "graph" all at once. "no gc" and "switch" are eager, without garbage collection and
with a switch interval of 0.5 ms. "stream" is eager on a stream of its own in place of the default one. Needs a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).parents[3]))  # so that a checkout works without being installed

import clip_grid
import torch
from clips import make_clip

import segmentation.clips.loader as loader
from segmentation.clips import Batch, ClipDataset

FRAMES, EVERY, SETTLING, LATE = 600, 16, 3, 0.3  # of the video; products between two points; iterations; ms
PARTS = ("take", "launch", "starved", "shared", "back")
MODES = ("eager", "no gc", "switch", "stream", "graph")
_MARKED = (  # what the loader's threads do
    ("segmentation.clips.loader", "ClipLoader", "_batch", "join"),
    ("segmentation.clips.loader", "ClipLoader", "_made", "clip"),
    ("segmentation.clips.loader", "_Samples", "begin", "submit"),
    ("segmentation.clips.clip_samples", "ClipSampleCache", "read", "packets"),
    ("segmentation.clips.open_videos", None, "open_input", "open"),
    ("segmentation.clips.native_clips", "NativeClips", "make", "make"),
    ("segmentation.clips.native_clips", "_FrameList", "__init__", "frames"),
    ("segmentation.stages.decode.native.session", "NativeSession", "__init__", "session"),
    ("segmentation.stages.decode.native.session", "NativeSession", "sample", "nvdec"),
    ("segmentation.clips.cuda", "CudaClipBuilder", "begin", "begin"),
    ("segmentation.clips.cuda", "CudaClipBuilder", "batch", "stack"),
)


class Mark(NamedTuple):
    """Something that a thread did, in seconds; `cpu` are the thread's own."""

    begin: float
    end: float
    cpu: float
    what: str
    thread: str


class Marks:
    """All that was done, by the order of its ends."""

    def __init__(self) -> None:
        self.found: list[Mark] = []

    def add(self, begin: float, cpu: float, what: str) -> None:
        spent = time.thread_time() - cpu
        self.found.append(Mark(begin, time.perf_counter(), spent, what, threading.current_thread().name))

    def around(self, inner: Callable[..., Any], what: str) -> Callable[..., Any]:
        @wraps(inner)
        def marked(*given: Any, **named: Any) -> Any:
            begin, cpu = time.perf_counter(), time.thread_time()
            try:
                return inner(*given, **named)
            finally:
                self.add(begin, cpu, what)

        return marked

    def watch(self) -> None:
        """Marks what the package does from now on, and the collection of garbage."""
        for module, owner, name, what in _MARKED:
            place = import_module(module) if owner is None else getattr(import_module(module), owner)
            setattr(place, name, self.around(getattr(place, name), what))
        rest = self.around(time.sleep, "rest")
        vars(loader)["time"] = SimpleNamespace(perf_counter=time.perf_counter, sleep=rest)
        begun = [(0.0, 0.0)]

        def collected(phase: str, about: dict[str, int]) -> None:
            if phase == "start":
                begun[0] = time.perf_counter(), time.thread_time()
            else:
                self.add(*begun[0], f"gc{about['generation']}")

        gc.callbacks.append(collected)

    def within(self, begin: float, end: float) -> list[Mark]:
        return [mark for mark in self.found if mark.end > begin and mark.begin < end]


class Products:
    """Products of matrices, and points between them at which the GPU notes the time."""

    def __init__(self, milliseconds: float, device: str, size: int = 4096) -> None:
        self._factor = torch.zeros((size, size), dtype=torch.float16, device=device)
        self._target = torch.empty_like(self._factor)
        self._multiply(20)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self._multiply(100)
        end.record()
        torch.cuda.synchronize()
        self.count = max(1, round(milliseconds * 100 / begin.elapsed_time(end)))
        points = -(-self.count // EVERY) + 2
        self._begin, *self._points = (torch.cuda.Event(enable_timing=True) for _ in range(points))
        self.queued: list[float] = []  # when each call of the last iteration began, and the last one ended
        self._graph: Any = None

    def _multiply(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._factor, self._factor, out=self._target)

    def captured(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._multiply(self.count)

    def begin(self) -> None:
        """Notes when the iteration begins, on a GPU that has nothing to do."""
        self._begin.record()

    def eager(self) -> None:
        queued = self.queued = [time.perf_counter()]
        for number in range(self.count):
            if number % EVERY == 0:
                self._points[number // EVERY].record()
            torch.mm(self._factor, self._factor, out=self._target)
            queued.append(time.perf_counter())
        self._points[-1].record()

    def graph(self) -> None:
        self.queued = [time.perf_counter()]
        self._points[0].record()
        self._graph.replay()
        self._points[-1].record()
        self.queued.append(time.perf_counter())

    def timeline(self) -> list[float]:
        """Returns when the GPU passed the points, in ms since the iteration began."""
        points = self._points if len(self.queued) > 2 else [self._points[0], self._points[-1]]
        return [self._begin.elapsed_time(point) for point in points]


class Iteration(NamedTuple):
    begin: float  # seconds, as all of the host's; what the GPU tells is in ms
    taken: float
    end: float
    queued: list[float]
    points: list[float]
    delay: float  # ms for which the thread was ready to run and did not
    allocated: int  # blocks of device and page-locked memory that the driver gave

    @property
    def milliseconds(self) -> float:
        return (self.end - self.begin) * 1000

    def own(self) -> list[float]:
        """Returns the milliseconds of `PARTS`, but that those of the GPU are undivided."""
        taken = (self.taken - self.begin) * 1000
        return [
            taken, self.points[0] - taken, 0.0, self.points[-1] - self.points[0], self.milliseconds - self.points[-1]
        ]  # fmt: skip


def run_delay() -> float:
    """Returns for how many ms this thread was ready to run and did not, as far as the kernel tells."""
    try:
        path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        return int(Path(path).read_text().split()[1]) / 1e6
    except (OSError, IndexError):
        return 0.0


def throttled() -> str:
    """Returns how often, and how long, the processor time of this control group was used up."""
    try:
        rows = Path("/sys/fs/cgroup/cpu.stat").read_text().splitlines()
    except OSError:
        return "unknown"
    return ", ".join(row for row in rows if "throttled" in row)


def allocations() -> int:
    """Returns how often the driver was asked for device memory, or page-locked memory, or to free it."""
    device, host = torch.cuda.memory_stats(), torch.cuda.host_memory_stats()
    names = "num_device_alloc", "num_device_free", "num_alloc_retries"
    return sum(int(device.get(name, 0)) for name in names) + int(host.get("num_host_alloc", 0))


def block(products: Products, mode: str, source: Iterator[Batch] | None, count: int) -> list[Iteration]:
    """Returns so many iterations, behind a few that are not measured."""
    found, compute = [], products.graph if mode == "graph" else products.eager
    wait = torch.cuda.current_stream().synchronize
    for _ in range(SETTLING + count):
        blocks, delay = allocations(), run_delay()
        wait()
        begin = time.perf_counter()
        products.begin()
        if source is not None:
            next(source)
        taken = time.perf_counter()
        compute()
        wait()
        end = time.perf_counter()
        late = run_delay() - delay
        found.append(Iteration(begin, taken, end, products.queued, products.timeline(), late, allocations() - blocks))
    return found[SETTLING:]


@contextmanager
def in_mode(mode: str) -> Iterator[None]:
    interval, own = sys.getswitchinterval(), torch.cuda.Stream() if mode == "stream" else None
    try:
        if mode == "no gc":
            gc.disable()
        if mode == "switch":
            sys.setswitchinterval(0.0005)
        with torch.cuda.stream(own):
            yield
    finally:
        gc.enable()
        sys.setswitchinterval(interval)


def kind(mode: str) -> str:
    return mode if mode in ("graph", "stream") else "eager"


class Alone:
    """The medians of iterations without loading."""

    def __init__(self, iterations: Sequence[Iteration]) -> None:
        self.milliseconds = median(one.milliseconds for one in iterations)
        self.mean = mean(one.milliseconds for one in iterations)
        self.parts = [median(part) for part in zip(*(one.own() for one in iterations), strict=True)]
        steps = zip(
            *([b - a for a, b in zip(one.points, one.points[1:], strict=False)] for one in iterations), strict=True
        )
        self.steps = [median(step) for step in steps]  # from one point to the next

    def over(self, one: Iteration) -> list[float]:
        """Returns the milliseconds of `PARTS` that an iteration takes more."""
        take, launch, _, _, back = (own - usual for own, usual in zip(one.own(), self.parts, strict=True))
        queued = [(at - one.begin) * 1000 for at in one.queued]
        starved = shared = 0.0
        for place, usual in enumerate(self.steps):
            begin, more = one.points[place], one.points[place + 1] - one.points[place] - usual
            calls = queued[place * EVERY + 1 : (place + 1) * EVERY + 1] if len(queued) > 2 else queued[1:1]
            each = usual / max(1, len(calls))
            late = max((at - begin - number * each for number, at in enumerate(calls)), default=0.0)
            waited = min(max(more, 0.0), max(late, 0.0))
            starved, shared = starved + waited, shared + more - waited
        return [take, launch, starved, shared, back]


def described(one: Iteration, over: Sequence[float], marks: list[Mark]) -> dict[str, Any]:
    """Returns a row for an iteration; of a late one with what was done while it waited."""
    calls = [b - a for a, b in zip(one.queued, one.queued[1:], strict=False)]
    longest = max(range(len(calls)), key=calls.__getitem__)
    at_work = sum(mark.what == "clip" and mark.begin < one.begin < mark.end for mark in marks)
    row = {name: round(value, 2) for name, value in zip(PARTS, over, strict=True)}
    row = {"over": round(sum(over), 2), **row, "delay": round(one.delay, 2), "allocated": one.allocated}
    row["queueing"] = round((one.queued[-1] - one.queued[0]) * 1000, 2)
    row["call"] = [round(calls[longest] * 1000, 2), round((one.queued[longest] - one.begin) * 1000, 2)]
    row["decoding"] = at_work
    for what in ("rest", "gc"):
        row[what] = round(sum(mark.end - mark.begin for mark in marks if mark.what.startswith(what)) * 1000, 2)
    windows = {"take": (one.begin, one.taken), "back": (one.begin + one.points[-1] / 1000, one.end)}
    windows |= {
        f"call {number}": (one.queued[number], one.queued[number + 1])
        for number, seconds in enumerate(calls)
        if seconds * 1000 > LATE and one.queued[number] - one.begin < 0.015
    }
    row["waits"] = {
        name: [told(mark, one.begin) for mark in marks if mark.end > begin and mark.begin < end]
        for name, (begin, end) in windows.items()
        if (end - begin) * 1000 > LATE
    }
    return row


def told(mark: Mark, begin: float) -> str:
    first, last = (mark.begin - begin) * 1000, (mark.end - begin) * 1000
    return f"{mark.what} {first:.2f}..{last:.2f} cpu {mark.cpu * 1000:.2f} {mark.thread[-3:]}"


def measured(options: argparse.Namespace, priority: int, video: Path, marks: Marks) -> dict[str, Any]:
    """Returns the iterations of each mode, with a loader whose streams have this priority."""
    context, cuda = import_module("segmentation.gpu.context"), import_module("segmentation.clips.cuda")
    kept = context.Gpu

    class OfPriority(kept):  # type: ignore[misc,name-defined]
        def __init__(self, index: int = 0, **_: int) -> None:
            super().__init__(index, priority=priority)

    context.Gpu = cuda.Gpu = OfPriority
    count = (options.rounds * len(options.modes) * (options.iterations + SETTLING) + 60) * clip_grid.BATCH
    dataset = ClipDataset([video] * -(-count // (FRAMES // clip_grid.LENGTH)), length=clip_grid.LENGTH)
    source = clip_grid.batches(dataset, "float32", options.device, None)
    for _ in range(6):
        next(source)
    context.Gpu = cuda.Gpu = kept
    cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(25):
        next(source)
    torch.cuda.synchronize()
    loading, cpu = (time.perf_counter() - begin) * 40, (time.process_time() - cpu) * 40
    time.sleep(0.2)
    products = Products(options.ms, options.device)
    if "graph" in options.modes:
        products.captured()
    beside: dict[str, list[Iteration]] = {mode: [] for mode in options.modes}
    alone: dict[str, list[Iteration]] = {kind(mode): [] for mode in options.modes}
    for turn in range(options.rounds):
        done: set[str] = set()
        for mode in options.modes[:: -1 if turn % 2 else 1]:
            with in_mode(mode):
                if kind(mode) not in done:
                    done.add(kind(mode))
                    time.sleep(0.2)  # until all that was begun is decoded
                    alone[kind(mode)] += block(products, mode, None, options.iterations)
                beside[mode] += block(products, mode, source, options.iterations)
    found: dict[str, Any] = {"loading": round(loading, 2), "cpu": round(cpu, 2), "products": products.count}
    for mode, iterations in beside.items():
        usual = Alone(alone[kind(mode)])
        rows = [described(one, usual.over(one), marks.within(one.begin - 0.001, one.end)) for one in iterations]
        found[mode] = {"alone": usual.milliseconds, "alone, mean": usual.mean, "rows": rows}
        print(summary(f"{options.name} {priority}", mode, usual, rows), flush=True)
        for row in sorted(rows, key=lambda row: -row["over"])[: options.show]:
            print(f"    late: {json.dumps(row)[:600]}", flush=True)
    source.close()  # type: ignore[attr-defined]
    return found


def summary(name: str, mode: str, usual: Alone, rows: list[dict[str, Any]]) -> str:
    def means(what: Sequence[str]) -> str:
        return " ".join(f"{part} {mean(row[part] for row in rows):.2f}" for part in what)

    over = sorted(row["over"] for row in rows)
    more = mean(over) + usual.milliseconds - usual.mean
    told = f"{name:16s} {mode:7s} alone {usual.milliseconds:.2f} mean {more:.2f} median {median(over):.2f}"
    told += f" worst {over[-3:]} | {means(PARTS)} | {means(('queueing', 'delay', 'allocated', 'decoding', 'gc'))}"
    return f"{told} rested {sum(row['rest'] > 1 for row in rows)}/{len(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--work", type=Path, required=True, help="folder for the clip, best in memory")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--name", default="", help="of what is measured, for the lines")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument(
        "--priorities", type=int, nargs="+", default=[-1], help="of the loader's streams, in this order"
    )
    parser.add_argument("--rounds", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--iterations", type=int, default=10, help="of a block (%(default)s)")
    parser.add_argument("--show", type=int, default=2, help="of the latest iterations (%(default)s)")
    parser.add_argument("--ms", type=float, default=46, help="of an iteration (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, default=Path("late.json"))
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True, parents=True)
    marks = Marks()
    marks.watch()
    video = make_clip(options.video, FRAMES, (1920, 1080), options.work, gop=30, rate=30)
    before, found = throttled(), []
    for priority in options.priorities:
        found.append({"priority": priority, **measured(options, priority, video, marks)})
        options.output.write_text(json.dumps({"name": options.name, "found": found}) + "\n", encoding="utf-8")
    print(
        f"{options.name}: loading {[one['loading'] for one in found]} ms a batch, throttled {before} -> {throttled()}"
    )


if __name__ == "__main__":
    main()
