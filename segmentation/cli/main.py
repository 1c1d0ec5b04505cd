"""The command line: arguments become a `Config`, runs become lines and exit codes. Only `cli*.py` print or exit."""

import argparse
import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

import segmentation
from segmentation.cli.jobs import Job, effect_and_file, make_jobs
from segmentation.config import ACTIVATIONS, CODECS, STAGES, Config, seconds
from segmentation.effect import CHOICES
from segmentation.errors import ConfigError, OutputError, SegmentationError
from segmentation.gpu.discovery import machine
from segmentation.media.input import probe
from segmentation.model_types import TYPES
from segmentation.models.model import load_model
from segmentation.pipeline.plan import IMPLEMENTATIONS, make_plan
from segmentation.pipeline.run import Report, segment

_console = Console(stderr=True, highlight=False, emoji=False)  # names may hold what rich reads as emoji codes


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0 done, 1 failed, 2 wrong usage, 3 what was asked for is not on this machine, 129, 130 or 143 stopped by a signal.
    With several inputs, all are tried and the first failure gives the code.
    """
    # Libraries make 300,000 objects that stay: looked through each 700, as by default, they take a tenth of the start.
    gc.set_threshold(50_000)
    options = _parser().parse_args(arguments)
    level = logging.ERROR if options.quiet else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[_ConsoleHandler()], force=True)
    try:
        config = _config(options)
        if options.plan:
            _print_plan(config, options)
            return 0
        jobs = make_jobs(options.inputs, options.output, config)
    except (SegmentationError, OSError) as exc:
        return _fail(exc)

    codes = []
    with _signals() as (stop, received):
        for job in jobs:
            try:
                report = _run(job, stop, options)
                if options.json:
                    _print(json.dumps(asdict(report)))
            except (SegmentationError, OSError) as exc:
                codes.append(_fail(exc))
            except KeyboardInterrupt:  # the second signal
                pass
            else:
                codes.append(0)
            if received:
                return 128 + received[0]
    return next((code for code in codes if code), 0)


def _print_plan(config: Config, options: argparse.Namespace) -> None:
    """What would serve each stage, for the first input if one is given, and what there is to choose from."""
    info = None
    if options.inputs:
        job = make_jobs(options.inputs, options.output, config)[0]
        config, info = job.config, probe(job.source)
    model = load_model(config, info) if config.masks is None else None
    plan = make_plan(config, info, model=model)
    _print(json.dumps(plan.names()) if options.json else "\n".join([*machine(config), str(plan)]))


def _run(job: Job, stop: threading.Event, options: argparse.Namespace) -> Report:
    """One input, with a progress bar if somebody is watching."""
    name = job.source.rpartition("/")[2]
    with _progress(show=_console.is_terminal and not options.quiet) as bar:
        task = bar.add_task(name, total=None, fps=0.0)

        def advance(done: int, expected: int) -> None:
            bar.update(task, completed=done, total=max(done, expected) or None, fps=bar.tasks[task].speed or 0.0)

        with _stdout_for_results():
            report = segment(job.source, job.target, job.config, stop=stop, progress=advance)
    if not options.quiet:
        state = "stopped, " if stop.is_set() else ""
        files = ", ".join([report.output, *report.also])
        _say(f"{files}: {state}{report.frames} frames in {report.seconds:.1f} s ({report.fps:.1f} fps)")
    return report


@contextmanager
def _stdout_for_results() -> Iterator[None]:
    """GPU libraries print to the process's stdout, where only our JSON belongs: meanwhile it leads to stderr."""
    if sys.stdout is not None:
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
    """The first SIGINT, SIGTERM or SIGHUP sets the event, so that the file is finished; the second one interrupts at
    once. Who ignores that the terminal is closed, as under nohup, goes on."""
    stop = threading.Event()
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in numbers}
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
    """Log records as plain lines on stderr, above the progress bar if there is one; each line once, as what is to be
    said of an input is found anew for each of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = f"segmentation: {record.getMessage()}"
        if line not in self._said:
            self._said.add(line)
            _say(line)


def _say(line: str) -> None:
    with suppress(OSError):  # nobody listens, which does not make the video worse
        _console.print(line, markup=False, soft_wrap=True)


def _print(text: str) -> None:
    """Prints a result on stdout. Raises `OutputError`."""
    try:
        print(text, flush=True)
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries again when it ends
        raise OutputError(f"standard output: cannot be written ({exc.strerror})") from exc


def _fail(error: SegmentationError | OSError) -> int:
    if isinstance(error, SegmentationError):
        _say(f"segmentation: error: {error}")
        return error.exit_code
    _say(f"segmentation: error: {error.filename or 'a file'}: {error.strerror or error}")
    return 1


def _config(options: argparse.Namespace) -> Config:
    given = {name: value for name, value in vars(options).items() if value is not None}
    given["also"] = [effect_and_file(text) for text in given.pop("also", [])]
    return Config(**{name: value for name, value in given.items() if name in Config.__dataclass_fields__})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m segmentation",
        description="Blurs, replaces or masks everything in a video but the people (or other classes) in it.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not on this machine, 129, 130, 143 stopped by a signal.",
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
    what.add_argument("--effect", help=f"{CHOICES} (default: blur:25)")
    what.add_argument(
        "--also", action="append", metavar="EFFECT:FILE", help="another output of the same run, such as mask:mask.mkv"
    )
    what.add_argument("--invert", action="store_true", help="the other way round: the effect is on the people")
    what.add_argument("--threshold", type=float, metavar="T", help="of the mask, where the edge lies (default: 0.5)")
    what.add_argument(
        "--feather", type=float, metavar="PX", help="width of the edge in a 1080-line picture (default: 0)"
    )
    what.add_argument("--classes", type=name_list, metavar="NAME,...", help="classes to keep (default: person)")
    what.add_argument(
        "--smooth",
        type=float,
        metavar="0..1",
        help="how much masks are smooth_masks over time (default: 0.5; 0: not at all)",
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
    how.add_argument("--codec", choices=CODECS, help="default: h264 (av1 in .webm)")
    how.add_argument(
        "--quality", type=int, metavar="N", help="lower is better: h264 16, hevc 11, av1 8; 0: lossless (mjpeg: 1-100)"
    )
    how.add_argument("--preset", metavar="NAME", help="speed against size: h264 ultrafast to placebo, av1 0 to 13")
    how.add_argument("--verify", action="store_true", help="check the output afterwards, against the input")
    how.add_argument("--results", metavar="FILE|FOLDER", help="also write what was found in each frame, as JSON lines")
    how.add_argument("--rle", action="store_true", help="with the masks in it, as COCO's run lengths")
    how.add_argument("--save-masks", metavar="FILE.mkv|FOLDER", help="also write the masks as a video, for --masks")

    model = parser.add_argument_group("model")
    model.add_argument(
        "--masks", metavar="FILE.mkv|FOLDER", help="in place of a model: what --save-masks has written of this input"
    )
    model.add_argument("--model", metavar="NAME|FILE.onnx|FILE.engine", help="default: person, which is built in")
    model.add_argument("--labels", type=name_list, metavar="NAME,...", help="one for each output channel")
    model.add_argument("--mean", type=number_list, metavar="R,G,B", help="subtracted from RGB in 0..1")
    model.add_argument("--std", type=number_list, metavar="R,G,B", help="what the difference is divided by")
    model.add_argument("--channel-order", choices=("rgb", "bgr"))
    model.add_argument("--input-size", type=picture_size, metavar="HxW", help="for models with a dynamic size")
    model.add_argument("--activation", choices=ACTIVATIONS, help="still to be applied to the output")
    add_form(model)

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


def add_form(group: Any) -> None:
    """Adds the options that say what a network's inputs and outputs are."""
    group.add_argument("--model-type", choices=tuple(TYPES), help="where the file says nothing, as these networks")
    group.add_argument("--model-output", metavar="NAME", help="the output that is the mask")
    group.add_argument(
        "--model-input",
        dest="model_inputs",
        action="append",
        metavar="NAME=VALUE",
        help="what an input besides the picture holds, such as downsample_ratio=0.25; may be repeated",
    )


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
