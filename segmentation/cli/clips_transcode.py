"""The command `segmentation-clips transcode`: encodes many videos anew for training."""

import argparse
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

from segmentation.cli.console import fail, megabytes, put_out
from segmentation.cli.inputs.find_inputs import find_inputs
from segmentation.cli.parser import Parser, add_command
from segmentation.cli.progress import BatchProgress
from segmentation.cli.signals import finish_on_signals
from segmentation.clips.transcode import CODECS, Recipe, Transcoded, transcode
from segmentation.errors import ConfigError, InputError, SegmentationError, counted, reported
from segmentation.frames.picture_names import PICTURE_SUFFIXES
from segmentation.frames.source import Source
from segmentation.system.cores import core_count

_Job = tuple[str, Path]  # a source, and the file that is made of it


def add_transcode(commands: "argparse._SubParsersAction[Parser]") -> Parser:
    """Adds the command's parser."""
    parser = add_command(
        commands,
        "segmentation-clips transcode",
        "VIDEO|FOLDER ... FOLDER",
        "Encodes videos anew for training: upright, without sound, with keyframes close to each other.",
        [
            "segmentation-clips transcode videos/ small/ --size 960x540 --keyframes 16",
            "segmentation-clips transcode a.mp4 b.mkv small/ --codec hevc --crf 22 --rate 15",
        ],
        "0 done, 1 one or more failed, 2 wrong usage, 129, 130 or 143 stopped by a signal",
    )
    add = parser.add_argument
    add("sources", nargs="+", metavar="VIDEO|FOLDER", help="videos; folders with all that is below them")
    add("target", type=Path, metavar="FOLDER", help="where the videos are made, in folders as their sources are in")
    add("--keyframes", type=int, default=16, metavar="N", help="frames from a keyframe to the next (%(default)s)")
    add("--scenes", action="store_true", help="more keyframes, where scenes are cut; not with av1")
    add("--size", type=size, metavar="WxH", help="the largest picture, turned for upright videos; none is enlarged")
    add("--rate", type=_rate, metavar="N", help="frames a second, such as 15 or 30000/1001 (all frames of the source)")
    add("--codec", default="h264", metavar="NAME", help=f"{', '.join(CODECS)} (%(default)s)")
    defaults = ", ".join(f"{name} {codec.crf}" for name, codec in CODECS.items())
    add("--crf", type=int, metavar="N", help=f"the codec's quality, less is better ({defaults})")
    add("--jobs", type=int, metavar="N", help="videos at a time (half of the cores)")
    add("-y", "--overwrite", action="store_true", help="replace files that are made otherwise or of something else")
    add("--json", action="store_true", help="print the list of files as JSON")
    add("-q", "--quiet", action="store_true", help="show no progress")
    return parser


def size(text: str) -> tuple[int, int]:
    """Returns height and width of `224x128`, which is width and height."""
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r}: give width and height in pixels, such as 224x128")
    return int(height), int(width)


def _rate(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(f"{text!r}: give frames a second, such as 15 or 30000/1001") from None


def run_transcode(options: argparse.Namespace) -> int:
    """Encodes all videos, and prints what became of them; returns the exit code. Files that fail hold up no others."""
    names = ("codec", "keyframes", "scenes", "size", "rate", "crf")
    recipe = Recipe(**{name: getattr(options, name) for name in names})
    at_a_time = max(1, core_count() // 2) if options.jobs is None else options.jobs
    if at_a_time < 1:
        raise ConfigError(f"--jobs {at_a_time}: must be at least 1")
    jobs, failed = _jobs(options.sources, options.target, recipe)
    made: list[Transcoded] = []
    with finish_on_signals() as received:
        for outcome in _outcomes(jobs, recipe, options, at_a_time, received.stop):
            if isinstance(outcome, Transcoded):
                made.append(outcome)
            else:
                failed.append(outcome)
    for error in failed:
        fail(error, "segmentation-clips")
    made.sort(key=lambda one: one.source)
    put_out(json.dumps([asdict(one) for one in made], indent=2) if options.json else _summary(made, len(failed)))
    return received.exit_code or int(bool(failed))


def _jobs(sources: Sequence[str], folder: Path, recipe: Recipe) -> tuple[list[_Job], list[SegmentationError]]:
    """Returns what is to be made, and the errors of what can't be."""
    found = find_inputs(sources, recursive=True)
    failed: list[SegmentationError] = [error for _, error in found.missing]
    jobs: dict[Path, str] = {}
    for source in found.sources:
        path = Path(source.source.text)
        if path.suffix.lower() in PICTURE_SUFFIXES or path.resolve().is_relative_to(folder.resolve()):
            continue
        target = folder / source.folder / f"{path.stem}{recipe.suffix}"
        if target in jobs:
            failed.append(InputError(f"{path}: would become {target}, as does {jobs[target]}; rename one of them"))
        else:
            jobs[target] = str(path)
    if not jobs and not failed:
        failed.append(InputError(f"{' '.join(sources)}: no videos there that do not lie in {folder}"))
    return [(source, target) for target, source in jobs.items()], failed


def _outcomes(
    jobs: Sequence[_Job], recipe: Recipe, options: argparse.Namespace, at_a_time: int, stop: threading.Event
) -> Iterator[Transcoded | SegmentationError]:
    """Yields the end of each job as it comes."""
    threads = max(1, core_count() // at_a_time)
    with BatchProgress([Source.parse(source) for source, _ in jobs], quiet=options.quiet) as progress:

        def run(job: _Job) -> Transcoded | SegmentationError | None:
            if stop.is_set():
                return None
            source, target = job
            advance, end = progress.begin(Source.parse(source))
            about = {"overwrite": options.overwrite, "threads": threads, "advance": advance, "stop": stop}
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                return transcode(source, target, recipe, **about)
            except Exception as exc:
                return reported(exc, source)
            finally:
                end()

        with ThreadPoolExecutor(at_a_time, "transcode") as pool:
            for future in as_completed([pool.submit(run, job) for job in jobs]):
                if (outcome := future.result()) is not None:
                    yield outcome


def _summary(made: Sequence[Transcoded], failed: int) -> str:
    """Returns a line on all files."""
    skipped = sum(one.skipped for one in made)
    before, after = (megabytes(sum(getattr(one, name) for one in made)) for name in ("source_bytes", "bytes"))
    frames = counted(sum(one.frames for one in made), "frame")
    parts = [f"{counted(len(made), 'video')}, {frames}: {before} became {after}"]
    parts += [f"{skipped} of them were there already"] if skipped else []
    return ", ".join([*parts, f"{failed} failed"] if failed else parts)
