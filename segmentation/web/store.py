"""Inputs and jobs in the work folder: rows in SQLite, files in a folder each."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from segmentation.errors import ConfigError, OutputError, one_line
from segmentation.options.project import parse_project
from segmentation.system.file_state import FileState
from segmentation.system.safe_files import lock

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
_TABLES = """
CREATE TABLE IF NOT EXISTS inputs (id TEXT PRIMARY KEY, created REAL, name TEXT, path TEXT);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, created REAL, ended REAL, name TEXT, source TEXT,
    options TEXT, state TEXT, frames INTEGER, expected INTEGER, error TEXT, output TEXT, complete INTEGER,
    target TEXT, webhook TEXT);
CREATE INDEX IF NOT EXISTS states ON jobs (state, number);
CREATE TABLE IF NOT EXISTS taken (path TEXT PRIMARY KEY, size INTEGER, modified INTEGER, target TEXT);
"""
_COLUMNS = (
    "id, created, ended, name, source, options, state, frames, expected, error, output, complete, target, webhook"
)


@dataclass(frozen=True, slots=True)
class StoredInput:
    """An uploaded file, or one of the folder that the server shows."""

    id: str
    name: str
    path: str


class TakenFile(NamedTuple):
    """A file of a watched folder, as it was when a job was made for it."""

    size: int
    modified: int
    target: str | None  # that job's


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One run that was asked for. `source` is a file or an http(s) address, `output` the file's name."""

    id: str
    name: str
    source: str
    options: dict[str, object]
    created: float = field(default_factory=time.time)
    ended: float | None = None
    state: str = QUEUED
    frames: int = 0
    expected: int = 0  # 0 where the length is unknown
    error: str | None = None
    output: str | None = None
    complete: bool = True  # of a job that is done: no frame was lost
    target: str | None = None  # the file to write, where it is not one of the job's own folder
    webhook: str | None = None  # http(s) address, until it has got the end

    @property
    def over(self) -> bool:
        return self.state in (DONE, FAILED, CANCELLED)


