"""Measures the pipeline on one GPU against what the machine can do, and against what people use instead.

    python tools/benchmarks/benchmark_gpu.py VIDEO --work DIR
    python tools/benchmarks/benchmark_gpu.py VIDEO --work DIR --only decode,null --repeats 1

Everything runs in a process of its own, after a warm-up in it. What is repeated takes turns, each round in the opposite
order, for as long as `--minutes` allow. Results are written after each case. For Linux; times are those of files in
`--work`, so a folder in memory keeps the disk out of them.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from importlib import metadata
from pathlib import Path

from benchmark import Result, spread, summary
from clips import make_clip
from cold_start import FRAMES, cold_start
from gpu_cases import MARKS, PARTS, Case, cases
from gpu_targets import derive, judge, table
from processes import in_process

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

ENCODED = 1200  # frames of the clips that are encoded; longer ones repeat them
RATE = 30  # frames a second
FCN_SIZE = (224, 224)  # height, width
PACKAGES = ("torch", "torchvision", "cvcuda-cu13", "PyNvVideoCodec", "cuda-core", "onnx2torch", "nvtx")


def cold_starts(clip: Path, folder: Path, repeats: int) -> Result:
    """Seconds from the start of a process until its first `FRAMES` frames are in a finished file, and until the
    process has ended. Caches are warm."""
    runs = [cold_start(ROOT, "person", clip.resolve(), folder) for _ in range(1 + repeats)]
    finished, ended = zip(*runs[1:], strict=True)
    return {"frames": FRAMES, "seconds": spread(finished), "seconds_to_end": spread(ended)}


class Runs:
    """Repeated results by name, clip and model, and what went wrong."""

    def __init__(self, folder: Path) -> None:
        self.errors: list[str] = []
        self._folder = folder
        self._results: dict[tuple[str, str, str], list[Result]] = defaultdict(list)

    def take(self, case: Case) -> None:
        """Measures once more. What fails is noted and does not keep others from being measured."""
        begin = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                for name, result in in_process("gpu_runs", "watched", case.work, Path(folder), *case.arguments).items():
                    self._results[name, case.clip, case.model].append(result)
                    print(f"  {case}: {name} {result['fps']:.1f} fps", file=sys.stderr, flush=True)
        except RuntimeError as exc:
            self.fail(str(case), exc)
        print(f"  {case} took {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)

    def fail(self, what: str, error: RuntimeError) -> None:
        self.errors.append(f"{what}: {str(error).strip().splitlines()[-1]}")
        print(f"  {what}: {error}", file=sys.stderr, flush=True)

    def rows(self) -> list[Result]:
        return [
            {"name": name, "clip": clip, "model": model, **gpu_summary(results)}
            for (name, clip, model), results in self._results.items()
        ]


def gpu_summary(runs: list[Result]) -> Result:
    """`summary` with what there is on a GPU."""
    last = runs[-1]
    return {
        **summary(runs),
        "runs": len(runs),
        "seconds": spread(run["seconds"] for run in runs),
        "gpu_memory_mib": round(max(run["gpu"] for run in runs), 1),
        **({"steady_fps": spread(run["steady"] for run in runs)} if "steady" in last else {}),
        **{name: last[name] for name in ("plan", "held") if name in last},
    }


def gpu() -> Result:
    """The GPU and its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader", "--id=0"]
    try:
        names = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    except (OSError, subprocess.CalledProcessError):
        names = ["unknown"] * 3
    return dict(zip(("gpu", "driver", "gpu_memory"), names, strict=True))


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measures the pipeline on one GPU.")
    add = parser.add_argument
    add("video", help="what the clips are made from")
    add("--frames", type=int, default=4800, metavar="N", help="of a run with nothing encoded (default: 4800)")
    add("--gops", type=_numbers, default=[30, 250], metavar="N,...", help="keyframe distances (default: 30,250)")
    add("--size", type=lambda text: tuple(map(int, text.split("x"))), default=(1920, 1080), metavar="WxH")
    add("--models", type=lambda text: text.split(","), default=["person", "fcn_resnet50"], metavar="NAME|FILE,...")
    add("--only", type=_parts, default=PARTS, metavar="PART,...", help=f"of {', '.join(PARTS)}")
    add("--full", action="store_true", help="every encoder with every clip and model")
    add("--repeats", type=int, default=3, help="rounds, at the most (default: 3)")
    add("--minutes", type=float, default=6, help="no round begins that would end later (default: 6)")
    add("--work", type=Path, metavar="DIR", help="keeps clips and models there (default: a temporary folder)")
    add("--revision", help="git's, where this is no checkout")
    add("-o", "--output", type=Path, help="default: tools/lab/results/gpu-DATE.json")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    return chosen


