"""The figures of the report: from what was measured on a machine to charts."""

from collections.abc import Iterator
from dataclasses import dataclass

import charts
from charts import STAGES, Bar, Line
from ladder_results import (
    CPU,
    FPS,
    GPU,
    HOST,
    PEERS,
    SECONDS,
    WORK,
    Measured,
    Row,
    figure,
    label,
    stages,
    steady,
    times,
)

_ALONE = {  # a row's name: what it is called, and whose color it has
    "ordered decoder": ("decode, frames kept and in order", "decode"),
    "6 independent decoders": ("6 NVDEC decoders, frames thrown away", "peer"),
    "7 independent decoders": ("7 NVDEC decoders, frames thrown away", "peer"),
    "copy alone": ("frames copied within the GPU's memory", "peer"),
    "x264 ultrafast alone": ("encode, x264 ultrafast in segments", "encode"),
    "x264 default alone": ("encode, x264 default in segments", "encode"),
}


_WORK_COUNTS = "CPU time: how long it takes depends on what else the cores do."


@dataclass(frozen=True)
class Figure:
    """A chart with its title and what one should know of it. `wide` ones have the page's width."""

    name: str
    title: str
    about: str
    chart: str
    wide: bool = True


def figures(machine: Measured) -> Iterator[Figure]:
    """All figures that the machine's parts give."""
    count = machine.rows["ladder"][0]["frames"]
    yield Figure(
        "ladder", f"The ladder: {count:,} frames, 1080p",
        f"{'Seconds for the whole file, speed' if machine.gpu else 'CPU seconds for 1,000 frames, frames per CPU s'} "
        "(--baseline = 1). A + moves one stage more to its optimized form. Grey: what others do.", ladder(machine),
    )  # fmt: skip
    yield Figure(
        "work", "The same rungs: how long their stages are busy",
        "Stages overlap, so a rung takes about as long as its slowest stage, not as their sum; several threads may "
        "share a stage. A stage on the GPU counts the GPU's time, decoding there the wait for its frames.",
        work(machine),
    )  # fmt: skip
    if "alone" in machine.rows:
        yield Figure(
            "alone", "Each stage alone, for 1,000 frames",
            "With all that it needs ready in memory. Grey: what bounds it. Blue: the whole pipeline."
            if machine.gpu else _WORK_COUNTS, alone(machine),
        )  # fmt: skip
    if "lengths" in machine.rows:
        yield from lengths(machine)
    yield from comparisons(machine)
    for row in machine.rows.get("trace", ()):
        name = f"timeline-{row['name'].replace(' ', '-')}"
        about = "A strip for each thread that stages run in; shades alternate from batch to batch."
        yield Figure(name, f"Some batches on their way: {row['name']}", about, timeline(row))


def ladder(machine: Measured) -> str:
    """Seconds of each rung, on a CPU its CPU time."""
    rows = []
    for row in machine.rows["ladder"]:
        seconds, kind = figure(row, SECONDS if machine.gpu else CPU), "peer" if row["name"] in PEERS else "ours"
        text = f"{seconds:.2f} s · {times(row, machine)}"
        rows.append(Bar(label(row["name"]), ((kind, seconds),), text))
    return charts.bars(rows)


def work(machine: Measured) -> str:
    """Seconds that the stages of each rung are busy."""
    rows = []
    for row in machine.rows["ladder"]:
        if "stages" in row["runs"][0]:
            parts = stages(row)
            rows.append(Bar(label(row["name"]), parts, f"{sum(seconds for _, seconds in parts):.2f} s"))
    return charts.legend(STAGES) + charts.bars(rows)


