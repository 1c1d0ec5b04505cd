"""Measures `segmentation serve` on the CPU: a frame after a change, a picture's mask, and a job beside the command.

    python tools/benchmarks/page.py

All take turns, after a warm-up. The video is the sample at other sizes, as x264 writes it by default: one group of
pictures. For Linux.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import av
import cv2
import numpy as np
from av.video.stream import VideoStream

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances
from cpu_time import cpu_seconds

from segmentation import Segmenter
from segmentation.media.pictures.still import gray_png, read_still

SAMPLE = ROOT / "samples" / "astronaut.mp4"
SIZES = ((1280, 720), (3840, 2160))
MEGAPIXELS = (4000, 3000)
COMMAND = [sys.executable, "-m", "segmentation"]
WARM_UP = 2


def scaled(size: tuple[int, int], path: Path) -> Path:
    """Writes the sample at another size; returns the path."""
    with av.open(str(SAMPLE)) as source, av.open(str(path), "w") as target:
        out: VideoStream = target.add_stream("libx264", rate=source.streams.video[0].average_rate)
        out.width, out.height, out.pix_fmt = *size, "yuv420p"
        for frame in source.decode(video=0):
            target.mux(out.encode(frame.reformat(*size)))
        target.mux(out.encode(None))
    return path


class Server:
    """`segmentation serve` as a process. Use it as a context manager."""

    def __init__(self, files: Path, work: Path) -> None:
        self._command = [*COMMAND, "serve", "--port", "0", "--files", str(files), "--work", str(work)]

    def __enter__(self) -> "Server":
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            sys.exit(line)
        self._url = address[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, path: str, fields: dict[str, str | Path] | None = None) -> bytes:
        """Returns the body of an answer; `fields` go as multipart, paths as files."""
        request = Request(self._url + path)
        if fields is not None:
            limit = uuid.uuid4().hex
            request.data = b"".join(_part(limit, name, value) for name, value in fields.items()) + _end(limit)
            request.add_header("Content-Type", f"multipart/form-data; boundary={limit}")
        with urlopen(request) as answer:
            body: bytes = answer.read()
        return body

    def render(self, source: str) -> None:
        """Has a job done. Its events end with it: asking again and again would take time from it."""
        job = json.loads(self.ask("api/jobs", {"source": source, "options": "{}"}))["id"]
        last = self.ask(f"api/jobs/{job}/events").decode().split("data: ")[-1]
        assert json.loads(last)["state"] == "done", last


def _part(limit: str, name: str, value: str | Path) -> bytes:
    file = f'; filename="{value.name}"' if isinstance(value, Path) else ""
    content = value.read_bytes() if isinstance(value, Path) else value.encode()
    return f'--{limit}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content + b"\r\n"


def _end(limit: str) -> bytes:
    return f"--{limit}--\r\n".encode()


def seconds_of(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, dict[str, float]]:
    """Returns the seconds of each call, the calls taking turns, and those of CPU time, with all processes."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for repeat in range(WARM_UP + repeats):
        for name, call in calls.items():
            before, begin = cpu_seconds(), time.perf_counter()
            call()
            seconds = time.perf_counter() - begin
            if repeat >= WARM_UP:
                found[name].append((seconds, cpu_seconds() - before))
    return {name: _summed_up(*zip(*times, strict=True)) for name, times in found.items()}


def _summed_up(seconds: Sequence[float], cpu: Sequence[float]) -> dict[str, float]:
    return {
        "least": round(min(seconds), 3),
        "median": round(statistics.median(seconds), 3),
        "p95": round(float(np.percentile(seconds, 95)), 3),
        "cpu_median": round(statistics.median(cpu), 2),
        "cpu_p95": round(float(np.percentile(cpu, 95)), 2),
    }


def changes(server: Server, video: str) -> dict[str, Callable[[], object]]:
    """Returns calls of what one does on the page, each of which shows a frame that was not shown before."""
    dice, now = random.Random(1), [0.0]
    facts = json.loads(server.ask(f"api/inputs/files/{video}"))
    last = facts["seconds"] - 1 / facts["rate"]
    chosen: dict[str, object] = {"effect": "blur:20"}

    def look() -> None:
        fields = {"source": f"files/{video}", "view": "result", "width": "1280"}
        server.ask("api/frames", {**fields, "time": f"{now[0]:.3f}", "options": json.dumps(chosen)})

    def go(to: Callable[[], float]) -> None:
        now[0] = to() % last
        look()

    def choose(name: str, value: Callable[[], object]) -> None:
        chosen[name] = value()
        look()

    return {
        "any other frame": lambda: go(lambda: dice.uniform(0, last)),
        "the next frame": lambda: go(lambda: now[0] + 0.04),
        "threshold": lambda: choose("threshold", lambda: round(dice.uniform(0.2, 0.8), 3)),
        "feather": lambda: choose("feather", lambda: round(dice.uniform(0, 9), 2)),
        "effect": lambda: choose("effect", lambda: f"blur:{dice.uniform(5, 50):.2f}"),
    }


def measure(repeats: int) -> dict[str, Any]:
    """Returns all times, in seconds."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "files")
        files.mkdir()
        for width, height in SIZES:
            scaled((width, height), files / f"{height}.mp4")
        photo = files / "photo.jpg"
        large = cv2.resize(np.asarray(cv2.imread(str(ROOT / "segmentation" / "models" / "astronaut.jpg"))), MEGAPIXELS)
        cv2.imwrite(str(photo), large)
        rgb = np.ascontiguousarray(large[..., ::-1])
        with Server(files, Path(folder, "work")) as server, Segmenter(device="cpu") as segmenter:
            for _, height in SIZES:
                found[f"a frame, {height} lines"] = seconds_of(changes(server, f"{height}.mp4"), repeats)
            found["masks, 12 megapixels"] = seconds_of(
                {
                    "Segmenter.masks": lambda: segmenter.masks(rgb),
                    "the same, from JPEG to PNG": lambda: _from_file(segmenter, photo),
                    "/api/masks": lambda: server.ask("api/masks", {"file": photo}),
                },
                repeats,
            )
            video, output = files / "720.mp4", Path(folder, "out.mp4")
            command = [*COMMAND, str(video), "-o", str(output), "-y", "-q"]
            calls = {
                "command": lambda: subprocess.run(command, check=True),
                "job": lambda: server.render("files/720.mp4"),
            }
            found["a video, 720 lines"] = seconds_of(calls, max(3, repeats // 8))
    return found


def _from_file(segmenter: Segmenter, photo: Path) -> None:
    mask = segmenter.masks(read_still(str(photo)).rgb)
    gray_png(np.asarray(cv2.convertScaleAbs(mask, alpha=255), np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the page's frames, masks and jobs on the CPU.")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "page.json")
    options = parser.parse_args()
    results = circumstances("benchmarks/page.py", sys.argv[1:]) | {"warm_up": WARM_UP, "repeats": options.repeats}
    results["seconds"] = measure(options.repeats)
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results["seconds"], indent=2))


if __name__ == "__main__":
    main()
