"""The command line `python -m segmentation`: processes one input after the other, returns the exit code."""

import argparse
import gc
import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from segmentation.cli.arguments import config_from, parse
from segmentation.cli.console import ConsoleHandler, fail, progress_bar, results_on_stdout, say
from segmentation.cli.jobs import Job, make_jobs
from segmentation.cli.signals import finish_on_signals
from segmentation.config import Config
from segmentation.errors import SegmentationError, hide_secrets
from segmentation.media.input import probe
from segmentation.models.model import load_model
from segmentation.pipeline.machine import machine
from segmentation.pipeline.plan import make_plan
from segmentation.pipeline.report import Report
from segmentation.pipeline.session import Segmenter


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0 done, 1 failed, 2 wrong usage, 3 not on this machine, 129, 130 or 143 stopped by a signal. With several inputs,
    all are tried and the first failure gives the code.
    """
    gc.set_threshold(50_000)  # imports make many objects that stay: collecting every 700, the default, slows the start
    options = parse(arguments)
    level = logging.ERROR if options.quiet else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[ConsoleHandler()], force=True)
    with results_on_stdout() as print_result:
        try:
            config = config_from(options)
            if options.plan:
                print_result(_plan(config, options))
                return 0
            jobs = make_jobs(options.inputs, options.output, config)
        except (SegmentationError, OSError) as exc:
            return fail(exc)
        return _process(jobs, config, options, print_result)


def _process(
    jobs: Sequence[Job], config: Config, options: argparse.Namespace, print_result: Callable[[str], None]
) -> int:
    """Processes all jobs, or those before a signal; returns the exit code."""
    codes = []
    with finish_on_signals() as received, suppress(KeyboardInterrupt), Segmenter(config) as segmenter:
        for job in jobs:
            try:
                report = _run(segmenter, job, received.stop, quiet=options.quiet)
                if options.json:
                    print_result(json.dumps(asdict(report)))
                codes.append(0)
            except (SegmentationError, OSError) as exc:
                codes.append(fail(exc))
            if received.numbers:
                break
    return received.exit_code or next((code for code in codes if code), 0)


def _run(segmenter: Segmenter, job: Job, stop: threading.Event, *, quiet: bool) -> Report:
    """Processes one input, with a progress bar and a line at the end."""
    with progress_bar(hide_secrets(job.source).rpartition("/")[2], quiet=quiet) as advance:
        report = segmenter.run(job.source, job.target, stop=stop, progress=advance, **job.options)
    if not quiet:
        files = ", ".join([report.output, *report.also])
        state = "stopped, " if stop.is_set() else ""
        say(f"{files}: {state}{report.frames} frames in {report.seconds:.1f} s ({report.fps:.1f} fps)")
    return report


def _plan(config: Config, options: argparse.Namespace) -> str:
    """Returns the implementation of each stage, for the first input if one is given, as text or as JSON."""
    info = None
    if options.inputs:
        job = make_jobs(options.inputs, options.output, config)[0]
        config, info = replace(config, **job.options), probe(job.source)
    model = load_model(config, info) if config.masks is None else None
    plan = make_plan(config, info, model=model)
    return json.dumps(plan.names()) if options.json else "\n".join([*machine(config), str(plan)])
