"""The command line for the steps of one video by themselves: `segmentation-pieces plan|make|join`."""

import argparse
import json
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path

from segmentation.cli.arguments import config_from, parse
from segmentation.cli.console import checks_stdout, put_out, say
from segmentation.cli.inputs.batch import INCOMPLETE
from segmentation.cli.parser import Parser, new_parser, parse_all
from segmentation.cli.program import run_program
from segmentation.errors import ConfigError, OutputError
from segmentation.media.opening.probe import probe
from segmentation.models.model import load_model
from segmentation.options.access import access_of
from segmentation.pipeline.output_paths import check_names, check_output
from segmentation.scale.join import NoPieces, for_pieces, join
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.plan import plan_video
from segmentation.scale.span import Span
from segmentation.scale.worker import PieceSession

_SHOWN = 10  # numbers of pieces in a message


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code.

    0 done, 1 failed, 2 wrong usage, 3 not on this machine, 4 written but incomplete, 130 or 143 stopped by a signal.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    planning = given[:1] == ["plan"]
    options = parse(given[1:]) if planning else parse_all(make_parser(), given)
    step = _plan if planning else _make if options.step == "make" else _join
    return run_program("segmentation-pieces", partial(step, options), verbose=options.verbose)


def make_parser() -> Parser:
    """Returns the parser of all steps but `plan`, which takes the arguments of `segmentation`."""
    parser = new_parser(
        "segmentation-pieces",
        "plan INPUT -o OUTPUT [OPTION ...] | make OUTPUT K/N | join OUTPUT",
        "Cuts one video into pieces, makes them by any number of tasks that share a disk, and joins them.",
        [
            "segmentation-pieces plan in.mp4 -o out.mp4 --effect blur:40     prints the number of pieces",
            "segmentation-pieces make out.mp4 0/4                            the first quarter of them, of 0/4 to 3/4",
            "segmentation-pieces join out.mp4",
        ],
        "0 done, 1 failed, 2 wrong usage, 3 not on this machine, 4 written but incomplete, 130 or 143 stopped",
    )
    add = parser.add_argument
    add("step", choices=("plan", "make", "join"), help="plan takes the input and all options of segmentation")
    add("output", type=Path, metavar="OUTPUT", help="the file that plan has named with -o")
    add("task", nargs="?", type=_task, default=(0, 1), metavar="K/N", help="make: which of N tasks, from 0 (0/1: all)")
    add("-y", "--overwrite", action="store_true", help="join: replace an output that exists")
    add("--exact", action="store_true", help="join: refuse pieces of workers whose libraries or device differ")
    add("--json", action="store_true", help="join: print the report as JSON")
    add("-v", "--verbose", action="store_true", help="print assumptions and choices too")
    return parser


def _plan(options: argparse.Namespace) -> int:
    """Writes the plan beside the output, and prints the number of pieces."""
    config = config_from(options)
    if len(options.inputs) != 1 or options.output is None:
        raise ConfigError("plan: give one input, and the output with -o")
    check_output(options.output, config)
    target = Path(options.output)
    info = probe(options.inputs[0], access_of(config))
    check_names(info.source, target, config)
    try:
        pieces = for_pieces(config, info, target)
    except NoPieces as exc:
        raise ConfigError(f"output {target}: is not cut, since {exc}; run segmentation itself") from exc
    recurrent = config.masks is None and load_model(config, info).form.recurrent
    folder = PieceFolder.beside(target)
    plan = folder.begin(plan_video(info, target, pieces, recurrent=recurrent))
    folder.release()
    if plan.uncut:
        say(f"segmentation-pieces: {plan.source}: is not cut, since {plan.uncut}")
    put_out(str(len(plan.pieces)))
    return 0


def _make(options: argparse.Namespace) -> int:
    """Makes a task's share of the pieces, but for those that are there."""
    folder = PieceFolder.beside(options.output)
    plan = folder.plan()
    number, count = options.task
    total = len(plan.pieces)
    share = range(number * total // count, (number + 1) * total // count)
    done = folder.done(plan, share)
    left = [piece for piece in share if piece not in done]
    with PieceSession(plan.config) as session:
        worker = session.prepare()
        for _, group in groupby(enumerate(left), lambda one: one[1] - one[0]):  # neighbors
            numbers = [piece for _, piece in group]
            span = Span(plan, numbers[0], numbers[-1] + 1, lambda _: None)
            session.make(span, folder, worker, stop=threading.Event())
    return 0


def _join(options: argparse.Namespace) -> int:
    """Joins the pieces, and removes them."""
    folder = PieceFolder.beside(options.output)
    plan = folder.plan()
    folder.lock()
    try:
        missing = sorted(set(range(len(plan.pieces))) - folder.done(plan))
        if missing:
            shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
            raise OutputError(f"{options.output}: missing or damaged pieces: {shown}; run the same make again")
        paths = [folder.file(number) for number in range(len(plan.pieces))]
        report = join(plan, paths, options.output, overwrite=options.overwrite, exact=options.exact)
        folder.remove()
    finally:
        folder.release()
    if options.json:
        put_out(json.dumps(asdict(report)))
    say(f"{report.output}: {report.frames} frames")
    return 0 if report.complete else INCOMPLETE


def _task(text: str) -> tuple[int, int]:
    """Returns the numbers in `K/N`."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r}: give K/N with K from 0 to N - 1, such as 0/4")
    return int(found[1]), int(found[2])


if __name__ == "__main__":
    sys.exit(main())
