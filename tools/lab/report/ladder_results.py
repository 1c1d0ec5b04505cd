"""What `ladder.py` has measured, as the report and the documents need it: medians, and tables in Markdown."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from charts import STAGES

Row = dict[str, Any]  # of a file's "rows"
FPS, SECONDS, CPU = "fps", "seconds", "cpu_seconds_per_1000_frames"
HOST, GPU = "peak_memory_mib", "gpu_memory_mib"
_PLACES = {"gpu": "on a GPU", "cpu": "on a CPU"}
WORK = "CPU seconds"  # of a whole run
PEERS = {  # what is no rung of ours
    "typical workflow": "typical workflow",
    "sample, x264 ultrafast": "shape of NVIDIA's sample, x264",
    "sample, null": "shape of NVIDIA's sample, nothing encoded",
}
_LABELS = PEERS | {
    "baseline, CPU": "--baseline on the CPU alone",
    "baseline, in turn": "--baseline's stages one after the other",
    "baseline": "--baseline",
    "jpeg": "instead: encode jpeg",
    "nothing encoded": "instead: nothing encoded",
}


@dataclass
class Measured:
    """The figures of one machine. What several files have, the newest gives."""

    rows: dict[str, list[Row]] = field(default_factory=dict)  # by part
    heads: dict[str, Row] = field(default_factory=dict)  # by part: when, how, on what and with what it was measured

    @property
    def gpu(self) -> bool:
        """Whether it has one."""
        return bool(self.head["plans"]["gpu"])

    @property
    def head(self) -> Row:
        """That of the ladder itself."""
        return self.heads["ladder"]

    def named(self, part: str, name: str) -> list[Row]:
        """The rows of that name, in the order in which they were measured first."""
        return [row for row in self.rows.get(part, ()) if row["name"] == name]

    def names(self, part: str) -> list[str]:
        """Each name once."""
        return list(dict.fromkeys(row["name"] for row in self.rows.get(part, ())))


def load(folder: Path) -> dict[str, Measured]:
    """The stored figures, for "gpu" and "cpu" as far as they are there."""
    machines: dict[str, Measured] = {}
    for path in folder.glob("ladder-*.json"):
        results = json.loads(path.read_text(encoding="utf-8"))
        machine = machines.setdefault("gpu" if results["plans"]["gpu"] else "cpu", Measured())
        for part in {row["part"] for row in results["rows"]}:
            if part not in machine.heads or machine.heads[part]["date"] < results["date"]:
                machine.heads[part] = {key: value for key, value in results.items() if key != "rows"}
                machine.rows[part] = [row for row in results["rows"] if row["part"] == part]
    return machines


def figure(row: Row, key: str) -> float:
    """The median over a row's runs. Seconds are those for all of its clip, where runs took a part of it."""
    if key == SECONDS:
        return row["frames"] / figure(row, FPS)
    if key == WORK:
        return figure(row, CPU) * row["frames"] / 1000
    return median(run[key] for run in row["runs"])


def steady(row: Row) -> float:
    """Frames a second without the beginning, where that was measured."""
    return figure(row, "steady_fps" if "steady_fps" in row["runs"][0] else FPS)


def stages(row: Row) -> tuple[tuple[str, float], ...]:
    """Seconds by stage, medians over a row's runs."""
    return tuple((stage, median(run["stages"][stage] for run in row["runs"])) for stage in STAGES)


def label(name: str) -> str:
    """What a row of the ladder is called."""
    if name in _LABELS:
        return _LABELS[name]
    stage, _, implementation = name.partition(" ")
    return f"+ {stage} {implementation}"


def speed_up(row: Row, machine: Measured, part: str = "ladder", than: str = "baseline") -> float | None:
    """How many times as fast as another row with as many frames, if that was measured; on a CPU, in CPU time: how long
    something takes there depends on what else the cores do."""
    for other in machine.named(part, than):
        if other["frames"] == row["frames"]:
            if machine.gpu:
                return figure(row, FPS) / figure(other, FPS)
            return figure(other, CPU) / figure(row, CPU)
    return None


def times(row: Row, machine: Measured, part: str = "ladder", than: str = "baseline") -> str:
    """`speed_up` in writing."""
    value = speed_up(row, machine, part, than)
    return "" if value is None else f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ladder_head(machine: Measured) -> list[str]:
    """Over `ladder_rows`."""
    return [*_speed_head(machine), "typical workflow = 1"]


def ladder_rows(machine: Measured) -> Iterator[list[str]]:
    """Of each rung: name, seconds, frames a second, CPU seconds for 1,000 frames, and its `speed_up` against the
    baseline and the typical workflow."""
    for row in machine.rows["ladder"]:
        typical = times(row, machine, than="typical workflow")
        yield [label(row["name"]), *_speeds(row), times(row, machine), typical]


def length_head(machine: Measured) -> list[str]:
    """Over `length_rows`."""
    return ["frames", *_speed_head(machine), *_memory_head(machine)]


def length_rows(machine: Measured) -> Iterator[list[str]]:
    """Of each length and name: the number of frames, speeds as in `ladder_rows`, and memory at the peak."""
    for row in machine.rows["lengths"]:
        yield [f"{row['frames']:,}", row["name"], *_speeds(row), times(row, machine, "lengths"), *_memory(row, machine)]


def _memory_head(machine: Measured) -> list[str]:
    return ["host MiB", "GPU MiB"] if machine.gpu else ["host MiB"]


def _memory(row: Row, machine: Measured) -> list[str]:
    return [f"{figure(row, key):,.0f}" for key in ((HOST, GPU) if machine.gpu else (HOST,))]


