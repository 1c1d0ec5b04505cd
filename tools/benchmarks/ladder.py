"""Measures a ladder: the baseline, then one stage after the other moved to its optimized form, and what others do.

    python tools/benchmarks/ladder.py VIDEO --work DIR
    python tools/benchmarks/ladder.py VIDEO --work DIR --only ladder,lengths --minutes 6 -o FILE.json
    python tools/benchmarks/ladder.py VIDEO --work DIR --only ladder --rung decode=nvdec --rung infer=torch-fp16

And the lengths of files, codecs, sizes, sizes of batches, each stage alone, and what happens when. On a GPU if there is
one, else on the CPU. Every run is a process of its own, after a warm-up in it; rounds take turns, each in the opposite
order. Each figure is written at once; `--resume` goes on where a run was ended. For Linux.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmark_gpu import gpu, versions
from clips import make_clip
from ladder_cases import PARTS, SIZES, Case, Machine
from processes import LIMIT, in_process

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

ENCODED, RATE, GOP = 300, 30, 30  # frames of a clip that are encoded, later ones repeat them; frames a second; frames
Result = dict[str, Any]


class Sheet:
    """The figures of a file: a row for each part, clip and name, with what each run measured."""

    def __init__(self, output: Path, head: Result, *, resume: bool) -> None:
        self._output = output
        self._results = {**head, "rows": [], "errors": []}
        if resume and output.exists():
            before = json.loads(output.read_text(encoding="utf-8"))
            if before["versions"] != head["versions"]:
                raise SystemExit(f"{output}: was measured with other versions; leave out --resume or name another file")
            self._results = before

    def runs(self, case: Case) -> int:
        """How often the case has been measured. One that gave several results, by the first."""
        rows = [row for row in self._results["rows"] if row["case"] == str(case)]
        return len(rows[0]["runs"]) if rows else 0

    def add(self, case: Case, results: dict[str, Result]) -> None:
        """Writes one run's figures."""
        for name, result in results.items():
            self._row(case, name, result)["runs"].append(_figures(result))
        self._write()

    def fail(self, case: Case, error: RuntimeError) -> None:
        """Writes that the case could not be measured."""
        self._results["errors"].append(f"{case}: {str(error).strip().splitlines()[-1]}")
        self._write()

    def _row(self, case: Case, name: str, result: Result) -> Result:
        for row in self._results["rows"]:
            if (row["case"], row["name"]) == (str(case), name):
                return row
        about = {key: result[key] for key in ("plan", "timeline") if key in result}
        clip = {"codec": case.clip.codec, "size": case.clip.size, "frames": case.clip.frames}
        row = {"case": str(case), "part": case.part, "name": name, **clip, **about, "runs": []}
        self._results["rows"].append(row)
        return row

    def _write(self) -> None:
        part = self._output.with_suffix(".part")
        part.write_text(json.dumps(self._results, indent=1) + "\n", encoding="utf-8")
        part.replace(self._output)


def _figures(result: Result) -> Result:
    """A run's figures, rounded, under names that say their units."""
    names = {
        "seconds": "seconds", "fps": "fps", "steady": "steady_fps", "cpu": "cpu_seconds_per_1000_frames",
        "peak": "peak_memory_mib", "gpu": "gpu_memory_mib",
    }  # fmt: skip
    figures = {long: round(result[short], 3) for short, long in names.items() if short in result}
    return {"frames": result["frames"], **figures, **({"stages": result["busy"]} if "busy" in result else {})}


