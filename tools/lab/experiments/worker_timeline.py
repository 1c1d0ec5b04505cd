"""Shows where the time of a command goes: when each worker is ready, has work and idles, and when pieces are joined.

    python tools/lab/experiments/worker_timeline.py --unencoded --target OUT.mp4 -o FILE.json VIDEO --workers local:2

VIDEO is a clip as `host_aims.py` makes them. Times are seconds since the command began, taken in its processes by
`marked/sitecustomize.py`. Of the process that drives the workers, the CPU seconds of each thread are read at its end,
those of the other processes every half second. With `--unencoded` nothing is encoded. For Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_SAMPLE = 0.5  # seconds
_LEFT = 10.0  # seconds that processes of a command may outlive it
_SHOWN = 0.03  # seconds: marks of workers at least as long are printed

Mark = dict[str, Any]


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


def runs(number: int) -> bool:
    """Returns whether a process has not ended; one that is dead may wait for its new parent for long."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def measured(video: Path, target: Path, options: list[str], *, unencoded: bool) -> dict[str, Any]:
    """Returns the marks of a command, and the samples of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder) / "marks"
        paths = [str(_HERE / "marked"), str(_HERE.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MARKS": str(marks)}
        environment |= {"UNENCODED": "1"} if unencoded else {}
        command = [sys.executable, "-P", "-m", "segmentation", str(video), "-q", "-y", "-o", str(target), *options]
        begin = time.monotonic()
        samples = []
        with subprocess.Popen(command, env=environment) as process:
            while process.poll() is None:
                samples.append((time.monotonic() - begin, processes(process.pid)))
                try:
                    process.wait(_SAMPLE)
                except subprocess.TimeoutExpired:
                    continue
        seconds = time.monotonic() - begin
        found = [json.loads(line) for line in marks.read_text(encoding="utf-8").splitlines()]
    ours = {row["process"] for row in found}
    while any(map(runs, ours)) and time.monotonic() - begin < seconds + _LEFT:
        time.sleep(0.01)
    left = time.monotonic() - begin - seconds
    for row in found:
        row |= {name: round(row[name] - begin, 4) for name in ("begin", "end") if name in row}
    return {
        "seconds": round(seconds, 3),
        "left": round(left, 3),  # seconds until all of its processes were gone
        "code": process.returncode,
        "driver": process.pid,
        "marks": found,
        "processes": samples,
    }


def summary(found: dict[str, Any]) -> list[str]:
    """Returns lines on a run: its parts, each worker's times, and CPU seconds."""
    own = [row for row in found["marks"] if row["process"] == found["driver"]]
    lines = [f"{found['seconds']:.2f} s, its processes {found['left']:.2f} s more, code {found['code']}", *_parts(own)]
    events = [row for row in own if row["what"] == "Dispatcher._handle"]
    done = [row["end"] for row in events if row["event"] == "Done"]
    joins = [row for row in own if row["what"] == "Joiner.add"]
    if done and joins:
        late = sum(row["end"] - row["begin"] for row in joins if row["begin"] > max(done))
        busy = sum(row["end"] - row["begin"] for row in joins)
        cpu = sum(row["cpu"] for row in joins)
        lines.append(
            f"  pieces: the first at {min(done):.2f}, the last at {max(done):.2f}; joined from "
            f"{joins[0]['begin']:.2f} to {joins[-1]['end']:.2f} in {busy:.2f} s, {cpu:.2f} of CPU, {late:.2f} after all"
        )
    for name in sorted({row["worker"] for row in events}):
        given = [f"{row['span']} at {row['end']:.2f}" for row in own if row.get("worker") == name and "span" in row]
        times: dict[str, list[float]] = defaultdict(list)
        for row in events:
            if row["worker"] == name and row["event"] != "Advanced":
                times[row["event"]].append(row["end"])
        text = ", ".join(f"{kind} {len(at)}: {at[0]:.2f} to {at[-1]:.2f}" for kind, at in times.items())
        lines.append(f"  {name}: given {'; '.join(given)}; {text}")
    for number in dict.fromkeys(row["process"] for row in found["marks"]):
        if number != found["driver"]:
            lines += [f"  process {number}:", *_parts([r for r in found["marks"] if r["process"] == number])]
    return [*lines, *_cpu(found, own)]


def _parts(marks: list[Mark]) -> list[str]:
    """Returns a line each on a process's longer parts, in the order of their beginnings."""
    left_out = ("Joiner.add", "Dispatcher._handle", "SupervisedPool.start", "SupervisedPool.shorten", "_Process.run")
    shown = [
        (row.get("begin", row["end"]), row)
        for row in marks
        if row["what"] not in (*left_out, "threads") and row["end"] - row.get("begin", 0) >= _SHOWN
    ]
    return [
        f"    {begin:.2f} to {row['end']:.2f} {row['what']} {' '.join(row.get('words', ()))} [{row['thread']}]"
        for begin, row in sorted(shown, key=lambda one: one[0])
    ]


def _cpu(found: dict[str, Any], own: list[Mark]) -> list[str]:
    """Returns lines on the CPU seconds of the driver's threads and of the other processes."""
    lines = []
    for row in own:
        if row["what"] == "threads":
            by_name: dict[str, list[float]] = defaultdict(list)
            for name, cpu in row["threads"]:
                by_name[name or "libraries'"].append(cpu)
            text = ", ".join(f"{name} {sum(cpu):.2f} ({len(cpu)})" for name, cpu in by_name.items())
            lines.append(f"  the driver: {row['cpu']:.2f} CPU s; of threads that are left: {text}")
    most: dict[str, tuple[float, int, int]] = {}
    for _, sampled in found["processes"]:
        for name, (seconds, threads, cores) in sampled.items():
            before = most.get(name, (0.0, 0, 0))
            most[name] = max(before[0], seconds), max(before[1], threads), cores
    for name, (cpu, threads, cores) in most.items():
        lines.append(f"  {name}: {cpu:.1f} CPU s, {threads} threads, {cores} cores")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unencoded", action="store_true")
    parser.add_argument("--target", type=Path, required=True, help="the video that is written, best in memory")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("video", type=Path)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the command")
    given = parser.parse_args()
    found = measured(given.video.resolve(), given.target.resolve(), given.options, unencoded=given.unencoded)
    given.output.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print("\n".join(summary(found)), flush=True)


if __name__ == "__main__":
    main()
