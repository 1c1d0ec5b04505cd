"""Disturbs live streams for as long as is wanted: what the others notice, and whether the process stays as it is.

    python tools/lab/experiments/streams_soak.py --seconds 600

One stream is left alone. For half a minute nothing happens to the others. For the next half a minute they fall silent,
break, are refused, send late, lose packets, are removed and added. Both take turns, since a machine may become slower
by itself. The stream that is left alone begins anew each time. After each two stretches all streams are up again, and
memory, threads and descriptors are counted. Cameras, with sound, are the tests' RTSP server, in a process of their own.
For Linux.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests" / "support"))

import av
import barcode
import numpy as np
from circumstances import ROOT, circumstances
from memory import given_back, memory_held
from numpy.typing import NDArray
from rtsp_server import RtspServer

from segmentation import ConfigError, Report, Streams
from segmentation.gpu.discovery import find_gpu

STEADY = "steady"
STRETCH = 30.0  # seconds, with disturbances or without
PAUSE = (0.3, 2.0)  # seconds between two disturbances
PATIENCE = 30.0  # seconds until all streams have to be up again
ACTIONS = ("silent", "reset", "hang up", "refuse", "send late", "lose packets", "mend", "remove", "add")
LATE, LOSING = 0.5, 0.2  # seconds of frames that are sent at once, and the share of packets that get lost
PAYLOAD = 100  # bytes: so that frames have several packets


def cameras(connection: Connection, count: int, size: tuple[int, int], fps: int) -> None:
    """Serves so many cameras, and does to them what the connection says, until it is closed."""
    with ExitStack() as exits:
        made = (RtspServer(size=size, fps=fps, sound=True, payload=PAYLOAD) for _ in range(count))
        servers = [exits.enter_context(server) for server in made]
        connection.send([server.url() for server in servers])
        with suppress(EOFError):
            while True:
                number, action = connection.recv()
                server = servers[number]
                match action:
                    case "silent":
                        server.silent.set()
                    case "reset":
                        server.reset()
                    case "hang up":
                        server.hang_up()
                    case "refuse":
                        server.refuse()
                        server.reset()
                    case "send late":
                        server.gathering = LATE
                    case "lose packets":
                        server.losing = LOSING
                    case "mend":
                        server.gathering = server.losing = 0.0
                        server.silent.clear()
                        server.refuse()
                        server.accept()


def gpu_memory() -> float:
    """Returns MB that all programs have of the GPU."""
    import torch

    free, whole = torch.cuda.mem_get_info()
    return float(whole - free) / 1e6


class Soak:
    """Streams, their disturbances, and what was counted."""

    def __init__(
        self, streams: Streams, urls: list[str], control: Connection, folder: Path, options: argparse.Namespace
    ) -> None:
        self.names = [STEADY, *(f"camera-{number}" for number in range(1, len(urls)))]
        self.done: Counter[str] = Counter()
        self.counts: list[dict[str, float]] = []
        self.reports: list[Report] = []
        self.calm: list[Report] = []  # of the stream that is left alone, for each stretch without disturbances
        self.disturbed: list[Report] = []  # the same for those with them
        self.unbalanced = 0  # moments at which a stream's figures did not add up
        self._streams, self._urls, self._control, self._folder = streams, urls, control, folder
        self._actions = options.actions
        self._last = options.disturbed or len(urls) - 1  # number of the last stream that is disturbed
        self._dice = random.Random(options.seed)
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def add(self, number: int) -> None:
        """Begins a stream, which cuts its recording each minute."""
        name = self.names[number]
        self._streams.add(
            name, self._urls[number], self._folder / "{name}-%H%M%S.mkv", cut_every=60, preset="ultrafast"
        )

    def remove(self, number: int) -> None:
        """Ends a stream, and keeps its report; one that was added while its camera refused has none."""
        name = self.names[number]
        with suppress(ConfigError):  # it has failed by now
            self._streams.remove(name)
        if name in self._streams.report:
            self.reports.append(self._streams.report.pop(name))

    def until_all_are_up(self) -> None:
        """Mends all cameras, and waits for their streams."""
        for number in range(1, len(self._urls)):
            self._control.send((number, "mend"))

        def are_up() -> bool:
            for name in set(self.names) - set(self._streams.names):
                self.add(self.names.index(name))
            return all(one.state == "up" and one.shown for one in self._under_way())

        self._wait(are_up)

    def stretch(self, *, disturbed: bool) -> None:
        """Lets the streams run for a while, and keeps the report of the one that is left alone."""
        self.add(0)
        self.until_all_are_up()
        if disturbed:
            self._disturb()
        else:
            time.sleep(STRETCH)
        self.until_all_are_up()
        self.remove(0)
        (self.disturbed if disturbed else self.calm).append(self.reports[-1])

    def _disturb(self) -> None:
        """Disturbs the streams, one at a time, for as long as a stretch lasts."""
        end = time.monotonic() + STRETCH
        while time.monotonic() < end:
            number = self._dice.randrange(1, self._last + 1)
            action = self._dice.choice(self._actions)
            under_way = self.names[number] in self._streams.names
            if action in ("remove", "add"):
                if under_way == (action == "remove"):
                    self.done[action] += 1
                    (self.remove if under_way else self.add)(number)
            else:
                self.done[action] += 1
                self._control.send((number, action))
            time.sleep(self._dice.uniform(*PAUSE))

    def count(self, since: float) -> None:
        """Counts what the process holds."""
        held = memory_held() | {"threads": threading.active_count()}
        held |= {"descriptors": len(os.listdir("/proc/self/fd")), "seconds": time.monotonic() - since}
        if find_gpu() is not None:
            held["gpu"] = gpu_memory()
        self.counts.append({name: round(value, 1) for name, value in held.items()})
        print(self.counts[-1], flush=True)

    def finish(self) -> None:
        """Ends all streams."""
        for number in range(1, len(self.names)):
            self.remove(number)
        self._ended.set()
        self._watcher.join()

    def _under_way(self) -> list[Any]:
        return [one for one in self._streams.status() if one.name in self._streams.names]

    def _wait(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > deadline:
                raise SystemExit(f"not all streams came back within {PATIENCE:g} s: {self._streams.status()}")
            time.sleep(0.05)

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            for one in self._streams.status():
                self.unbalanced += one.received != one.shown + one.waiting + sum(one.dropped.values())


def recorded(folder: Path) -> dict[str, int]:
    """Returns how many files and frames there are, how many of them are broken, and what the whole ones are like.

    `disorder` counts those that come before an earlier one, and `repeated` those that show the same picture again.
    """
    found: Counter[str] = Counter()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for counts in pool.map(recorded_in, sorted(folder.iterdir())):
            found.update(counts)
    return dict(found)


def recorded_in(path: Path) -> dict[str, int]:
    """Returns what `recorded` does of one file."""
    with av.open(str(path)) as file:
        numbers = [number_of(frame.to_ndarray(format="gray")) for frame in file.decode(video=0)]
    whole = [number for number in numbers if number is not None]
    return {
        "files": 1,
        "frames": len(numbers),
        "broken": numbers.count(None),
        "disorder": sum(later < number for number, later in pairwise(whole)),
        "repeated": sum(later == number for number, later in pairwise(whole)),
    }


def number_of(picture: NDArray[np.uint8]) -> int | None:
    """Returns the number of a picture, unless it is broken."""
    return barcode.read(picture)[0] if barcode.is_whole(picture) else None


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Returns what was counted."""
    ours, theirs = get_context("spawn").Pipe()
    arguments = (theirs, options.streams, options.size, options.fps)
    process = get_context("spawn").Process(target=cameras, args=arguments, daemon=True)
    process.start()
    theirs.close()
    begin = time.monotonic()
    shared = {"processes": options.processes, "low_delay": options.low_delay}
    with Streams(stall=1.0, reconnect="0.2..1", **shared) as streams:
        soak = Soak(streams, ours.recv(), ours, folder, options)
        for number in range(options.streams):
            soak.add(number)
        soak.until_all_are_up()
        soak.remove(0)  # its first frames waited for the network
        while time.monotonic() < begin + options.seconds:
            soak.stretch(disturbed=False)
            soak.stretch(disturbed=True)
            soak.count(begin)
        soak.finish()
        held = {"with_streams_ended": memory_held(), "given_back": given_back()}
    ours.close()
    process.join()
    return {
        "seconds": round(time.monotonic() - begin, 1),
        "streams": options.streams,
        "processes": options.processes,
        "disturbances": dict(soak.done),
        "steady_calm": steady(soak.calm),
        "steady_disturbed": steady(soak.disturbed),
        "received_is_not_shown_and_dropped": sum(
            report.received != report.frames + sum(report.dropped.values()) for report in soak.reports
        ),
        "moments_out_of_balance": soak.unbalanced,
        "reports": len(soak.reports),
        "damaged": sum(report.damaged for report in soak.reports),
        "reconnects": sum(report.reconnects for report in soak.reports),
        "recordings": recorded(folder),
        "held": soak.counts,
        "held_at_the_end": {when: {name: round(n, 1) for name, n in one.items()} for when, one in held.items()},
    }


def steady(reports: list[Report]) -> dict[str, Any]:
    """Returns the figures of the stream that is left alone: medians over the stretches, and those of each."""
    names = ("p50", "p95", "p99", "max")
    return {
        "fps": statistics.median(report.fps for report in reports),
        "latency": {name: statistics.median(report.latency[name] for report in reports) for name in names},
        "dropped": dict(sum((Counter(report.dropped) for report in reports), Counter())),
        "stretches": [report.latency for report in reports],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Disturbs live streams.")
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(320, 180), metavar="WxH")
    parser.add_argument("--fps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--processes", type=int, default=1, help="that share the streams; this one alone is counted")
    parser.add_argument("--low-delay", action="store_true")
    parser.add_argument("--disturbed", type=int, help="streams that are; all but the one by default")
    parser.add_argument("--actions", nargs="+", choices=ACTIONS, default=ACTIONS, help="what is done to the streams")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "streams-soak.json")
    options = parser.parse_args()
    results = circumstances("lab/experiments/streams_soak.py", sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        results |= measure(options, Path(folder))
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in results.items() if name != "held"}, indent=2))


if __name__ == "__main__":
    main()