def measure(cases: list[Case], sheet: Sheet, video: str, folder: Path, repeats: int, minutes: float) -> None:
    """Measures each case, `repeats` times at the most; where there is no time for all, what fits."""
    begin = time.monotonic()
    took: dict[str, float] = {}
    for i in range(repeats):
        for case in cases[:: -1 if i % 2 else 1]:
            if sheet.runs(case) > i or (case.once and i):
                continue
            started = time.monotonic()
            if started + took.get(str(case), 0) > begin + 60 * minutes:
                print(f"  no time is left for {case}", file=sys.stderr, flush=True)
                continue
            try:
                size = SIZES[case.clip.size]
                how = {"codec": case.clip.codec, "rate": RATE, "gop": GOP, "encode": ENCODED}
                clip = make_clip(video, case.clip.frames, size, folder, **how)
                with tempfile.TemporaryDirectory(dir=folder) as outputs:
                    results = in_process("ladder_runs", "watched", case.work, Path(outputs), clip, *case.arguments)
                sheet.add(case, results)
                speeds = ", ".join(f"{name} {result['fps']:.1f} fps" for name, result in results.items())
            except RuntimeError as exc:
                sheet.fail(case, exc)
                speeds = str(exc)
            took[str(case)] = time.monotonic() - started
            print(f"  {case}: {speeds}; took {took[str(case)]:.1f} s", file=sys.stderr, flush=True)


def chosen(machine: Machine, options: argparse.Namespace) -> list[Case]:
    """The cases of the parts that are asked for, in the order of `PARTS`."""
    by_part: dict[str, Iterable[Case]] = {
        "ladder": machine.ladder(options.frames, options.rung),
        "lengths": machine.lengths(options.lengths),
        "codecs": machine.codecs(options.frames),
        "sizes": machine.sizes(options.frames),
        "batches": machine.batches(options.frames, options.batches),
        "alone": machine.alone(max(options.lengths)),
        "trace": machine.trace(2 * options.frames),  # so that its middle is far from the beginning
    }
    return [case for part in PARTS if part in options.only for case in by_part[part]]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measures what each stage gains when it is moved to its optimized form."
    )
    add = parser.add_argument
    numbers: dict[str, Any] = {"type": lambda text: [int(n) for n in text.split(",")], "metavar": "N,..."}
    add("video", help="what the clips are made from")
    add("--only", type=_parts, default=PARTS, metavar="PART,...", help=f"of {', '.join(PARTS)}")
    add("--frames", type=int, default=960, metavar="N", help="of a clip, but for lengths (default: 960)")
    add("--lengths", **numbers, default=[960, 5520, 9300], help="of files, in frames (default: 960,5520,9300)")
    add("--batches", **numbers, default=[1, 2, 4, 8, 16, 32], help="sizes of batches (default: 1,2,4,8,16,32)")
    add("--preset", default="ultrafast", help="of x264 (default: ultrafast)")
    add("--rung", type=_changes, action="append", default=[], metavar="OPTION=VALUE,...",
        help="one more rung: the baseline with stages, or other options of `Config`, of your choice")  # fmt: skip
    add("--repeats", type=int, default=3, help="rounds, at the most (default: 3)")
    add("--minutes", type=float, default=5, help=f"no run begins later; one takes {LIMIT} s at most (default: 5)")
    add("--work", type=Path, metavar="DIR", help="keeps clips there (default: a temporary folder)")
    add("--resume", action="store_true", help="go on with what is in the output already")
    add("--revision", help="git's, where this is no checkout")
    add("-o", "--output", type=Path, help="default: tools/lab/results/ladder-gpu-DATE.json, or -cpu-")
    return parser


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    return parts


def _changes(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals and value for _, equals, value in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: write OPTION=VALUE,..., such as decode=nvdec,infer=torch-fp16")
    return {name: value for name, _, value in pairs}


def main() -> None:
    options = parser().parse_args()
    plans = in_process("ladder_runs", "plans")
    machine = Machine(plans, options.preset)
    head = circumstances("benchmarks/ladder.py", sys.argv[1:])
    if machine.gpu:
        head["hardware"] |= gpu()
    head["versions"] |= versions()
    if options.revision:
        head["versions"]["git"] = options.revision
    head["clip"] = {"source": re.sub(".*/", "", options.video), "rate": RATE, "gop": GOP, "encoded_once": ENCODED}
    head["plans"], head["preset"] = plans, options.preset
    kind = "gpu" if machine.gpu else "cpu"
    output = options.output or ROOT / "tools" / "lab" / "results" / f"ladder-{kind}-{head['date'][:10]}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.work or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        sheet = Sheet(output, head, resume=options.resume)
        measure(chosen(machine, options), sheet, options.video, folder, options.repeats, options.minutes)


if __name__ == "__main__":
    main()
