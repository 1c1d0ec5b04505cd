"""Runs the queue's jobs, each in a process of its own, so that one that crashes takes nothing along."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable

from segmentation.errors import SegmentationError
from segmentation.options.keywords import FrameOptions
from segmentation.system.linked_process import LinkedProcess
from segmentation.web.store import CANCELLED, DONE, FAILED, QUEUED, QueuedJob, Store

log = logging.getLogger(__name__)

MOST_QUEUED = 10_000
LEAST_FREE = 64 << 20  # bytes of the disk
_TIDY = 30.0  # seconds between looks for what is too old or too much


class JobRunner:
    """Runs so many jobs at a time. Use it as a context manager: the next server does again what leaving it stops."""

    def __init__(
        self,
        store: Store,
        at_a_time: int,
        limits: FrameOptions,
        age: float,
        size: int,
        ended: Callable[[], None],
        workers: str | None = None,
    ) -> None:
        """`limits` are options that hold for all jobs. Results are kept for `age` seconds, in `size` bytes at most.

        `ended` is called when a job is over. Each job has `workers` of its own, as `Workers` takes them.
        """
        self._store, self._limits, self._kept, self._ended = store, limits, (age, size), ended
        self._workers = workers
        self._processes: dict[str, LinkedProcess] = {}
        self._wake = threading.Condition()
        self._closed = False
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"segmentation-job {number}", daemon=True)
            for number in range(at_a_time)
        ]
        self._threads.append(threading.Thread(target=self._tidy, name="segmentation-tidy", daemon=True))

    def __enter__(self) -> JobRunner:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            for process in self._processes.values():
                process.kill()
        for thread in self._threads:
            thread.join()

    def refusal(self) -> str:
        """Returns why no job can be taken now; "" where one can. Raises `OutputError`."""
        if self._closed or not all(thread.is_alive() for thread in self._threads):
            return "the server is shutting down"
        if self._store.counts()[QUEUED] >= MOST_QUEUED:
            return f"{MOST_QUEUED} jobs wait already"
        if shutil.disk_usage(self._store.folder).free < LEAST_FREE:
            return f"the disk of the work folder has less than {LEAST_FREE >> 20} MiB left"
        return ""

    def wake(self) -> None:
        """Says that a job was added."""
        with self._wake:
            self._wake.notify()

    def cancel(self, id: str) -> bool:
        """Ends a job that waits or runs. Returns whether there was one."""
        if not self._store.end(id, CANCELLED):
            return False
        self._ended()
        with self._wake:
            if process := self._processes.get(id):
                process.kill()
        return True

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._run(job)
            except SegmentationError as exc:  # the work folder is full; the next job may fit
                log.error("job %s: %s", job.id, exc)
            except OSError as exc:
                self._fail(job, f"{job.name}: no process can be started ({exc})")

    def _next(self) -> QueuedJob | None:
        """Waits for the next job of the queue, and returns it; `None` once the runner is closed."""
        with self._wake:
            while not self._closed:
                if (job := self._store.take()) is not None:
                    return job
                self._wake.wait()
        return None

    def _tidy(self) -> None:
        """Removes old results now and then, also where no job ends."""
        while not self._over.wait(_TIDY):
            try:
                self._store.tidy(*self._kept)
            except SegmentationError as exc:
                log.error("%s", exc)

    def _run(self, job: QueuedJob) -> None:
        process = LinkedProcess("segmentation.web.job_process", quiet=True)
        try:
            with self._wake:
                self._processes[job.id] = process
                job_now = self._store.job(job.id)
                if self._closed or job_now is None or job_now.over:  # it was cancelled while its process began
                    process.kill()
            folder = str(self._store.folder / "jobs" / job.id)
            ended = False
            try:
                options = {**job.options, **self._limits}
                process.link.send((job.source, job.name, folder, job.target, options, self._workers))
                while not ended:
                    ended = self._take_in(job, process.receive())
            except (EOFError, OSError):
                pass
            if not ended and not self._closed:
                self._fail(job, f"{job.name}: its process {process.describe_death()}")
        finally:
            with self._wake:
                del self._processes[job.id]
            process.link.close()
            process.close()

    def _take_in(self, job: QueuedJob, message: object) -> bool:
        """Notes what a job's process says. Returns whether that was its end."""
        match message:
            case ("frames", int(done), int(expected)):
                self._store.advance(job.id, done, expected)
                return False
            case ("done", str(output), bool(complete)):
                if self._store.end(job.id, DONE, output=output, complete=complete) and job.target is not None:
                    log.info("%s: done", job.target)
                self._ended()
            case ("failed", str(error)):
                self._fail(job, error)
        return True

    def _fail(self, job: QueuedJob, error: str) -> None:
        if self._store.end(job.id, FAILED, error=error) and job.target is not None:  # nobody has asked for it
            log.error("%s", error)
        self._ended()