class Store:
    """Keeps inputs and jobs. One process has the folder; any number of its threads may call.

    Progress is in memory alone: a row is written when a job begins and when it ends.
    """

    def __init__(self, folder: Path, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called after each change. Raises `ConfigError` where another server has the folder."""
        self.folder, self.changed = folder, changed
        self._lock = threading.RLock()
        self._progress: dict[str, tuple[int, int]] = {}
        try:
            for part in ("inputs", "jobs"):
                (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held = open(folder / "lock", "w")  # noqa: SIM115  # held until `close`
            if not lock(self._held.fileno()):
                self._held.close()
                raise ConfigError(f"{folder}: another server works in this folder; name another with --work")
            self._rows = sqlite3.connect(folder / "jobs.sqlite3", check_same_thread=False, isolation_level=None)
            self._rows.row_factory = sqlite3.Row
            self._rows.executescript(f"PRAGMA journal_mode=WAL;{_TABLES}")
        except (OSError, sqlite3.Error) as exc:
            raise ConfigError(f"{folder}: can't be worked in ({one_line(exc)}); name another with --work") from exc
        self._do("UPDATE jobs SET state = ? WHERE state = ?", QUEUED, RUNNING)  # of a server that was killed
        for kind in ("inputs", "jobs"):
            known = {id for (id,) in self._do(f"SELECT id FROM {kind}")}
            for left in (path for path in (folder / kind).iterdir() if path.name not in known):
                shutil.rmtree(left, ignore_errors=True)

    def output(self, job: QueuedJob) -> Path | None:
        """Returns the file that a job has written."""
        if job.output is None:
            return None
        return Path(job.target) if job.target is not None else self.folder / "jobs" / job.id / job.output

    def close(self) -> None:
        """Gives the folder back."""
        self._rows.close()
        self._held.close()

    @contextmanager
    def new_folder(self, kind: str, *, keep: bool = True) -> Iterator[Path]:
        """Makes a folder of an input or a job, which goes with an error, and at the end without `keep`."""
        folder = self.folder / kind / token_hex(8)
        try:
            folder.mkdir(mode=0o700)
            yield folder
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
        except BaseException as exc:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(exc, OSError):
                raise OutputError(f"the work folder can't be written ({one_line(exc)})") from exc
            raise

    def write_project(self, id: str, text: str) -> dict[str, object]:
        """Writes a job's project file, if there is one, and returns the option that names it.

        Raises `InputError` for a project that can't be used, and `OutputError`.
        """
        if not text:
            return {}
        parse_project(text, "project")
        path = self.folder / "jobs" / id / "project.json"
        try:
            path.parent.mkdir(mode=0o700)
            path.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise OutputError(f"the work folder can't be written ({one_line(exc)})") from exc
        return {"project": str(path)}

    def add_input(self, one: StoredInput) -> StoredInput:
        """Notes a file that lies in a folder of `new_folder`. Raises `OutputError`."""
        self._do("INSERT INTO inputs VALUES (?, ?, ?, ?)", one.id, time.time(), one.name, one.path)
        return one

    def inputs(self) -> list[StoredInput]:
        """Returns the uploaded files, the latest first."""
        return [StoredInput(*row) for row in self._do("SELECT id, name, path FROM inputs ORDER BY created DESC")]

    def add(self, job: QueuedJob, taken: FileState | None = None) -> None:
        """Puts a job at the queue's end, and with it notes the file that it was made for. Raises `OutputError`."""
        marks = ", ".join("?" * len(_COLUMNS.split(",")))
        with self._lock:
            self._do("BEGIN IMMEDIATE")
            try:
                self._do(f"INSERT INTO jobs ({_COLUMNS}) VALUES ({marks})", *_row(job))
                if taken is not None:
                    values = taken.path, taken.size, taken.modified, job.target
                    self._do("INSERT OR REPLACE INTO taken VALUES (?, ?, ?, ?)", *values)
                self._do("COMMIT")
            except OutputError:
                if self._rows.in_transaction:
                    self._rows.rollback()
                raise
        self.changed()

    def taken(self) -> dict[str, TakenFile]:
        """Returns the files for which jobs were made by themselves, by their paths."""
        return {path: TakenFile(*row) for path, *row in self._do("SELECT path, size, modified, target FROM taken")}

    def job(self, id: str) -> QueuedJob | None:
        """Returns the job with its progress at this moment."""
        rows = self._do(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", id)
        return self._read(rows[0]) if rows else None

    def jobs(self, most: int = 100) -> list[QueuedJob]:
        """Returns the jobs, the latest first."""
        rows = self._do(f"SELECT {_COLUMNS} FROM jobs ORDER BY number DESC LIMIT ?", most)
        return [self._read(row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Returns how many jobs there are of each state."""
        rows = self._do("SELECT state, COUNT(*) FROM jobs GROUP BY state")
        return dict.fromkeys((QUEUED, RUNNING, DONE, FAILED, CANCELLED), 0) | {state: count for state, count in rows}

    def take(self) -> QueuedJob | None:
        """Returns the job that waits for longest, which is running now."""
        with self._lock:
            rows = self._do(f"SELECT {_COLUMNS} FROM jobs WHERE state = ? ORDER BY number LIMIT 1", QUEUED)
            if not rows:
                return None
            job = replace(self._read(rows[0]), state=RUNNING)
            self._do("UPDATE jobs SET state = ? WHERE id = ?", RUNNING, job.id)
        self.changed()
        return job

    def advance(self, id: str, frames: int, expected: int) -> None:
        """Notes how many frames of a job are done."""
        self._progress[id] = frames, expected
        self.changed()

    def end(
        self, id: str, state: str, *, error: str | None = None, output: str | None = None, complete: bool = True
    ) -> bool:
        """Notes a job's end. Returns whether it was not over before."""
        with self._lock:
            frames, expected = self._progress.pop(id, (0, 0))
            values = (state, time.time(), error, output, complete, frames, expected)
            changed = self._do(
                "UPDATE jobs SET state = ?, ended = ?, error = ?, output = ?, complete = ?, frames = ?, expected = ? "
                f"WHERE id = ? AND state IN ('{QUEUED}', '{RUNNING}') RETURNING id",
                *values,
                id,
            )
        self.changed()
        return bool(changed)

    def unposted(self) -> list[QueuedJob]:
        """Returns the jobs that are over, and whose webhook has not got that."""
        rows = self._do(f"SELECT {_COLUMNS} FROM jobs WHERE webhook IS NOT NULL AND ended IS NOT NULL")
        return [self._read(row) for row in rows]

    def posted(self, id: str) -> None:
        """Notes that a job's webhook needs nothing more."""
        self._do("UPDATE jobs SET webhook = NULL WHERE id = ?", id)

    def forget(self, id: str) -> None:
        """Removes a job that is over, with its files. These go first: on a full disk a row could not be removed."""
        shutil.rmtree(self.folder / "jobs" / id, ignore_errors=True)
        self._do("DELETE FROM jobs WHERE id = ?", id)
        self.changed()

    def forget_input(self, id: str) -> None:
        """Removes an uploaded file, likewise."""
        shutil.rmtree(self.folder / "inputs" / id, ignore_errors=True)
        self._do("DELETE FROM inputs WHERE id = ?", id)

    def in_use(self, path: str) -> bool:
        """Returns whether a job that is not over reads the file."""
        return bool(self._do("SELECT 1 FROM jobs WHERE source = ? AND ended IS NULL", path))

    def tidy(self, age: float, size: int) -> None:
        """Removes what is older than `age` seconds, then the oldest until the rest has at most `size` bytes."""
        jobs = [("jobs", *row) for row in self._do("SELECT id, ended FROM jobs WHERE ended IS NOT NULL")]
        unused = "SELECT id, created FROM inputs WHERE path NOT IN (SELECT source FROM jobs WHERE ended IS NULL)"
        inputs = [("inputs", *row) for row in self._do(unused)]
        things = sorted(jobs + inputs, key=lambda thing: thing[2])
        sizes = {thing: _size(self.folder / thing[0] / thing[1]) for thing in things}
        total = sum(sizes.values())
        for thing in things:
            kind, id, at = thing
            if time.time() - at > age or total > size:
                total -= sizes[thing]
                (self.forget if kind == "jobs" else self.forget_input)(id)

    def _read(self, row: sqlite3.Row) -> QueuedJob:
        id, created, ended, name, source, options, state, frames, expected, error, output, complete, *others = row
        frames, expected = self._progress.get(id, (frames, expected))
        return QueuedJob(
            id,
            name,
            source,
            json.loads(options),
            created,
            ended,
            state,
            frames,
            expected,
            error,
            output,
            bool(complete),
            *others,
        )

    def _do(self, statement: str, *values: object) -> list[sqlite3.Row]:
        """Returns the rows of one statement. Raises `OutputError`, such as for a full disk."""
        try:
            with self._lock:
                return self._rows.execute(statement, values).fetchall()
        except sqlite3.Error as exc:
            raise OutputError(f"the work folder can't be written ({one_line(exc)})") from exc


def _row(job: QueuedJob) -> tuple[object, ...]:
    return (
        job.id,
        job.created,
        job.ended,
        job.name,
        job.source,
        json.dumps(job.options),
        job.state,
        job.frames,
        job.expected,
        job.error,
        job.output,
        job.complete,
        job.target,
        job.webhook,
    )


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in os.scandir(folder) if file.is_file()) if folder.is_dir() else 0
