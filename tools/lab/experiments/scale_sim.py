"""Simulates many GPUs on many videos, with measured rates: what becomes the limit, GPU hours, bytes moved.

    python tools/lab/experiments/scale_sim.py

Rates of a GPU are those of the named files in tools/lab/results. The driver's are measured here: the time to open a
video and to read its packets, to hash a piece, and to rename one and note it in a journal. All else is assumed, see
`base`.
"""

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

import av
import cv2
import numpy as np
from circumstances import ROOT, circumstances
from scale_model import Design, Simulation, bounds

RESULTS = ROOT / "tools" / "lab" / "results"
FPS = 30  # of the videos
MEDIAN, MEAN, LONGEST = 64.0, 615.0, 12 * 3600.0  # seconds of a video
BITS = 5e6  # a second of 1080p; outputs are about as large as inputs
GPUS = (1, 10, 100, 1000, 10_000)
VIDEOS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
MILLION_HOURS = 3.6e9  # seconds of video
BEST = "and a driver for 100 GPUs"
DEATHS = (10, 1, 0.1)  # hours of work between two of a worker
COLORS = {"GPUs": (80, 160, 60), "driver": (40, 90, 220), "storage": (200, 130, 40), "joiners": (170, 70, 160)}  # BGR


def lengths(count: int, seed: int = 1) -> list[float]:
    """Returns lengths of videos in seconds: log-normal, by median and mean, from 1 s to the longest."""
    dice, sigma = Random(seed), math.sqrt(2 * math.log(MEAN / MEDIAN))
    return [min(LONGEST, max(1.0, dice.lognormvariate(math.log(MEDIAN), sigma))) for _ in range(count)]


def of_a_gpu() -> dict[str, float]:
    """Returns seconds of video a second, and the seconds for the beginnings of a worker and of a video."""
    runs = json.loads((RESULTS / "many-inputs-gpu-x264.json").read_text())["runs"]
    long, short = (runs[name]["fps"]["median"] for name in ("one file", "60 clips, --jobs 4"))
    cold = json.loads((RESULTS / "cold-start.json").read_text())["seconds"]["main, person"]["median"]
    return {"speed": long / FPS, "begin": 90 / short - 90 / long, "start": cold}  # its clips have 90 frames


def of_a_driver(repeats: int = 9) -> dict[str, float]:
    """Returns seconds to open a video, to read a second of it, to hash a piece, and to note one; each the shortest."""
    video, data = ROOT / "samples" / "astronaut.mp4", os.urandom(int(20 * BITS / 8))

    def timed(function: Callable[[], object]) -> float:
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            function()
            times.append(time.perf_counter() - begin)
        return min(times)

    def opened() -> None:
        av.open(str(video)).close()

    def a_packet() -> float:
        with av.open(str(video)) as container:
            begin, packets = time.perf_counter(), sum(1 for _ in container.demux(video=0))
            return (time.perf_counter() - begin) / packets

    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "journal"), "ab") as journal:
        path = Path(folder, "piece")

        def note() -> None:
            path.touch()
            path.rename(path.with_suffix(".done"))
            journal.write(b"x" * 200)
            journal.flush()
            os.fsync(journal.fileno())

        noted = timed(note)
    return {
        "open": timed(opened),
        "read_second": FPS * min(a_packet() for _ in range(repeats)),
        "hash": timed(lambda: hashlib.sha256(data).hexdigest()),
        "note": noted,
    }


def base(driver: dict[str, float]) -> Design:
    """Returns the design with one driver that hashes each piece, and one joiner beside it."""
    byte_rate = BITS / 8
    return Design(
        gpus=1,
        piece=20.0,
        bytes_in=byte_rate,
        bytes_out=byte_rate,
        plan=driver["open"],
        plan_second=driver["read_second"],
        check=driver["hash"] + driver["note"],
        join=400e6,  # assumed: bytes a second of one muxer
        storage=10e9,  # assumed: a shared file system
        network=25e9 / 8,  # assumed: 25 Gbit/s a worker
        restart=60.0,  # assumed
        **of_a_gpu(),
    )


