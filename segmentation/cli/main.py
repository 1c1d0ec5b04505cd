"""The command line `python -m segmentation`: processes all inputs on one session, returns the exit code."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, NoReturn

from segmentation.cli.arguments import config_from, parse
from segmentation.cli.console import (
    ConsoleHandler,
    Stdout,
    checks_stdout,
    fail,
    lines_as,
    results_on_stdout,
    say,
    threads_reported,
)
from segmentation.cli.inputs.batch import JobBatch
from segmentation.cli.inputs.find_inputs import FoundInput, Inputs, find_inputs, paced
from segmentation.cli.inputs.jobs import Job, leave_out_pictures, longest_first, make_jobs
from segmentation.cli.inputs.standard_streams import check_stdout
from segmentation.cli.plan import describe_plan, parallelism_of
from segmentation.cli.signals import finish_on_signals
from segmentation.errors import ConfigError, hide_secrets, reported
from segmentation.flow.threads import switch_rarely
from segmentation.frames.source import named
from segmentation.options.command import Arguments
from segmentation.options.config import Config
from segmentation.options.project import with_project
from segmentation.pipeline.output_paths import NAME
from segmentation.sessions.session import Segmenter
from segmentation.sessions.status_server import Control, StatusServer
from segmentation.system.atomic_file import discard_all
from segmentation.system.notify import notify

if TYPE_CHECKING:
    from segmentation.scale.coordinator import Workers


def command() -> NoReturn:
    """Runs the command line and ends the process, whatever its threads do."""
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is written; a late Ctrl-C would change the exit code
    others = any(thread is not threading.main_thread() for thread in threading.enumerate())
    if others or "openvino" in sys.modules:  # OpenVINO's own threads may still be there when its library is torn down
        discard_all()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError):
                stream.flush()
        os._exit(code)  # Python would wait for threads, and tear down libraries below those that read a silent camera
    gc.freeze()  # Python's last collections would visit all objects of the libraries, for a third of a second
    sys.exit(code)


@checks_stdout
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    0 done, 1 failed, 2 wrong usage, 3 not on this machine, 4 written but incomplete, 124 out of time, 129, 130 or 143
    stopped by a signal, 141 the reader of a pipe has closed it. With several inputs, all are tried and the first code
    that is not 0 counts.
    """
    gc.set_threshold(50_000)  # imports make many objects that stay: collecting every 700, the default, slows the start
    options = parse(arguments)
    level = logging.ERROR if options.quiet else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[ConsoleHandler()], force=True)
    with lines_as(options.log_format):
        try:
            with results_on_stdout() as stdout, threads_reported():
                return _run(options, stdout)
        except Exception as exc:
            return fail(reported(exc))


def _run(options: Arguments, stdout: Stdout) -> int:
    """Does what the arguments say; returns the exit code. Raises any error before the first input is begun."""
    config = with_project(config_from(options))
    if options.plan:
        stdout.print(describe_plan(config, options, _inputs(options, config) if options.inputs else Inputs()))
        return 0
    check_stdout(options.output, config, json=options.json)
    inputs = _inputs(options, config)
    jobs = make_jobs(inputs.sources, options.output, config)
    if options.workers:
        jobs = longest_first(jobs)
    if inputs.left_out and not options.quiet:
        say(f"segmentation: {inputs.left_out}")
    return _process(jobs, inputs, config, options, stdout)


def _process(
    jobs: Sequence[Job],
    inputs: Inputs,
    config: Config,
    options: Arguments,
    stdout: Stdout,
) -> int:
    """Processes all jobs, or those before a signal; returns the exit code. Raises `SegmentationError`."""
    codes: list[int] = []
    with finish_on_signals() as received, suppress(KeyboardInterrupt):
        parallelism = parallelism_of(options, config, jobs)
        if parallelism.batch_size is not None:
            switch_rarely()
        segmenter = _session(options, parallelism.applied(config), parallelism.processes)
        batch = JobBatch(
            segmenter=segmenter,
            received=received,
            stdout=stdout,
            json=options.json,
            at_a_time=parallelism.jobs
            if isinstance(segmenter, Segmenter) or options.jobs != "auto"
            else 2 * segmenter.size,  # workers need some that wait for them
            skip_existing=options.skip_existing,
            quiet=options.quiet,
            timeout=options.timeout,
            about=None if isinstance(segmenter, Segmenter) else segmenter.about,
        )
        try:
            with _status(options, config, batch):
                notify("READY=1")
                codes = batch(jobs, inputs.missing)
        finally:
            if not batch.threads.stuck:
                segmenter.close()
    return received.exit_code or next((code for code in codes if code), 0)


def _session(options: Arguments, config: Config, processes: int) -> Segmenter | Workers:
    """Returns what runs the jobs. Raises `SegmentationError`."""
    if processes != 1:
        if options.workers:
            raise ConfigError("--processes makes whole runs, and --workers pieces of them: choose one of the two")
        from segmentation.sessions.processes import Processes  # likewise

        return Processes(processes, config)
    if not options.workers:
        return Segmenter(config)
    from segmentation.scale.coordinator import Workers  # starts without workers need not wait for it

    return Workers(options.workers, config, exact=options.exact)


def _status(options: Arguments, config: Config, batch: JobBatch) -> AbstractContextManager[object]:
    """Returns the server of `--status`, which adds and removes live sources too. Raises `ConfigError`."""
    if options.status is None:
        return nullcontext()
    segmenter = batch.segmenter

    def add(name: str, address: str) -> None:
        source = named(name, address)
        if options.output is not None and NAME not in options.output and not os.path.isdir(options.output):
            raise ConfigError(f"output {hide_secrets(options.output)}: of several streams; write {NAME} in it")
        batch.add(make_jobs([FoundInput(source)], options.output, config)[0])

    if isinstance(segmenter, Segmenter):
        server = StatusServer(options.status, segmenter.streams, Control(add, batch.remove))
    else:
        server = StatusServer(options.status, segmenter.streams, workers=segmenter.status)
    if not options.quiet:
        say(f"segmentation: status on {server.url}")
    return server


def _inputs(options: Arguments, config: Config) -> Inputs:
    """Returns the inputs that the arguments stand for.

    Raises `ConfigError` if there are no arguments, and for pictures alone with an option that is of videos.
    """
    if not options.inputs:
        raise ConfigError(
            "no input: name a video, a picture, a folder, a pattern or an http(s) address; --help shows the options"
        )
    inputs = find_inputs(options.inputs, recursive=options.recursive)
    leave_out_pictures(inputs, config)
    if options.pace:
        inputs.sources = [paced(source) for source in inputs.sources]
    return inputs
