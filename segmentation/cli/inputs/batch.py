"""A command's inputs, one after the other or several at a time, and what is said about each."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from segmentation.cli.console import Stdout, fail, megabytes, say
from segmentation.cli.inputs.jobs import Job, files_of
from segmentation.cli.inputs.standard_streams import STANDARD, video_in, video_out
from segmentation.cli.progress import BatchProgress
from segmentation.cli.signals import Received
from segmentation.errors import ConfigError, OutputExists, SegmentationError, Stopped, counted, reported
from segmentation.frames.source import Source
from segmentation.options.config import Config
from segmentation.pipeline.report import Report
from segmentation.sessions.input_threads import InputThreads
from segmentation.sessions.session import Segmenter

if TYPE_CHECKING:
    from segmentation.scale.coordinator import Workers

log = logging.getLogger(__name__)

_POLL = 0.1  # seconds: signals, and inputs that take too long, are seen this late
_NAMED = 4  # files of an input in a line
INCOMPLETE = 4  # exit code of a run that wrote its files, but has lost more than 1 % of the frames or a part of them


class OutOfTime(SegmentationError):
    """An input took longer than `--timeout`."""

    exit_code = 124  # as of timeout(1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the end of one input: a report, an error, or neither if it was skipped."""

    source: Source
    target: Path | None = None
    report: Report | None = None
    error: SegmentationError | None = None
    stopped: bool = False  # with a report of the frames so far, or with `Stopped`

    @property
    def skipped(self) -> bool:
        """Whether the input was not begun, because its files exist."""
        return self.report is None and self.error is None

    def as_json(self) -> str:
        """Returns the line of `--json`."""
        if self.report is not None:
            return json.dumps(asdict(self.report))
        if self.stopped:
            return json.dumps({"input": self.source.label, "stopped": True, "reason": str(self.error)})
        if self.error is not None:
            about = {"input": self.source.label, "error": str(self.error), "exit_code": self.error.exit_code}
            return json.dumps(about)
        output = None if self.target is None else str(self.target)
        return json.dumps({"input": self.source.label, "output": output, "skipped": True})


