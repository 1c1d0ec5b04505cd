"""Says in a few lines what a profile of Nsight Systems shows: where the time goes, how busy the GPU is, what is copied
between its memory and the host's, and who waits for it.

    nsys export --type sqlite --output run.sqlite run.nsys-rep
    python tools/benchmarks/profile_verdict.py run.sqlite [--json]

All but the stages' totals is about the steady state: what lies between the first and the last postprocess range, so
that neither loading nor the end blurs the picture. Tables that the profile has not, such as CUDA's on a machine without
a GPU, count as empty. `tools/benchmarks/profile.sh` does both steps.
"""

import argparse
import json
import re
import sqlite3
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOMAIN = "segmentation"  # of the NVTX ranges that the program sets
# What the schema's enumerations say, which are not exported with every profile.
PUSH_POP, DOMAIN_CREATED = 59, 75
COPIES = {1: "host to device", 2: "device to host", 8: "device to device"}
PAGEABLE = 0  # memory that is not page-locked: a copy from or to it keeps the host waiting
# Calls that return when the GPU is done; driver functions end in _v2 or _ptsz, runtime functions in their version.
BLOCKING = re.compile(
    r"(cu(da)?(Stream|Event|Device|Ctx|Thread)Synchronize|cu(da)?Memcpy(?!\w*Async)\w*?|cudaFree|cuMemFree)(_\w+)?"
)
ELSEWHERE = "threads of libraries"  # threads without a range: what decodes on NVDEC, for one
BETWEEN = "between stages"  # in a thread of the pipeline, but in no range
Interval = tuple[int, int]  # nanoseconds


@dataclass(frozen=True, slots=True)
class Range:
    """One call of a stage."""

    name: str
    thread: int
    begin: int
    end: int