def _speed_head(machine: Measured) -> list[str]:
    speed = "speed" if machine.gpu else "frames per CPU s"
    return ["", "seconds", "fps", "CPU s per 1,000 frames", f"{speed}, --baseline = 1"]


def _speeds(row: Row) -> list[str]:
    return [f"{figure(row, SECONDS):.2f}", f"{figure(row, FPS):,.0f}", f"{figure(row, CPU):.1f}"]


def where(machine: Measured, part: str) -> str:
    """Hardware, date and revision in one line."""
    head = machine.heads[part]
    hardware = head["hardware"]
    gpu = f"{hardware['gpu']} (driver {hardware['driver']}), " if "gpu" in hardware else ""
    cores = f"{hardware['cores']} cores of an {hardware['cpu']}"
    return f"{gpu}{cores}, {head['date'][:10]}, revision {head['versions']['git']}"


def models(folder: Path) -> str:
    """What the newest file of `benchmark.py` says of each model, against the typical workflow."""
    results = json.loads(max(folder.glob("cpu-*.json")).read_text(encoding="utf-8"))
    rows = []
    for row, alone in zip(results["throughput"], results["stages"], strict=True):
        ours, typical = row["pipeline"], row["typical"]
        cpu = f"{ours[CPU]:.0f} against {typical[CPU]:.0f}"
        speeds = (f"{side[FPS]['median']:.1f} fps" for side in (ours, typical))
        ratio = f"**{ours[FPS]['median'] / typical[FPS]['median']:.1f}**"
        rows.append([f"`{row['model']}`", *speeds, ratio, cpu, f"{alone['limit_fps']:.1f} fps"])
    head = ("model", "this program", "typical workflow", "ratio", "CPU seconds per 1,000 frames")
    return markdown((*head, "what the cores could do"), rows)


def busy(machine: Measured) -> str:
    """Seconds that the stages of each rung are busy, and which thread is so most of the time."""
    head = ("", "whole run", *STAGES, "busiest")
    rows = []
    for row in machine.rows["ladder"]:
        if "stages" in row["runs"][0]:
            seconds = (figure(row, SECONDS), *(spent for _, spent in stages(row)))
            rows.append([label(row["name"]), *(f"{value:.2f}" for value in seconds), _busiest(row)])
    return markdown(head, rows)


def _busiest(row: Row) -> str:
    """What is busy for the largest part of the run, maybe in several threads: decoding, the three stages in the middle
    (where they are on the GPU, it), or encoding."""
    decode, *middle, encode = (seconds for _, seconds in stages(row))
    busy = {"decode": decode, "middle": sum(middle), "encode": encode}
    name = max(busy, key=lambda thread: busy[thread])
    return f"{name} {100 * busy[name] / figure(row, SECONDS):.0f} %"


def compared(machine: Measured) -> str:
    """Frames a second over codecs, sizes and sizes of batches; on a CPU, CPU seconds for 1,000 frames."""
    rows = []
    for part, key in (("codecs", "codec"), ("sizes", "size"), ("batches", "name")):
        for row in machine.rows.get(part, ()):
            what, how = (row[key], row["name"]) if part != "batches" else row["name"].rsplit(", ")[::-1]
            value = f"{figure(row, FPS):,.0f}" if machine.gpu else f"{figure(row, CPU):.1f}"
            rows.append([part, what, how, value, *_memory(row, machine)])
    unit = "fps" if machine.gpu else "CPU s per 1,000 frames"
    return markdown(["", "", "", unit, *_memory_head(machine)], rows)


def alone(machine: Measured) -> str:
    """Frames a second of each stage alone, and CPU seconds for 1,000."""
    rows = [[row["name"], f"{steady(row):,.0f}", f"{figure(row, CPU):.2f}"] for row in machine.rows["alone"]]
    return markdown(("", "fps", "CPU s per 1,000 frames"), rows)


def blocks(folder: Path) -> dict[str, str]:
    """The tables and pictures that stand in documents, by name, of the figures in `folder`."""
    found = {"models-cpu": models(folder)}
    for kind, machine in load(folder).items():
        frames = machine.rows["ladder"][0]["frames"]
        about = f"{frames:,} frames, 1080p, x264 {machine.head['preset']}; {where(machine, 'ladder')}:"
        picture = f"![The ladder, {_PLACES[kind]}]({kind}-ladder.png)"
        table = markdown(ladder_head(machine), list(ladder_rows(machine)))
        found[f"ladder-{kind}"] = f"{about}\n\n{table}\n\n{picture}"
        found[f"busy-{kind}"] = busy(machine)
        if "lengths" in machine.rows:
            picture = f"![Time and memory over length, {_PLACES[kind]}]({kind}-lengths.png)"
            found[f"lengths-{kind}"] = f"{markdown(length_head(machine), list(length_rows(machine)))}\n\n{picture}"
        if {"codecs", "sizes", "batches"} <= machine.rows.keys():
            found[f"compared-{kind}"] = compared(machine)
        if "trace" in machine.rows:
            found[f"timeline-{kind}"] = f"![Some batches on their way, {_PLACES[kind]}]({kind}-timeline.png)"
        if "alone" in machine.rows:
            found[f"alone-{kind}"] = alone(machine)
    return found


def filled_in(text: str, tables: dict[str, str]) -> str:
    """The document with each table between its two markers, `<!-- NAME -->` and `<!-- /NAME -->`.

    Where a table was not measured, what stands there stays.
    """

    def current(match: re.Match[str]) -> str:
        begin, name, before, end = match.groups()
        return f"{begin}{tables[name]}\n{end}" if name in tables else f"{begin}{before}{end}"

    return re.sub(r"(<!-- ([a-z-]+) -->\n)(.*?)(<!-- /\2 -->)", current, text, flags=re.DOTALL)
