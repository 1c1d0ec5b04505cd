"""The command line: arguments become a `Config`, runs become lines and exit codes. Only `cli*.py` print or exit."""

import argparse
import glob
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

import segmentation
from segmentation.capabilities import machine
from segmentation.config import QUALITY, STAGES, Config, seconds
from segmentation.errors import ConfigError, InputError, SegmentationError
from segmentation.pipeline import Report, default_output, segment
from segmentation.plan import IMPLEMENTATIONS, make_plan
from segmentation.source import is_url, probe

_VIDEO_SUFFIXES = frozenset(".mp4 .m4v .mov .mkv .webm .avi .ts .mts .m2ts .mpg .mpeg .flv .wmv .3gp .ogv".split())
_console = Console(stderr=True, highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0 done, 1 failed, 2 wrong usage, 3 what was asked for is not on this machine, 130 or 143 stopped by a signal. With
    several inputs, all are tried and the first failure gives the code.
    """
    options = _parser().parse_args(arguments)
    level = logging.ERROR if options.quiet else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[_ConsoleHandler()], force=True)
    try:
        config = _config(options)
        if options.plan:
            _print_plan(config, options)
            return 0
        jobs = _jobs(options.inputs, options.output, config)
    except SegmentationError as exc:
        return _fail(exc)

    codes = []
    with _signals() as (stop, received):
        for source, target in jobs:
            try:
                report = _run(source, target, _with_results(config, target, len(jobs)), stop, options)
            except SegmentationError as exc:
                codes.append(_fail(exc))
            except KeyboardInterrupt:  # the second signal
                pass
            else:
                codes.append(0)
                if options.json:
                    print(json.dumps(asdict(report)), flush=True)
            if received:
                return 128 + received[0]
    return next((code for code in codes if code), 0)


def _print_plan(config: Config, options: argparse.Namespace) -> None:
    """What would serve each stage, for the first input if one is given, and what there is to choose from."""
    plan = make_plan(config, probe(_expand(options.inputs[0])[0]) if options.inputs else None)
    print(json.dumps(plan.names()) if options.json else "\n".join([*machine(config), str(plan)]))


def _run(source: str, target: Path, config: Config, stop: threading.Event, options: argparse.Namespace) -> Report:
    """One input, with a progress bar if somebody is watching."""
    name = source.rpartition("/")[2]
    with _progress(show=_console.is_terminal and not options.quiet) as bar:
        task = bar.add_task(name, total=None, fps=0.0)

        def advance(done: int, expected: int) -> None:
            bar.update(task, completed=done, total=max(done, expected) or None, fps=bar.tasks[task].speed or 0.0)

        with _stdout_for_results():
            report = segment(source, target, config, stop=stop, progress=advance)
    if not options.quiet:
        state = "stopped, " if stop.is_set() else ""
        _say(f"{report.output}: {state}{report.frames} frames in {report.seconds:.1f} s ({report.fps:.1f} fps)")
    return report


def _jobs(inputs: Sequence[str], output: str | None, config: Config) -> list[tuple[str, Path]]:
    """Inputs, folders and patterns as (input, output) pairs, no output twice. Raises `ConfigError` or `InputError`."""
    if not inputs:
        raise ConfigError("no input: name a video, a folder, a pattern or an http(s) address; --help shows the options")
    sources = [source for text in inputs for source in _expand(text)]
    into_folder = output is not None and (len(sources) > 1 or output.endswith("/") or Path(output).is_dir())
    if output is not None and into_folder and not Path(output).is_dir():
        raise ConfigError(f"--output {output}: several inputs need a folder that exists")
    jobs: list[tuple[str, Path]] = []
    for source in sources:
        target = default_output(source, config)
        if output is not None:
            target = Path(output) / target.name if into_folder else Path(output)
        if any(target == other for _, other in jobs):
            raise ConfigError(f"{source}: another input has the output {target} too; process them apart with -o")
        others = [s for s in sources if s != source and not is_url(s)]
        if target.exists() and any(target.samefile(s) for s in others):
            raise ConfigError(f"{source}: its output {target} is an input too; name another with -o")
        jobs.append((source, target))
    if config.trace is not None and len(jobs) > 1:
        raise ConfigError(f"--trace {config.trace}: one file for one input; trace them apart")
    return jobs


def _with_results(config: Config, target: Path, count: int) -> Config:
    """The options of one of `count` inputs: in a folder, its results are named after its output."""
    if config.results is None or not (count > 1 or Path(config.results).is_dir()):
        return config
    if not Path(config.results).is_dir():
        raise ConfigError(f"--results {config.results}: several inputs need a folder that exists")
    return replace(config, results=Path(config.results) / f"{target.stem}.jsonl")


def _expand(text: str) -> list[str]:
    """A folder's videos, a pattern's matches, or the one file or address that `text` names."""
    path = Path(text)
    if is_url(text) or path.is_file():
        return [text]
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in _VIDEO_SUFFIXES)
    else:
        found = sorted(Path(p) for p in glob.glob(text)) if glob.has_magic(text) else []
        if not found and not glob.has_magic(text):
            raise InputError(f"{text}: no such file")
    # What an earlier run has put out is not an input of the next.
    videos = [str(p) for p in found if p.is_file() and not p.stem.endswith(".segmented") and not p.name.startswith(".")]
    if not videos:
        raise InputError(f"{text}: no videos there")
    return videos


@contextmanager
def _stdout_for_results() -> Iterator[None]:
    """GPU libraries print to the process's stdout, where only our JSON belongs: meanwhile it leads to stderr."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # closed by whoever started us
        yield
        return
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


@contextmanager
def _signals() -> Iterator[tuple[threading.Event, list[int]]]:
    """The first SIGINT or SIGTERM sets the event, so that the file is finished; the second one interrupts at once."""
    stop = threading.Event()
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop, received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _progress(*, show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[fps]:.1f} fps"),
        TimeRemainingColumn(),
        console=_console,
        disable=not show,
        transient=True,
    )


