"""Runs of videos on workers: what `Segmenter` is on one process, `Workers` is on several."""

from __future__ import annotations

import logging
import math
import queue
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from segmentation.access import access_of
from segmentation.atomic_file import PendingFile
from segmentation.byte_source import Input, is_fifo
from segmentation.config import Config
from segmentation.errors import BackendError, ConfigError, SegmentationError
from segmentation.installation import install
from segmentation.media.containers import is_sequence
from segmentation.media.input import probe
from segmentation.media.live_address import is_live, source_label
from segmentation.models.model import load_model
from segmentation.options import Options, RunOptions
from segmentation.output_stream import Output, OutputStream, as_target
from segmentation.pipeline.output_paths import check_names, check_streams, default_output
from segmentation.pipeline.report import Report
from segmentation.pipeline.run import Progress
from segmentation.pipeline.stream_status import StreamBoard
from segmentation.pipeline.verify import Verified
from segmentation.scale.fingerprint import differences
from segmentation.scale.folder import PieceFolder
from segmentation.scale.join import Joiner, NoPieces, for_pieces
from segmentation.scale.local import LocalWorkers
from segmentation.scale.piece_file import PieceFile
from segmentation.scale.plan import VideoPlan, plan_video
from segmentation.scale.queue import Queue
from segmentation.scale.workers import Advanced, Done, Ended, Event, Lost, Ready, Task, Unable, WorkerPool

log = logging.getLogger(__name__)

_POLL = 0.1  # seconds
_WAIT = 30  # seconds without a ready worker, after which a line says so


@dataclass(slots=True)
class _Video:
    """A video under way: what its workers need, and what they have reported."""

    task: Task
    frames: int  # expected, 0 if unknown
    pieces: dict[int, int]  # frames of each piece
    arrived: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)  # Done, Ended, or an exception
    complete: int = 0  # frames of pieces that are complete
    partial: dict[str, int] = field(default_factory=dict)  # frames since, by worker
    made: dict[str, int] = field(default_factory=dict)  # frames by worker, also of pieces that were lost
    spent: dict[str, float] = field(default_factory=dict)  # seconds at work by worker
    redone: int = 0

    @property
    def source(self) -> str:
        return self.task.video if self.task.plan is None else self.task.plan.source

    @property
    def done(self) -> int:
        return self.complete + sum(self.partial.values())

    @property
    def rates(self) -> dict[str, float]:
        """Frames a second of each worker, while it was at work."""
        return {name: round(frames / max(self.spent.get(name, 0.0), 1e-3), 2) for name, frames in self.made.items()}