class Profile:
    """The exported tables, as far as they are there."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        tables = self._database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self._tables = {name for (name,) in tables}

    def rows(self, table: str, columns: str, condition: str = "TRUE") -> Iterator[tuple[Any, ...]]:
        """Columns of a table; of one that is not there, nothing."""
        if table in self._tables:
            yield from self._database.execute(f"SELECT {columns} FROM {table} WHERE {condition}")

    def ranges(self) -> list[Range]:
        """The stages' calls that came to an end, by their beginning."""
        strings = dict(self.rows("StringIds", "id, value"))

        def named(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
            """With the text in the place of (text, textId): a registered string has the latter."""
            return ((text or strings.get(number), *rest) for text, number, *rest in rows)

        created = named(self.rows("NVTX_EVENTS", "text, textId, domainId", f"eventType = {DOMAIN_CREATED}"))
        domains = {number for name, number in created if name == DOMAIN}
        pushed = self.rows(
            *("NVTX_EVENTS", 'text, textId, domainId, globalTid, start, "end"'),
            f'eventType = {PUSH_POP} AND "end" IS NOT NULL',
        )
        found = [Range(name, *rest) for name, domain, *rest in named(pushed) if domain in domains and name]
        return sorted(found, key=lambda r: r.begin)

    def busy(self) -> list[Interval]:
        """When the GPU computed or copied: kernels, CUDA graphs as a whole, copies, fills; without overlaps."""
        kinds = ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")
        return union(row for kind in kinds for row in self.rows(f"CUPTI_ACTIVITY_KIND_{kind}", 'start, "end"'))

    def copies(self) -> Iterator[tuple[int, str, int, bool]]:
        """(begin, direction, bytes, whether the host's memory is pageable)."""
        table = "CUPTI_ACTIVITY_KIND_MEMCPY"
        for begin, kind, size, source, target in self.rows(table, "start, copyKind, bytes, srcKind, dstKind"):
            yield begin, COPIES.get(kind, f"kind {kind}"), size, kind in (1, 2) and PAGEABLE in (source, target)

    def waits(self) -> Iterator[tuple[int, int, str]]:
        """(begin, thread, function) of each call of the CUDA APIs that returned when the GPU was done."""
        table = "CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON nameId = id"
        if "CUPTI_ACTIVITY_KIND_RUNTIME" not in self._tables:
            return
        inside: dict[int, int] = {}  # until when a thread is in such a call: the driver's calls in it are part of it
        calls = self._database.execute(f'SELECT start, "end", globalTid, value FROM {table} ORDER BY start')
        for begin, end, thread, name in calls:
            if (match := BLOCKING.fullmatch(name)) and begin >= inside.get(thread, 0):
                inside[thread] = end
                yield begin, thread, match[1]

    def synchronizations(self, steady: Interval) -> int:
        """How many CUPTI recorded, but for streams that wait for an event (type 2), which hold up no host."""
        begin, end = steady
        rows = self.rows("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "start", "syncType != 2")
        return sum(begin <= at < end for (at,) in rows)


def union(intervals: Iterable[tuple[Any, ...]]) -> list[Interval]:
    """The time that intervals cover, without overlaps, in order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def within(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """What of the intervals lies in a window."""
    cut = ((max(begin, window[0]), min(end, window[1])) for begin, end in intervals)
    return [(begin, end) for begin, end in cut if begin < end]


def length(intervals: Iterable[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def steady_state(ranges: list[Range]) -> tuple[Interval, int]:
    """What lies between the first and the last batch's postprocess, and how many batches do; empty for fewer than 3."""
    calls = [r for r in ranges if r.name == "postprocess"]
    if len(calls) < 3:
        return (0, 0), 0
    return (min(r.end for r in calls), max(r.begin for r in calls)), len(calls) - 2


def measure(profile: Profile) -> dict[str, Any]:
    """All numbers: seconds, bytes, counts."""
    ranges = profile.ranges()
    steady, batches = steady_state(ranges)
    span = steady[1] - steady[0]
    busy = within(profile.busy(), steady)
    idle = [steady[0], *(at for interval in busy for at in interval), steady[1]]
    gaps = [after - before for before, after in zip(idle[::2], idle[1::2], strict=True)]
    return {
        "stages": {name: _stage(calls, steady) for name, calls in _by_name(ranges).items()},
        "steady": {"seconds": span / 1e9, "batches": batches},
        "gpu": {
            "busy_share": length(busy) / span if span else 0.0,
            "busy_seconds": length(busy) / 1e9,
            "longest_gap_seconds": max(gaps) / 1e9,
        },
        "copies": _copies(profile, steady),
        "waits": _waits(profile, ranges, steady),
        "synchronizations": profile.synchronizations(steady),
    }


def _by_name(ranges: list[Range]) -> dict[str, list[Range]]:
    named: dict[str, list[Range]] = defaultdict(list)
    for one in ranges:
        named[one.name].append(one)
    return named


def _stage(calls: list[Range], steady: Interval) -> dict[str, float]:
    times = [(r.begin, r.end) for r in calls]
    span = steady[1] - steady[0]
    # Of one thread: two that each work half of the time have the share of one that does.
    threads = {r.thread for r in calls if within([(r.begin, r.end)], steady)}
    share = length(within(times, steady)) / span / len(threads) if threads else 0.0
    return {"calls": len(calls), "seconds": length(times) / 1e9, "steady_share": share}


def _copies(profile: Profile, steady: Interval) -> dict[str, dict[str, int]]:
    """By direction."""
    found: dict[str, dict[str, int]] = {}
    for begin, direction, size, pageable in profile.copies():
        if steady[0] <= begin < steady[1]:
            sums = found.setdefault(direction, {"count": 0, "bytes": 0, "largest": 0, "pageable": 0})
            sums["count"] += 1
            sums["bytes"] += size
            sums["largest"] = max(sums["largest"], size)
            sums["pageable"] += pageable
    return found


def _waits(profile: Profile, ranges: list[Range], steady: Interval) -> dict[str, dict[str, int]]:
    """By the range in which the host waited, then by function."""
    calls: dict[int, list[Range]] = defaultdict(list)
    for one in ranges:
        calls[one.thread].append(one)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for begin, thread, function in profile.waits():
        if steady[0] <= begin < steady[1]:
            found[_range_at(calls[thread], begin) if thread in calls else ELSEWHERE][function] += 1
    return {where: dict(functions) for where, functions in found.items()}


def _range_at(calls: list[Range], at: int) -> str:
    """The name of the range of a thread, whose ranges follow each other, that something happened in."""
    index = bisect_right(calls, at, key=lambda r: r.begin) - 1
    return calls[index].name if index >= 0 and at < calls[index].end else BETWEEN


def verdict(numbers: dict[str, Any]) -> Iterator[str]:
    """The numbers as lines for people."""
    stages, steady, gpu = numbers["stages"], numbers["steady"], numbers["gpu"]
    if not stages:
        yield f"no NVTX ranges of the domain {DOMAIN}: is the package nvtx installed?"
        return
    yield "stage         calls   seconds   of the steady state"
    for name, stage in stages.items():
        yield f"{name:12} {stage['calls']:6} {stage['seconds']:9.3f} {stage['steady_share']:8.1%}"
    if not steady["batches"]:
        yield "fewer than three batches: there is no steady state; give it a longer video"
        return
    yield f"steady state: {steady['batches']} batches in {steady['seconds']:.3f} s"
    yield f"GPU: busy {gpu['busy_share']:.1%}, longest gap {1000 * gpu['longest_gap_seconds']:.2f} ms"
    for direction, sums in numbers["copies"].items():
        text = f"{direction}: {sums['bytes']:,} bytes in {sums['count']} copies, the largest of {sums['largest']:,}"
        yield text + f", {sums['pageable']} of them through pageable memory" * bool(sums["pageable"])
    for where, functions in numbers["waits"].items():
        calls = ", ".join(f"{count} {function}" for function, count in functions.items())
        yield f"the host waits for the GPU, {where}: {calls}"
    busiest = max(stages, key=lambda name: stages[name]["steady_share"])
    share = stages[busiest]["steady_share"]
    who = "the GPU, for which the host waits," if busiest == "wait" else busiest
    yield f"verdict: {who} is busiest with {share:.0%} of the time; {_own_waits(numbers)}"


def _own_waits(numbers: dict[str, Any]) -> str:
    own = sum(sum(f.values()) for where, f in numbers["waits"].items() if where != ELSEWHERE)
    if not own:
        return "the pipeline's threads never wait for the GPU"
    return f"the pipeline's threads wait for the GPU {own / numbers['steady']['batches']:.1f} times a batch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", type=Path, help="the SQLite file that nsys exported")
    parser.add_argument("--json", action="store_true", help="print the numbers instead")
    options = parser.parse_args()
    try:
        numbers = measure(Profile(options.profile))
    except sqlite3.Error as exc:
        sys.exit(f"{options.profile}: is no profile exported by nsys ({exc})")
    print(json.dumps(numbers, indent=2) if options.json else "\n".join(verdict(numbers)))


if __name__ == "__main__":
    main()