class _ConsoleHandler(logging.Handler):
    """Log records as plain lines on stderr, above the progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(f"segmentation: {record.getMessage()}")


def _say(line: str) -> None:
    _console.print(line, markup=False, soft_wrap=True)


def _fail(error: SegmentationError) -> int:
    _say(f"segmentation: error: {error}")
    return error.exit_code


def _config(options: argparse.Namespace) -> Config:
    fields = Config.__dataclass_fields__
    return Config(**{name: value for name, value in vars(options).items() if name in fields and value is not None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m segmentation",
        description="Blurs, replaces or masks everything in a video but the people (or other classes) in it.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not on this machine, 130 or 143 stopped by a signal.",
    )
    add = parser.add_argument
    add("inputs", nargs="*", metavar="INPUT", help="video files, folders of them, patterns, http(s) addresses")
    add("-o", "--output", help="output file, or a folder for several inputs (default: INPUT.segmented.mp4 beside it)")
    add("-y", "--overwrite", action="store_true", help="overwrite an existing output")
    add("-q", "--quiet", action="store_true", help="say nothing but errors")
    add("-v", "--verbose", action="store_true", help="say what is assumed and chosen")
    add("--trace", metavar="FILE", help="write what happened when, as a JSON for ui.perfetto.dev")
    add("--json", action="store_true", help="print a JSON report on stdout, a line for each input")
    add("--plan", action="store_true", help="print what would serve each stage, and why, and stop")
    add("--version", action="version", version=f"segmentation {segmentation.__version__}")

    what = parser.add_argument_group("what to do")
    what.add_argument("--effect", help="blur[:STRENGTH], color[:#RRGGBB], mask, overlay[:#RRGGBB] (default: blur:25)")
    what.add_argument("--classes", type=name_list, metavar="NAME,...", help="classes to keep (default: person)")
    what.add_argument(
        "--smooth",
        type=float,
        metavar="0..1",
        help="how much masks are steadied over time (default: 0.5; 0: not at all)",
    )
    what.add_argument(
        "--refine",
        action=argparse.BooleanOptionalAction,
        help="draw the mask's edge along the picture's (default: it is)",
    )
    what.add_argument("--start", type=_time, metavar="TIME", help="begin there: seconds or [HH:]MM:SS")
    what.add_argument("--duration", type=_time, metavar="TIME", help="stop after this long")
    what.add_argument("--max-frames", type=int, metavar="N", help="stop after N frames")
    what.add_argument("--strict", action="store_true", help="fail if frames of the input are damaged or missing")

    how = parser.add_argument_group("output")
    how.add_argument("--codec", choices=tuple(QUALITY), help="default: h264 (av1 in .webm)")
    how.add_argument(
        "--quality", type=int, metavar="N", help="lower is better: h264 20, hevc 22, av1 30; 0: lossless (mjpeg: 1-100)"
    )
    how.add_argument("--preset", metavar="NAME", help="speed against size: h264 ultrafast to placebo, av1 0 to 13")
    how.add_argument("--verify", action="store_true", help="check the output afterwards, against the input")
    how.add_argument("--results", metavar="FILE|FOLDER", help="also write what was found in each frame, as JSON lines")
    how.add_argument("--rle", action="store_true", help="with the masks in it, as COCO's run lengths")

    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="NAME|FILE.onnx|FILE.engine", help="default: person, which is built in")
    model.add_argument("--labels", type=name_list, metavar="NAME,...", help="one for each output channel")
    model.add_argument("--mean", type=number_list, metavar="R,G,B", help="subtracted from RGB in 0..1")
    model.add_argument("--std", type=number_list, metavar="R,G,B", help="what the difference is divided by")
    model.add_argument("--channel-order", choices=("rgb", "bgr"))
    model.add_argument("--input-size", type=picture_size, metavar="HxW", help="for models with a dynamic size")
    model.add_argument("--activation", choices=("none", "sigmoid", "softmax"), help="still to be applied to the output")

    where = parser.add_argument_group("what runs it")
    mode = where.add_mutually_exclusive_group()
    mode.add_argument("--baseline", dest="mode", action="store_const", const="baseline", help="the plain stages")
    mode.add_argument("--optimized", dest="mode", action="store_const", const="optimized", help="GPU stages, or fail")
    for stage in STAGES:
        where.add_argument(f"--{stage}", metavar="NAME", help=" or ".join(IMPLEMENTATIONS[stage]))
    where.add_argument("--batch-size", type=int, metavar="N", help="frames that are processed at a time")
    where.add_argument("--compile", action="store_true", default=None, help="torch.compile: slow to start, then faster")
    where.add_argument("--device", metavar="cpu|cuda:N")
    return parser


def name_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def number_list(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def picture_size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    return int(height), int(width)


def _time(text: str) -> float:
    try:
        return seconds(text)
    except ConfigError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