class Workers:
    """Segments videos on several processes, one after the other or several at a time from several threads.

    Each video is cut at keyframes into pieces, which workers make. All numbers of workers write the same packets,
    results and masks. Use as a context manager: leaving it ends the workers.

        with Workers("local:2", effect="blur:40") as workers:
            workers.run("long.mp4")
    """

    def __init__(
        self, workers: str = "auto", config: Config | None = None, *, exact: bool = False, **options: Unpack[Options]
    ) -> None:
        """`workers` is `local:N` for N processes of this machine, `auto` for one a GPU, or `ray:ADDRESS` for those of a
        cluster, with `ray` alone for one of this machine.

        `exact` leaves out workers whose libraries or devices are others than the first one's, so that they may make
        other packets. Options are those of `Segmenter`. Raises `ConfigError` or `BackendError`.
        """
        self.config = replace(config or Config(), **options)
        if callable(self.config.model):
            raise ConfigError(f"workers {workers}: the {self.config.model_name} can't be sent to workers; name a file")
        if self.config.trace is not None:
            raise ConfigError(f"trace {self.config.trace}: is of one process; leave out --trace, or --workers")
        self.streams = StreamBoard()  # has none: live sources are refused
        self._exact = exact
        self._queue = Queue()
        self._videos: dict[str, _Video] = {}
        self._idle: set[str] = set()
        self._began: dict[str, tuple[str, float]] = {}  # of workers at work: video, and since when
        self._seen = time.monotonic()  # when a worker was there for the last time
        self._reference: dict[str, str] | None = None  # fingerprint of the first worker
        self._failure: SegmentationError | None = None  # of the last worker
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._recurrent: bool | None = None
        self._pool = _pool(workers, self.config)
        self._driver = threading.Thread(target=self._drive, name="driver of workers", daemon=True)
        self._driver.start()

    @property
    def size(self) -> int:
        """Returns how many workers there are when all is well."""
        return self._pool.size

    def about(self) -> str:
        """Returns a few words on the workers, for a progress bar."""
        with self._lock:
            redone = self._queue.redone
            alive = len(self._idle) + len(self._began)
        return f"{alive} of {self.size} workers" + (f", {redone} pieces redone" if redone else "")

    def run(
        self,
        input: Input,
        output: Output | OutputStream | None = None,
        *,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
        **options: Unpack[RunOptions],
    ) -> Report:
        """Segments one file or address, see `Segmenter.run`.

        Setting `stop` ends the run with an error; complete pieces stay in `.<output>.pieces/`, and the next run with
        the same options goes on there. So it does after this process was killed.
        """
        unknown = options.keys() - RunOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"{', '.join(sorted(unknown))}: belongs to the whole session; give it to Workers()")
        config, stop = replace(self.config, **options), stop or threading.Event()
        source, target = _files(input, output, config)
        begin = time.perf_counter()
        plan = self._plan(source, target, config)
        if plan is None:
            report = self._run_whole(source, target, options, stop, progress)
        else:
            report = self._run_pieces(plan, target, config, stop, progress)
        seconds = time.perf_counter() - begin
        return replace(report, input=source, seconds=round(seconds, 3), fps=round(report.frames / seconds, 2))

    def close(self) -> None:
        """Ends the workers. No run may be under way."""
        self._closed.set()
        self._driver.join()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan(self, source: str, target: Path, config: Config) -> VideoPlan | None:
        """Returns the plan of a video that is made of pieces; `None` for what a worker makes in an ordinary run."""
        if is_sequence(source):
            return None
        info = probe(source, access_of(config))
        try:
            pieces = for_pieces(config, info, target)
        except NoPieces as exc:
            log.warning("%s: is not cut, since %s; one worker does all", source, exc)
            return None
        plan = plan_video(info, target, pieces, recurrent=self._is_recurrent(config))
        if plan.uncut:
            log.warning("%s: is not cut, since %s; one worker does all", source, plan.uncut)
        return plan

    def _is_recurrent(self, config: Config) -> bool:
        with self._lock:
            if self._recurrent is None:
                self._recurrent = config.masks is None and load_model(self.config).form.recurrent
            return self._recurrent

    def _run_pieces(
        self, plan: VideoPlan, target: Path, config: Config, stop: threading.Event, progress: Progress | None
    ) -> Report:
        PendingFile(target, overwrite=config.overwrite).check("-o")
        folder = PieceFolder.beside(target)
        try:
            plan = folder.begin(plan)
            done = folder.done(plan)
            if done:
                log.warning("%s: goes on with %d of %d pieces that are there", plan.source, len(done), len(plan.pieces))
            frames = {number: piece.frames for number, piece in enumerate(plan.pieces)}
            task = Task(video=str(target.absolute()), plan=plan, folder=str(folder.path))
            video = _Video(task, plan.frames, frames, complete=sum(frames[number] for number in done))
            with Joiner(plan, target, overwrite=config.overwrite, exact=self._exact) as joiner:
                with self._under_way(video, done):
                    for number in range(len(plan.pieces)):
                        while number not in done:
                            event = self._next(video, stop, progress)
                            done |= {event.piece} if isinstance(event, Done) else set()
                        with PieceFile(folder.file(number)) as piece:
                            joiner.add(piece)
                joiner.finish()
                folder.remove()
                return replace(joiner.report(), workers=video.rates, redone=video.redone)
        finally:
            folder.leave()

    def _run_whole(
        self, source: str, target: Path, options: RunOptions, stop: threading.Event, progress: Progress | None
    ) -> Report:
        """Has one worker make an ordinary run."""
        arguments = {"input": source, "output": target.absolute(), **options}
        task = Task(video=str(target.absolute()), run=arguments)
        video = _Video(task, 0, {0: 0})
        with self._under_way(video, set()):
            while True:
                event = self._next(video, None, progress)
                if isinstance(event, Ended) and event.report is not None:
                    verified = event.report["verified"]
                    report = event.report | {"verified": None if verified is None else Verified(**verified)}
                    return Report(**report | {"workers": video.rates, "redone": video.redone})
                if stop.is_set() and not self._stop_workers(video) and video.arrived.empty():
                    raise SegmentationError(f"{source}: stopped; nothing was written")

    @contextmanager
    def _under_way(self, video: _Video, done: set[int]) -> Iterator[None]:
        """Gives a video to the workers, and takes it from them at the end."""
        with self._lock:
            if not self._driver.is_alive():
                raise self._failure or BackendError("workers: were closed")
            if video.task.video in self._videos:
                raise ConfigError(f"{video.task.video}: two runs at a time have this output")
            self._videos[video.task.video] = video
            self._queue.add(video.task.video, len(video.pieces), done)
        try:
            yield
        finally:
            self._drop(video)

    def _next(self, video: _Video, stop: threading.Event | None, progress: Progress | None) -> Any:
        """Returns what has arrived of a video, `None` if nothing has for a while. Raises the error of its failure."""
        if stop is not None and stop.is_set():
            kept = f"its complete pieces are in {video.task.folder}, and the same command goes on"
            raise SegmentationError(f"{video.source}: stopped; {kept}")
        try:
            event = video.arrived.get(timeout=_POLL)
        except queue.Empty:
            event = None
        if isinstance(event, BaseException):
            raise event
        if progress is not None:
            progress(video.done, video.frames)
        return event

    def _drop(self, video: _Video) -> None:
        """Takes a video from the workers."""
        with self._lock:
            self._stop_workers(video)
            self._queue.drop(video.task.video)
            self._videos.pop(video.task.video, None)

    def _stop_workers(self, video: _Video) -> bool:
        """Asks the workers that are at work on a video to end. Returns whether there are any."""
        with self._lock:
            workers = [worker for worker, (name, _) in self._began.items() if name == video.task.video]
            for worker in workers:
                self._pool.stop(worker)
            return bool(workers)

    # The rest is called on the driver's thread.

    def _drive(self) -> None:
        try:
            while not self._closed.is_set():
                for event in self._pool.events(_POLL):
                    with self._lock:
                        self._handle(event)
                with self._lock:
                    self._give_work()
        except Exception as exc:
            with self._lock:
                self._fail_all(exc)
        finally:
            self._pool.close()

    def _handle(self, event: Event) -> None:
        match event:
            case Ready(worker, fingerprint):
                if self._fits(worker, fingerprint):
                    self._idle.add(worker)
            case Unable(worker, error):
                log.warning("%s can't serve: %s", worker, error)
                self._failure = error
            case Advanced(worker, name, frames):
                if (video := self._videos.get(name)) is not None:
                    video.partial[worker] = video.partial.get(worker, 0) + frames
                    video.made[worker] = video.made.get(worker, 0) + frames
            case Done(worker, name, piece):
                self._take(event, self._queue.done(worker, name, piece))
            case Ended(worker, name, error, report):
                self._end_task(worker, failed=error is not None)
                self._idle.add(worker)
                if error is not None:
                    self._fail(self._queue.failed(worker, str(error)), error)
                elif report is not None and self._queue.done(worker, name, 0):
                    self._videos[name].arrived.put(event)
            case Lost(worker, reason):
                log.warning("%s %s", worker, reason)
                self._end_task(worker, failed=True)
                self._idle.discard(worker)
                error = SegmentationError(f"{worker} {reason}")
                self._failure = error
                self._fail(self._queue.lost(worker, str(error)), error)

    def _fits(self, worker: str, fingerprint: dict[str, str]) -> bool:
        """Compares a worker with the first one. Returns whether it may serve."""
        if self._reference is None:
            self._reference = fingerprint
        found = differences(self._reference, fingerprint) if self._exact else ""
        if found:
            self._failure = BackendError(f"{worker} differs from the first one ({found}), and is left out (--exact)")
            log.warning("%s", self._failure)
            self._pool.dismiss(worker)
        return not found

    def _take(self, event: Done, first: bool) -> None:
        video = self._videos.get(event.video)
        if video is not None:
            video.partial.pop(event.worker, None)
            if first:
                video.complete += video.pieces[event.piece]
                video.arrived.put(event)

    def _end_task(self, worker: str, *, failed: bool) -> None:
        """Notes that a worker is not at work any more."""
        name, since = self._began.pop(worker, ("", 0.0))
        if (video := self._videos.get(name)) is not None:
            video.partial.pop(worker, None)
            video.redone += failed
            video.spent[worker] = video.spent.get(worker, 0.0) + time.monotonic() - since

    def _fail(self, failed: tuple[str, str] | None, error: SegmentationError) -> None:
        """Ends a video that has failed for good."""
        if failed is not None and (video := self._videos.get(failed[0])) is not None:
            video.arrived.put(type(error)(f"{video.source}: {failed[1]}"))
            self._drop(video)

    def _fail_all(self, error: Exception) -> None:
        self._failure = error if isinstance(error, SegmentationError) else SegmentationError(str(error))
        for video in list(self._videos.values()):
            video.arrived.put(error)
            self._drop(video)

    def _say_if_none_is_ready(self) -> None:
        """Says once that videos wait because no worker is ready, such as for room in a cluster."""
        now = time.monotonic()
        if self._idle or self._began or not self._videos:
            self._seen = now
        elif now - self._seen > _WAIT:
            log.warning("no worker has been ready for %d s; waiting", _WAIT)
            self._seen = math.inf

    def _give_work(self) -> None:
        """Gives work to idle workers."""
        if not self._pool.left and self._videos:
            self._fail_all(self._failure or BackendError("workers: none is left"))
        self._say_if_none_is_ready()
        for worker in sorted(self._idle):
            work, shortened = self._queue.next(worker)
            if work is None:
                continue
            if shortened is not None:
                self._pool.shorten(*shortened)
            video = self._videos[work.video]
            self._pool.start(worker, replace(video.task, begin=work.begin, end=work.end))
            self._began[worker] = work.video, time.monotonic()
            self._idle.discard(worker)