def alone(machine: Measured) -> str:
    """Seconds of each stage for 1,000 frames, on a CPU its CPU time; what bounds it; what the pipeline takes."""
    if not machine.gpu:
        times = [(row["name"].removesuffix(" alone"), figure(row, CPU)) for row in machine.rows["alone"]]
        bars = [Bar(stage, ((stage, seconds),), f"{seconds:.2f} s") for stage, seconds in times]
        together = figure(machine.named("ladder", "baseline")[0], CPU)
        return charts.bars([*bars, Bar("pipeline, baseline", (("ours", together),), f"{together:.2f} s")])
    rows = []
    for row in machine.rows["alone"]:
        stage = row["name"].removesuffix(" alone")
        name, kind = _ALONE.get(row["name"], (stage, stage))
        rows.append(_for_a_thousand(name, kind, steady(row)))
    for name in machine.names("lengths")[-2:]:
        longest = machine.named("lengths", name)[-1]
        rows.append(_for_a_thousand(f"pipeline, {name}, {longest['frames']:,} frames", "ours", figure(longest, FPS)))
    return charts.bars(rows)


def _for_a_thousand(name: str, kind: str, fps: float) -> Bar:
    return Bar(name, ((kind, 1000 / fps),), f"{1000 / fps:.3g} s · {fps:,.0f} fps")


def lengths(machine: Measured) -> Iterator[Figure]:
    """Time and memory over the length of the file."""
    whole, flat = "Whole runs, loading included.", "At the peak, for the whole process."
    if machine.gpu:
        yield Figure("time", "Time over length", whole, _over_length(machine, SECONDS, "seconds"), wide=False)
    else:
        yield Figure("time", "CPU time over length", whole, _over_length(machine, WORK, "seconds"), wide=False)
    yield Figure("memory", "Memory over length", flat, _over_length(machine, HOST, "GiB", 1024), wide=False)
    if machine.gpu:
        yield Figure("gpu-memory", "GPU memory over length", flat, _over_length(machine, GPU, "GiB", 1024), wide=False)


def _over_length(machine: Measured, key: str, title: str, unit: float = 1) -> str:
    return charts.lines(
        [
            Line(name, tuple((row["frames"], figure(row, key) / unit) for row in machine.named("lengths", name)))
            for name in machine.names("lengths")
        ],
        "frames",
        title,
    )


def comparisons(machine: Measured) -> Iterator[Figure]:
    """Codecs, sizes and batches."""
    titles = {"codecs": "Codecs of the input, 1080p", "sizes": "Sizes, H.264", "batches": "Frames in a batch"}
    for part, title in titles.items():
        if part in machine.rows:
            about = "Frames a second over whole runs." if machine.gpu else f"{_WORK_COUNTS} For 1,000 frames."
            bars = [_rate(row, machine.gpu) for row in machine.rows[part]]
            yield Figure(part, title, about, charts.bars(bars), wide=False)


def _rate(row: Row, gpu: bool) -> Bar:
    unencoded = row["name"].startswith("nothing encoded")
    name = {
        "codecs": f"{row['codec']}, {row['name']}",
        "sizes": f"{row['size']}, {row['name']}",
        "batches": row["name"],
    }[row["part"]]
    value = figure(row, FPS if gpu else CPU)
    return Bar(name, (("unencoded" if unencoded else "ours", value),), f"{value:,.0f} fps" if gpu else f"{value:.1f} s")


def timeline(row: Row) -> str:
    """Who was busy when."""
    kinds = {kind for track in row["timeline"] for kind, *_ in track["slices"]}
    return charts.legend([kind for kind in (*STAGES, "wait", "mux") if kind in kinds]) + charts.timeline(
        [(t["track"], t["slices"]) for t in row["timeline"]]
    )


_HEADLINES = {
    "typical workflow": "in the workflow that people usually write",
    "baseline": "with --baseline",
    "encode x264-segments": "at the top of the ladder",
    "nothing encoded": "where nothing has to be encoded",
}


def headline(machine: Measured) -> str:
    """The most important figures in a sentence."""
    said = [(row, _HEADLINES[row["name"]]) for row in machine.rows["ladder"] if row["name"] in _HEADLINES]
    key, what = (
        (SECONDS, f"{said[0][0]['frames']:,} frames take") if machine.gpu else (CPU, "1,000 frames take CPU time of")
    )
    return f"{what} {', '.join(f'{figure(row, key):.1f} s {how}' for row, how in said)}."
