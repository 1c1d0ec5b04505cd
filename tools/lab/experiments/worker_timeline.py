"""Shows where the time of a run on workers goes: when each is ready, has work and idles, and when pieces are joined.

    python tools/lab/experiments/worker_timeline.py VIDEO --workers local:2 --unencoded -o FILE.json

VIDEO is a clip as `host_aims.py` makes them. Times are seconds since the command began, and all are taken in the
process that drives the workers. Without `--workers` one process does all, and its seconds alone are there. With
`--unencoded` nothing is encoded. Every half second the CPU seconds of each process are read. For Linux.
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
from typing import Any

_CHILD = "TIMELINE_MARKS"  # variable: the file for marks, in the process that is measured
_UNENCODED = Path(__file__).with_name("unencoded")  # for PYTHONPATH
_SAMPLE = 0.5  # seconds


def child(target: Path) -> None:
    """Runs the command line of this process, and writes its marks to `target`."""
    from segmentation import __main__ as entry

    entry.begin_processes()
    from segmentation.cli import main as program
    from segmentation.scale.coordinator import Workers
    from segmentation.scale.dispatcher import Dispatcher
    from segmentation.scale.join import Joiner
    from segmentation.scale.supervised import SupervisedPool

    marks: list[dict[str, Any]] = [{"what": "imported", "end": time.monotonic()}]

    def mark(kind: Any, name: str, what: str, about: Callable[..., dict[str, Any]] = lambda *_: {}) -> None:
        inner = getattr(kind, name)

        def outer(*given: Any, **options: Any) -> Any:
            begin, cpu = time.monotonic(), time.thread_time()
            try:
                return inner(*given, **options)
            finally:
                row = {"what": what, "begin": begin, "end": time.monotonic(), "cpu": time.thread_time() - cpu}
                marks.append(row | about(*given))

        setattr(kind, name, outer)

    def event(_: Any, one: Any) -> dict[str, Any]:
        return {"event": type(one).__name__, "worker": one.worker, "piece": getattr(one, "piece", None)}

    mark(Workers, "__init__", "launch")
    mark(Workers, "_plan", "plan")
    mark(Dispatcher, "_handle", "event", event)
    mark(SupervisedPool, "start", "given", lambda _, name, task: {"worker": name, "span": [task.begin, task.end]})
    mark(SupervisedPool, "shorten", "shortened", lambda _, name, end: {"worker": name, "span": end})
    mark(Joiner, "add", "join", lambda _, piece: {"piece": piece.index.number})
    mark(Joiner, "finish", "finish")
    mark(Workers, "close", "close")
    mark(program, "main", "command")
    try:
        entry.start()
    finally:
        target.write_text(json.dumps({"marks": marks, "cpu": time.process_time()}), encoding="utf-8")


def processes(root: int) -> dict[str, tuple[float, int, int]]:
    """Returns CPU seconds, threads and cores of the package's processes that `root` began, by module and number."""
    parents, found = {root: 0}, {}
    for number in sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
        try:
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{number}/cmdline").read_bytes().decode().split("\0")
            if int(fields[1]) not in parents:
                continue
            parents[number] = int(fields[1])
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            kind = next((word for word in words if word.startswith("segmentation.")), "")
            found[f"{kind.removeprefix('segmentation.')} {number}"] = (
                seconds,
                int(fields[17]),
                len(os.sched_getaffinity(number)),
            )
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return found


def measured(video: Path, target: Path, options: list[str], *, unencoded: bool) -> dict[str, Any]:
    """Returns the marks of a command, and the samples of its processes."""
    environment = dict(os.environ)
    if unencoded:
        environment["PYTHONPATH"] = f"{_UNENCODED}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder) / "marks.json"
        command = [sys.executable, str(Path(__file__).resolve()), str(video), "-q", "-y", "-o", str(target), *options]
        begin = time.monotonic()
        samples = []
        with subprocess.Popen(command, env=environment | {_CHILD: str(marks)}) as process:
            while process.poll() is None:
                samples.append((time.monotonic() - begin, processes(process.pid)))
                try:
                    process.wait(_SAMPLE)
                except subprocess.TimeoutExpired:
                    continue
        seconds = time.monotonic() - begin
        found = json.loads(marks.read_text(encoding="utf-8"))
    for row in found["marks"]:
        row |= {name: round(row[name] - begin, 4) for name in ("begin", "end") if name in row}
    return {"seconds": round(seconds, 3), "driver_cpu": found["cpu"], "marks": found["marks"], "processes": samples}


def summary(found: dict[str, Any]) -> list[str]:
    """Returns lines on a run: its parts, and each worker's times."""
    marks = found["marks"]
    lines = [f"{found['seconds']:.2f} s, CPU of the driver {found['driver_cpu']:.2f} s"]
    for what in ("imported", "launch", "plan", "finish", "close"):
        lines += [f"  {what}: {row.get('begin', 0):.2f} to {row['end']:.2f}" for row in marks if row["what"] == what]
    events = [row for row in marks if row["what"] == "event"]
    done = [row["end"] for row in events if row["event"] == "Done"]
    joins = [row for row in marks if row["what"] == "join"]
    if done and joins:
        late = sum(row["end"] - row["begin"] for row in joins if row["begin"] > max(done))
        busy = sum(row["end"] - row["begin"] for row in joins)
        cpu = sum(row["cpu"] for row in joins)
        lines.append(
            f"  pieces: the first at {min(done):.2f}, the last at {max(done):.2f}; joined from "
            f"{joins[0]['begin']:.2f} to {joins[-1]['end']:.2f} in {busy:.2f} s, {cpu:.2f} of CPU, {late:.2f} after all"
        )
    for name in sorted({row["worker"] for row in events}):
        own = [row for row in marks if row.get("worker") == name]
        given = [f"{row['span']} at {row['end']:.2f}" for row in own if row["what"] == "given"]
        times: dict[str, list[float]] = {}
        for row in own:
            if row["what"] == "event":
                times.setdefault(row["event"], []).append(row["end"])
        text = ", ".join(
            f"{kind} {len(at)}: {at[0]:.2f} to {at[-1]:.2f}" for kind, at in times.items() if kind != "Advanced"
        )
        lines.append(f"  {name}: given {'; '.join(given)}; {text}")
    most: dict[str, tuple[float, int, int]] = {}
    for _, processes in found["processes"]:
        for name, (seconds, threads, cores) in processes.items():
            before = most.get(name, (0.0, 0, 0))
            most[name] = max(before[0], seconds), max(before[1], threads), cores
    for name, (cpu, threads, cores) in most.items():
        lines.append(f"  {name}: {cpu:.1f} CPU s, {threads} threads, {cores} cores")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", type=Path)
    parser.add_argument("--workers", help="such as local:2")
    parser.add_argument("--unencoded", action="store_true")
    parser.add_argument("--options", default="--preset ultrafast", help="of the command (%(default)s)")
    parser.add_argument("--target", type=Path, required=True, help="the video that is written, best in memory")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    options = [*given.options.split(), *(["--workers", given.workers] if given.workers else [])]
    found = measured(given.video.resolve(), given.target.resolve(), options, unencoded=given.unencoded)
    given.output.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print("\n".join(summary(found)), flush=True)


if __name__ == "__main__":
    if at := os.environ.pop(_CHILD, None):
        child(Path(at))
    else:
        main()
