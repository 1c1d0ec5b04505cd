"""Measures where the time of short runs goes, in one process and on workers, in turn.

    python tools/lab/experiments/starts.py VIDEO --workers 1,4 -o FILE.json

Each run is a command of its own over the first frames of VIDEO. Of runs on workers the marks are those of the process
that was started: its imports, the launch of its workers, the first and the last of them that is ready, the first and
the last piece, the output, and the workers' end. For Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))  # the tools are programs, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

_CHILD = "STARTS_MARKS"  # variable: the file for marks, in the process that is measured


def child(target: Path) -> None:
    """Runs the command line of this process, and writes its marks to `target`."""
    from segmentation import __main__ as entry

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `entry.start` does before it imports NumPy
    getattr(entry, "begin_processes", int)()  # which older revisions lack
    from segmentation.cli import main as program

    marks: list[tuple[str, float]] = [("imported", time.monotonic())]

    def mark(kind: Any, name: str, label: Callable[..., str]) -> None:
        inner = getattr(kind, name)

        def outer(*given: Any, **options: Any) -> Any:
            try:
                return inner(*given, **options)
            finally:
                marks.append((label(*given), time.monotonic()))
                target.write_text(json.dumps(marks), encoding="utf-8")

        setattr(kind, name, outer)

    if "--workers" in sys.argv:
        from segmentation.scale.coordinator import Workers
        from segmentation.scale.dispatcher import Dispatcher
        from segmentation.scale.protocol import Done, Ready

        labels = {Ready: "ready", Done: "piece"}
        mark(Workers, "__init__", lambda *_: "launched")
        mark(Dispatcher, "_handle", lambda _, event: labels.get(type(event), ""))
        mark(Workers, "run", lambda *_: "written")
        mark(Workers, "close", lambda *_: "closed")
    mark(program, "main", lambda *_: "over")
    entry.start()


def start(video: Path, options: list[str], folder: Path) -> dict[str, float]:
    """Returns the seconds until each mark of one run, and until its process has ended."""
    target = folder / "marks.json"
    command = [sys.executable, __file__, str(video), "-q", "-y", "-o", str(folder / "out.mp4"), *options]
    begin = time.monotonic()
    subprocess.run(command, check=True, env={**os.environ, _CHILD: str(target)})
    ended = time.monotonic()
    found: dict[str, float] = {}
    for name, at in json.loads(target.read_text(encoding="utf-8")):
        if name in ("ready", "piece"):
            found.setdefault(f"first {name}", at - begin)
            found[f"last {name}"] = at - begin
        elif name:
            found[name] = at - begin
    return {**found, "ended": ended - begin}


def main() -> None:
    from circumstances import circumstances

    parser = argparse.ArgumentParser(description="Measures where the time of short runs goes, in turn.")
    parser.add_argument("video", type=Path)
    parser.add_argument("--workers", default="1,2", help="numbers of workers (default: 1,2)")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--options", default="--preset ultrafast", help="of all runs (default: --preset ultrafast)")
    parser.add_argument("--repeats", type=int, default=3, help="after a first round, which fills caches (default: 3)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    shared = [*given.options.split(), "--max-frames", str(given.frames)]
    kinds = {"one process": shared}
    kinds |= {f"local:{n}": [*shared, "--workers", f"local:{n}"] for n in given.workers.split(",")}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(1 + given.repeats):
            for name, options in kinds.items():
                runs[name].append(start(given.video.resolve(), options, Path(folder)))
    results = circumstances("lab/experiments/starts.py", sys.argv[1:])
    results["seconds"] = {
        name: {mark: round(median(run[mark] for run in found[1:]), 3) for mark in found[-1]}
        for name, found in runs.items()
    }
    one = results["seconds"]["one process"]["ended"]
    results["times_one_process"] = {name: round(found["ended"] / one, 2) for name, found in results["seconds"].items()}
    given.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for name, found in results["seconds"].items():
        print(f"{name}: " + ", ".join(f"{mark} {seconds:.2f}" for mark, seconds in found.items()))


if __name__ == "__main__":
    if marks := os.environ.pop(_CHILD, None):
        child(Path(marks))
    else:
        main()
