"""One table and one page of the experiments with streams, from the results of one or several machines."""

from collections.abc import Iterator, Sequence
from html import escape
from statistics import median
from typing import Any

import charts
from charts import Line
from report import document, framed, side_by_side
from report_figures import Figure

Results = dict[str, Any]  # what `streams.py experiments` has written
HEAD = (
    *("machine", "networks", "tracker", "streams", "interval"),
    *("frames a second of each stream", "whole run, of NVDEC's limit", "CPU s for 1,000 frames"),
    *("IoU", "worst frame", "boundary F"),
)


def merged(results: Sequence[Results]) -> list[Results]:
    """Returns one result a machine, in the order of their names. Of rows that several files have, the newest counts.

    Raises `SystemExit` for results of different videos, sizes or networks: their figures do not compare.
    """
    if len(of := {", ".join(one["of"].values()) for one in results}) > 1:
        raise SystemExit(f"these results do not compare, report them apart: {'; '.join(sorted(of))}")
    machines: dict[str, Results] = {}
    for one in sorted(results, key=lambda one: str(one["date"])):
        known = machines.get(_machine(one), {"rows": [], "errors": {}})
        rows = {_key(row): row for row in (*known["rows"], *one["rows"])}
        machines[_machine(one)] = one | {"rows": list(rows.values()), "errors": known["errors"] | one["errors"]}
    return [machines[name] for name in sorted(machines)]


def table(results: Sequence[Results]) -> Iterator[tuple[str, ...]]:
    """Yields the rows, each with the error of its interval."""
    for one in merged(results):
        for row in one["rows"]:
            error = one["errors"][str(row["interval"])]
            accuracy = f"{error['iou']:.3f}", f"{error['worst']:.2f}", f"{error['f']:.3f}"
            cpu = median(run["cpu_seconds_per_1000_frames"] for run in row["runs"])
            yield _machine(one), *map(str, _key(row)), f"{row['fps']:.1f}", _share(one, row), f"{cpu:.1f}", *accuracy
        for row in one.get("peers", ()):
            cpu = median(run["cpu_seconds_per_1000_frames"] for run in row["runs"])
            peer = f"{_machine(one)}: {row['peer']}"
            yield peer, *map(str, _key(row)), f"{row['fps']:.1f}", _share(one, row), f"{cpu:.1f}", "", "", ""


def markdown(results: Sequence[Results]) -> str:
    """Returns the table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ["---"] * len(HEAD), *table(results)))


def page(results: Sequence[Results]) -> str:
    """Returns the charts and the table of all machines as HTML."""
    machines = merged(results)
    sections = "".join(
        f'<section><h2>{escape(_machine(one))}</h2><p class="soft">{escape(one["date"])}, <code>'
        f"{escape(one['command'])}</code></p>"
        f"{side_by_side(''.join(framed(f'machine{number}', shown) for shown in _figures(one)))}</section>"
        for number, one in enumerate(machines)
    )
    return document(
        "<main><h1>Many streams at once, and what an interval costs</h1><p>Copies of one video, as fast as they go, by "
        "tracker, by the number of frames between two that the network sees, and by networks. The error is that of the "
        f"masks against those of a network that sees every frame. {escape(', '.join(machines[0]['of'].values()))}.</p>"
        f"{sections}<section><h2>All figures</h2>{charts.table(HEAD, list(table(results)))}</section></main>"
    )


def _figures(one: Results) -> Iterator[Figure]:
    """Yields the speeds over the interval, for each number of streams, and the errors over it."""
    rows = one["rows"]
    for streams in dict.fromkeys(row["streams"] for row in rows):
        lines = []
        for networks, track in dict.fromkeys((row["networks"], row["track"]) for row in rows):
            chosen = [r for r in rows if (r["networks"], r["track"], r["streams"]) == (networks, track, streams)]
            points = sorted((row["interval"], row["fps"]) for row in chosen)
            lines += [Line(f"{networks}, {track}", tuple(points))] if points else []
        chart = charts.lines(lines, "interval", "frames a second of each stream")
        yield Figure(f"streams-{streams}", f"{streams} streams", "Networks and trackers.", chart, wide=False)
    errors = sorted((int(interval), error) for interval, error in one["errors"].items())
    missed = [
        Line(name, tuple((interval, 100 * (1 - error[key])) for interval, error in errors))
        for name, key in (("mean IoU", "iou"), ("boundary F", "f"))
    ]
    chart = charts.lines(missed, "interval", "missing from 100 %")
    yield Figure("errors", "What an interval costs", "Against interval 0, mean of all frames.", chart, wide=False)


def _machine(one: Results) -> str:
    hardware, processes = one["hardware"], one.get("processes", 1)
    name = one["gpu"] or f"{hardware['cpu']}, {hardware['cores']} cores"
    return f"{name}, {processes} processes" if processes > 1 else str(name)


def _share(one: Results, row: Results) -> str:
    """Returns what part of NVDEC's limit all streams had, with the start of the first and the end of the last."""
    rates = [run["fps_of_all_the_run"] for run in row["runs"] if "fps_of_all_the_run" in run]
    limit = one.get("nvdec_limit")
    return f"{median(rates) * row['streams'] / limit:.2f}" if rates and limit else ""


def _key(row: Results) -> tuple[str, str, int, int]:
    return row["networks"], row["track"], row["streams"], row["interval"]