@dataclass(slots=True, kw_only=True)
class JobBatch:
    """Runs the jobs of a command on one session. Live sources may be added and removed meanwhile."""

    segmenter: Segmenter | Workers
    received: Received  # signals; the first ends the runs under way, with playable files
    stdout: Stdout
    json: bool = False
    at_a_time: int = 1
    skip_existing: bool = False
    quiet: bool = False
    timeout: float | None = None  # seconds for each input
    about: Callable[[], str] | None = None  # a few words for the progress bar
    announced: threading.Event = field(default_factory=threading.Event)
    threads: InputThreads[Outcome] = field(default_factory=InputThreads)
    _waiting: deque[Job] = field(default_factory=deque)
    _made: list[Path] = field(default_factory=list)  # folders, of which those that stay empty are removed at the end
    _count: int = 0  # of all jobs so far
    _progress: BatchProgress | None = None  # while the jobs are under way

    def __call__(self, jobs: Sequence[Job], missing: Sequence[tuple[Source, SegmentationError]]) -> list[int]:
        """Runs all jobs, or those before `stop`; returns their exit codes, those of `missing` inputs first."""
        begin = time.monotonic()
        outcomes: list[Outcome] = []
        codes: list[int] = []
        self._waiting += jobs
        self._count = len(jobs) + len(missing)
        with BatchProgress([job.source for job in jobs], quiet=self.quiet, about=self.about) as self._progress:
            try:
                for outcome in self._outcomes(missing, self._progress):
                    outcomes.append(outcome)
                    codes.append(self._tell(outcome))
            finally:
                self.threads.interrupt()
                for folder in sorted(self._made, reverse=True):  # what lies in a folder comes first
                    with suppress(OSError):  # it is in use
                        folder.rmdir()
        skipped = any(outcome.skipped for outcome in outcomes)
        if (self._count > 1 or skipped) and not self.quiet:
            self._summarize(outcomes, time.monotonic() - begin)
        return codes

    def add(self, job: Job) -> None:
        """Begins a live source beside those under way. Raises `ConfigError` if one of them has its name."""
        name = job.source.label
        if any(monitor.name == name and not monitor.ended for monitor in self.segmenter.streams.monitors):
            raise ConfigError(f"{name}: is under way already; remove it first, or give another name")
        if self._progress is None or self.received.stop.is_set():
            raise ConfigError(f"{name}: the command is ending")
        self._progress.add(job.source)
        self.at_a_time += 1
        self._count += 1
        self._waiting.append(job)

    def remove(self, name: str) -> None:
        """Ends a live source with complete files, without waiting for that. Raises `ConfigError`."""
        for stream in self.threads.named(name):
            stream.stop.set()

    def _outcomes(
        self, missing: Sequence[tuple[Source, SegmentationError]], progress: BatchProgress
    ) -> Iterator[Outcome]:
        """Yields the end of each input as it comes."""
        yield from (Outcome(source, error=error) for source, error in missing)
        alone = len(self._waiting) == 1
        while True:
            yield from self._begin_jobs(progress, alone=alone)
            if not len(self.threads):
                return
            outcome = self.threads.next(_POLL)
            self._pass_stop_on()  # before the end that a signal brings
            if outcome is not None:
                yield outcome
            if self.timeout is None:
                continue
            for late in self.threads.interrupt(self.timeout):
                text = f"{late.source.label}: was ended after {self.timeout:g} s (--timeout); nothing was written"
                if self.threads.stuck:
                    self._waiting.clear()
                yield Outcome(late.source, error=OutOfTime(text))

    def _begin_jobs(self, progress: BatchProgress, *, alone: bool) -> Iterator[Outcome]:
        """Begins as many of the waiting jobs as may be under way. Yields the end of one that has no thread."""
        while self._waiting and len(self.threads) < self.at_a_time and not self.received.stop.is_set():
            job = self._waiting.popleft()

            def run(stop: threading.Event, job: Job = job) -> Outcome:
                try:
                    return self._run(job, progress, stop, alone=alone)
                except Exception as exc:
                    return _failed(job, exc, alone=alone)

            try:
                self.threads.begin(job.source, run)
            except RuntimeError as exc:  # no thread can be started before another one has ended
                if len(self.threads):
                    self._waiting.appendleft(job)
                    return
                yield _failed(job, exc, alone=alone)

    def _pass_stop_on(self) -> None:
        """Ends all jobs after a signal, and says so, once."""
        if self.received.stop.is_set():
            self.threads.stop()
        if self.received.stop.is_set() and not self.announced.is_set() and not self.quiet:
            self.announced.set()
            say(f"segmentation: stopping with the frames so far; {self.received.again} ends at once and leaves nothing")

    def _run(self, job: Job, progress: BatchProgress, stop: threading.Event, *, alone: bool) -> Outcome:
        """Runs one job, unless its files exist and are to be skipped. Raises any error of the run."""
        if self.skip_existing and job.done:
            progress.skip(job.source)
            return Outcome(job.source, target=job.target)
        advance, end = progress.begin(job.source)
        # Fragments of files that exist already have names of their own.
        before = {path for path in job.written if files_of(path)}
        try:
            self._made += job.make_folders()
            source = video_in(job.source.text)
            target = job.address or (job.target and video_out(job.target, self.segmenter.config, self.stdout))
            options = job.options
            if str(options.get("results")) == STANDARD:
                options = options | {"results": self.stdout.open_file}
            report = self.segmenter.run(source, target, stop=stop, progress=advance, **options)
            stopped = stop.is_set() and not report.complete
            if stopped and (self.skip_existing or not alone):
                report = _as_fragment(report, [path for path in job.written if path not in before])
            return Outcome(job.source, report=report, stopped=stopped)
        finally:
            end()

    def _tell(self, outcome: Outcome) -> int:
        """Prints what is to be said about an input; returns its exit code."""
        code = 0
        report = outcome.report
        if outcome.error is not None and outcome.stopped:
            if not self.quiet:
                say(str(outcome.error))
        elif outcome.error is not None:
            code = fail(outcome.error)
        elif report is not None:
            code = 0 if report.complete or outcome.stopped else INCOMPLETE
            files = _named(_files(report)) or report.input
            config = self.segmenter.config
            incomplete = "incomplete or doubtful, " if config.strict and report.doubtful else "incomplete, "
            state = "stopped, " if outcome.stopped else incomplete if code else ""
            if not self.quiet:
                done = f"{counted(report.frames, 'frame')} in {report.seconds:.1f} s ({report.fps:.1f} fps)"
                say(f"{files}: {state}{done}{_notes(outcome.source, report, config)}{_sizes(outcome.source, report)}")
                for place, numbers in report.counts.items():
                    say(f"{report.input}: {place}: {', '.join(f'{what} {count}' for what, count in numbers.items())}")
        else:
            there = outcome.target or f"the results of {outcome.source.label}"
            log.info("%s: exists already, skipped", there)
        if self.json:
            try:
                self.stdout.print(outcome.as_json())
            except SegmentationError as exc:
                return code or fail(exc)
        return code

    def _summarize(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Says how many inputs are done, skipped and failed, and why those failed."""
        reports = [outcome.report for outcome in outcomes if outcome.report is not None]
        failed = [outcome.error for outcome in outcomes if outcome.error is not None and not outcome.stopped]
        counts = {
            "done": sum(not outcome.stopped for outcome in outcomes if outcome.report is not None),
            "stopped": sum(outcome.stopped for outcome in outcomes),
            "skipped": sum(outcome.skipped for outcome in outcomes),
            "failed": len(failed),
            "not begun": self._count - len(outcomes),
        }
        frames = sum(report.frames for report in reports)
        size = sum(_size(path) for report in reports for path in _files(report))
        parts = ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "done")
        speed = f"{counted(frames, 'frame')} in {seconds:.1f} s ({frames / seconds:.1f} fps)"
        say(f"{parts}: {speed}, {megabytes(size)}")
        for report in reports:
            if not report.found and report.unknown < report.frames:
                say(f"nothing found: {report.input}")
        for error in failed:
            say(f"failed: {error}", logging.ERROR)


def _failed(job: Job, exc: Exception, *, alone: bool) -> Outcome:
    """Returns the end of a job that has failed. Among others, the message names the input."""
    label = job.source.label
    error = reported(exc, label)
    if isinstance(error, OutputExists):
        error = OutputExists(f"{error}, or --skip-existing to leave out inputs whose outputs exist")
    if not (alone or any(name in str(error) for name in (label, *map(str, job.written)))):
        error = type(error)(f"{label}: {error}")
    return Outcome(job.source, error=error, stopped=isinstance(error, Stopped))


def _as_fragment(report: Report, written: Sequence[Path]) -> Report:
    """Names the files of a stopped run `NAME.partial.EXT`, so that `--skip-existing` does not take them for complete.

    Returns the report with the new names. Raises `OSError`.
    """
    renamed = {}
    for path in written:
        for file in (files := files_of(path)):
            file.replace(file.with_suffix(f".partial{file.suffix}"))
        if files:
            renamed[str(path)] = str(path.with_suffix(f".partial{path.suffix}"))
    return replace(
        report,
        output=report.output and renamed.get(report.output, report.output),
        also=tuple(renamed.get(path, path) for path in report.also),
    )


def _files(report: Report) -> list[str]:
    """Returns the files of a run's outputs, or the outputs' names where they are no files; none without a video."""
    outputs = [] if report.output is None else [report.output, *report.also]
    return [file for output in outputs for file in report.parts.get(output, [output])]


def _named(files: Sequence[str]) -> str:
    """Returns the names of files, of many the first and the last."""
    return ", ".join(files) if len(files) <= _NAMED else f"{files[0]} to {files[-1]} ({len(files)} files)"


def _notes(source: Source, report: Report, config: Config) -> str:
    """Returns in how many frames nothing was found, how many have no mask or were dropped, and what is doubtful.

    Frames of a live source that were dropped at its end do not count.
    """
    done = "found" if config.anonymize is None else "covered"  # whoever is to stay uncovered was found
    counts = {f"nothing {done} in": report.frames - report.found - report.unknown, "no mask for": report.unknown}
    notes = "".join(f", {what} {count}" for what, count in counts.items() if count)
    if report.doubtful:
        shown = " (--audit FILE.html shows them)" if config.audit is None and source.size else ""
        notes += f", {counted(report.doubtful, 'doubtful span')}{shown}"
    lost = {cause: count for cause, count in report.dropped.items() if cause != "end"}
    causes = ", ".join(f"{cause} {count}" for cause, count in lost.items())
    return f"{notes}, {sum(lost.values())} dropped ({causes})" if lost else notes


def _sizes(source: Source, report: Report) -> str:
    """Returns the size of the outputs and that of the input, if they are files."""
    written = sum(map(_size, _files(report)))
    if not written:
        return ""
    return f", {megabytes(written)}" + (f" (input: {megabytes(source.size)})" if source.size else "")


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0