def _pool(workers: str, config: Config) -> WorkerPool:
    """Returns the workers that an option names. Raises `ConfigError` or `BackendError`."""
    if workers == "auto":
        return LocalWorkers(None, config)
    if found := re.fullmatch(r"local:([1-9]\d{0,3})", workers):
        return LocalWorkers(int(found[1]), config)
    if workers == "ray" or workers.startswith("ray:"):
        try:
            from segmentation.scale.ray_workers import RayWorkers
        except ModuleNotFoundError as exc:
            raise BackendError(f"workers {workers}: the package {exc.name} is not installed; {install('ray')}") from exc
        return RayWorkers(workers.partition(":")[2] or None, config)
    raise ConfigError(f"workers {workers!r}: write local:N for N processes of this machine, auto, or ray[:ADDRESS]")


def _files(input: Input, output: Output | OutputStream | None, config: Config) -> tuple[str, Path]:
    """Returns the input's name and the output. Raises `ConfigError` for what workers, other processes, can't have."""
    for name, given in (("input", input), ("output", output), ("results", config.results)):
        is_file = given is None or isinstance(given, str | Path)
        if not is_file or (given is not None and is_fifo(str(given))):
            given = given if isinstance(given, str | Path) else f"of type {type(given).__name__}"
            raise ConfigError(f"{name} {given}: workers read and write files; name one, or leave out --workers")
    source = str(input)
    if is_live(source):
        raise ConfigError(f"{source_label(source)}: workers take files; leave out --workers for a live source")
    target = as_target(default_output(source, config) if output is None else output, config)
    check_names(source, target, config)
    check_streams(source, target, config)
    if not isinstance(target, Path):
        raise ConfigError(f"output {target}: workers write files; name one, or leave out --workers")
    return source, target