def measure(options: argparse.Namespace, folder: Path, results: Result, output: Path) -> None:
    """Fills `results` and writes them to `output`, more complete each time."""
    begin = time.monotonic()
    shape = {"size": options.size, "folder": folder, "rate": RATE, "encode": ENCODED}
    clips = {f"gop{gop}": make_clip(options.video, options.frames, gop=gop, **shape) for gop in options.gops}
    long = next(iter(clips.values()))
    if "flat" in options.only:
        # Longer than the last mark, so that there all is still at work.
        long = make_clip(options.video, max(MARKS) + ENCODED, gop=options.gops[0], **shape)
    runs = Runs(folder)
    models = {}
    for model in options.models:
        try:
            models[Path(model).stem] = exported(model, folder)
        except RuntimeError as exc:
            runs.fail(f"export of {model}", exc)
    if not models:
        raise SystemExit(f"no model is left to measure with: {'; '.join(runs.errors)}")

    def save() -> None:
        results["runs"] = runs.rows()
        results["derived"] = derive(results["runs"])
        results["targets"] = judge(results["derived"], results.get("cold_start"))
        results["errors"] = runs.errors
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")

    if "cold" in options.only:
        try:
            results["cold_start"] = cold_starts(next(iter(clips.values())), folder, options.repeats)
        except RuntimeError as exc:
            runs.fail("cold start", exc)
    chosen = [
        case for case in cases(clips, models, options.frames, full=options.full, long=long) if case.part in options.only
    ]
    for case in chosen:
        if case.once:
            runs.take(case)
    save()
    repeated, longest = [case for case in chosen if not case.once], 0.0
    for i in range(options.repeats):
        started = time.monotonic()
        if i and started + longest > begin + 60 * options.minutes:
            break
        for case in repeated[:: -1 if i % 2 else 1]:
            runs.take(case)
            save()
        longest = max(longest, time.monotonic() - started)


def exported(model: str, folder: Path) -> str:
    """What the pipeline takes for `model`: torchvision's FCN becomes an ONNX file, once."""
    if model != "fcn_resnet50":
        return model
    target = folder / f"{model}-{FCN_SIZE[0]}x{FCN_SIZE[1]}-random.onnx"
    if not target.exists():
        in_process("gpu_runs", "export", target, model, FCN_SIZE)
    return str(target)


def main() -> None:
    options = parser().parse_args()
    results = circumstances("benchmarks/benchmark_gpu.py", sys.argv[1:])
    results["hardware"] |= gpu()
    results["versions"] |= versions()
    if options.revision:
        results["versions"]["git"] = options.revision
    source = re.sub(".*/", "", options.video)
    results["clip"] = {
        "source": source, "width": options.size[0], "height": options.size[1], "rate": RATE, "codec": "h264",
        "b_frames": 3, "closed_gops": options.gops, "encoded_once": ENCODED, "frames": options.frames,
    }  # fmt: skip
    output = options.output or ROOT / "tools" / "lab" / "results" / f"gpu-{results['date'][:10]}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(options, folder.absolute(), results, output)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