def simulate(design: Design, *, videos: float = 0, seconds: float = 0, pieces: int) -> dict[str, Any]:
    """Returns the figures of so many videos, or of so many seconds of video.

    Of more than about `pieces`, and a hundred a GPU up to 200,000, a part is simulated. The rest then takes what its
    busiest part needs, times the waste of deaths in the simulated part.
    """
    wanted = int(max(pieces, min(100 * design.gpus, 200_000)) // (MEAN / design.piece))
    some = lengths(min(int(videos), wanted) if videos else wanted)
    found = Simulation(design, some).run()
    scale = videos / len(some) if videos else seconds / found.video_seconds
    needs = bounds(design, some)
    least = max(needs.values())
    waste = (found.gpu_seconds + found.deaths * design.restart) / design.gpu_seconds(some)
    taken = found.seconds + (scale - 1) * max(least, needs["GPUs"] * waste)
    use = {name: need * scale / taken for name, need in needs.items()}
    limit = max(use, key=lambda name: use[name])
    return {
        "gpus": design.gpus,
        "videos": round(len(some) * scale),
        "simulated_videos": len(some),
        "simulated_over_least": found.seconds / least,
        "hours": taken / 3600,
        "video_hours": found.video_seconds * scale / 3600,
        "video_hours_an_hour": found.video_seconds * scale / taken,
        "gpu_hours_of_work": found.gpu_seconds * scale / 3600,
        "gpu_hours_held": design.gpus * taken / 3600,
        "terabytes_moved": found.bytes_moved * scale / 1e12,
        "deaths": round(found.deaths * scale),
        "use": use,  # of the whole time, by the work alone
        "limit": limit if use[limit] > 0.7 else "the start and the last videos",
    }


def variants(design: Design, driver: dict[str, float]) -> dict[str, Callable[[int], Design]]:
    """Returns designs for a number of GPUs: without one limit after the other."""
    noted = replace(design, check=driver["note"])
    return {
        "one of each": lambda gpus: replace(design, gpus=gpus),
        "workers join": lambda gpus: replace(design, gpus=gpus, joiners=gpus),
        "and hash": lambda gpus: replace(noted, gpus=gpus, joiners=gpus),
        "and storage of 100 GB/s": lambda gpus: replace(noted, gpus=gpus, joiners=gpus, storage=100e9),
        BEST: lambda gpus: replace(noted, gpus=gpus, joiners=gpus, storage=100e9, drivers=max(1, gpus // 100)),
    }


def rounded(value: Any) -> Any:
    """Returns figures with four digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value


def draw(rows: dict[str, list[dict[str, Any]]], ideal: float) -> Any:
    """Returns a picture: hours of video in an hour by the number of GPUs, both logarithmic. Colors say the limit."""
    width, height, left, bottom, right, top = 1400, 800, 130, 90, 420, 60
    canvas = np.full((height, width, 3), 255, np.uint8)
    most = math.log10(GPUS[-1] * ideal)

    def place(gpus: float, rate: float) -> tuple[int, int]:
        x = left + (width - left - right) * math.log10(gpus) / math.log10(GPUS[-1])
        return round(x), round(height - bottom - (height - bottom - top) * math.log10(rate) / most)

    def text(words: str, at: tuple[int, int], color: tuple[int, int, int] = (30, 30, 30), size: float = 0.6) -> None:
        cv2.putText(canvas, words, at, cv2.FONT_HERSHEY_SIMPLEX, size, color, 1, cv2.LINE_AA)

    for power in range(int(most) + 1):
        (x0, y), (x1, _) = place(1, 10**power), place(GPUS[-1], 10**power)
        cv2.line(canvas, (x0, y), (x1, y), (225, 225, 225), 1)
        text(f"{10**power:,}", (20, y + 5))
    for gpus in GPUS:
        x, y = place(gpus, 1)
        cv2.line(canvas, (x, y), (x, top), (225, 225, 225), 1)
        text(f"{gpus:,}", (x - 20, y + 28))
    cv2.line(canvas, place(1, ideal), place(GPUS[-1], GPUS[-1] * ideal), (150, 150, 150), 1, cv2.LINE_AA)
    taken: list[int] = []
    for name, found in rows.items():
        points = [place(row["gpus"], row["video_hours_an_hour"]) for row in found]
        for a, b in pairwise(points):
            cv2.line(canvas, a, b, (90, 90, 90), 2, cv2.LINE_AA)
        for row, point in zip(found, points, strict=True):
            cv2.circle(canvas, point, 8, COLORS.get(row["limit"], (150, 150, 150)), -1, cv2.LINE_AA)
        taken.append(min([points[-1][1], *(above - 24 for above in taken[-1:])]))  # each above the one before
        text(name, (points[-1][0] + 18, taken[-1] + 6))
    text("hours of video in an hour", (20, 32), size=0.7)
    text("GPUs", ((left + width - right) // 2, height - 18), size=0.7)
    for number, (name, color) in enumerate(COLORS.items()):
        cv2.circle(canvas, (left + 400 + 170 * number, 26), 8, color, -1, cv2.LINE_AA)
        text(f"limit: {name}", (left + 416 + 170 * number, 32))
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulates many GPUs on many videos.")
    parser.add_argument("--pieces", type=int, default=30_000, help="simulated at most, of each case")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "scale-sim.json")
    parser.add_argument("--picture", type=Path, default=ROOT / "tools" / "lab" / "scale-limits.png")
    options = parser.parse_args()
    results = circumstances("lab/experiments/scale_sim.py", sys.argv[1:])
    driver = of_a_driver()
    design = base(driver)
    results["driver_seconds"] = driver
    results["design"] = {name: value for name, value in asdict(design).items() if value != math.inf}
    results["lengths"] = {"kind": "log-normal", "median": MEDIAN, "mean": MEAN, "longest": LONGEST, "bits": BITS}
    made = variants(design, driver)
    results["million_hours"] = {
        name: [simulate(make(gpus), seconds=MILLION_HOURS, pieces=options.pieces) for gpus in GPUS]
        for name, make in made.items()
    }
    best = made[BEST]
    results["videos"] = [simulate(best(gpus), videos=count, pieces=options.pieces) for gpus in GPUS for count in VIDEOS]
    results["deaths"] = [
        simulate(replace(best(100), between_deaths=hours * 3600), seconds=MILLION_HOURS, pieces=100_000)
        | {"hours_between_deaths": hours}
        for hours in DEATHS
    ]
    options.output.write_text(json.dumps(rounded(results), indent=2) + "\n", encoding="utf-8")
    cv2.imwrite(str(options.picture), draw(results["million_hours"], design.speed))
    for name, rows in results["million_hours"].items():
        print(f"\n{name}\n| GPUs | days | GPU hours held | limit |\n|---|---|---|---|")
        for row in rows:
            print(f"| {row['gpus']:,} | {row['hours'] / 24:,.1f} | {row['gpu_hours_held']:,.0f} | {row['limit']} |")


if __name__ == "__main__":
    main()
