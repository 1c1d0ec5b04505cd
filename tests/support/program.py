"""The command line as users start it, and what it prints."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paths import ROOT

TIMEOUT = 240.0  # seconds: far more than any run needs, on any machine


def cli(*arguments: str | Path, cwd: Path | None = None, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end. Whatever it was given, it must not show a traceback.

    Lines of progress are left out of `stderr`: they come every 30 s, and so on slow machines only, or on a GPU's first
    run.
    """
    with start(*arguments, cwd=cwd) as process:
        stdout, stderr = process.communicate(timeout=timeout)
    assert "Traceback" not in stderr, stderr
    stderr = without_progress(stderr)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


class Program(subprocess.Popen[str]):
    """The program while it runs. Leaving the context ends it, so that no test waits for one that hangs."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)

    def until(self, happened: Callable[[], bool]) -> None:
        """Waits, while it runs, for what it does."""
        deadline = time.monotonic() + TIMEOUT
        while not happened():
            assert self.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)


def without_progress(stderr: str) -> str:
    """Leaves out what comes by the clock."""
    stderr = re.sub(r"^segmentation: .*: (\d+ of )?\d+ frames?(, \S+ left)?\n", "", stderr, flags=re.M)
    return re.sub(r"^segmentation: preparing the GPU for its first run: .*\n", "", stderr, flags=re.M)


def start(*arguments: str | Path, cwd: Path | None = None, before: str = "") -> Program:
    """Starts the program, after the statements `before` in the same process, and returns while it runs."""
    return Program(
        [*after(before), "-m", "segmentation", *map(str, arguments)],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "COLUMNS": "500",
            "TERM": "dumb",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(folder: Path, *arguments: str | Path, files: int = 1) -> Iterator[Program]:
    """A run that has begun to write: so many temporary files are in `folder`, with something in them."""
    with start(*arguments) as process:
        process.until(lambda: sum(path.stat().st_size > 0 for path in folder.glob(".*.part*")) >= files)
        yield process


def after(statements: str) -> list[str]:
    """Python's command, for a process in which `statements` ran before. They run in a new interpreter: in a copy of
    this process, as `preexec_fn` would make, they may wait forever for locks of threads that the copy has not got."""
    again = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    return [sys.executable, *(["-c", f"import os, sys; {statements}; {again}"] if statements else [])]


def file_limit(size: int) -> str:
    """For `after`: files can't be longer than `size` bytes. Writing more fails with an OSError, as on a full disk."""
    ignored = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    return f"{ignored}; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"


def report(result: subprocess.CompletedProcess[str], *, complete: bool = True) -> dict[str, Any]:
    """The JSON report of a run with `--json` that wrote its files, with as many frames as it should or with fewer."""
    assert result.returncode == (0 if complete else 4), result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    assert content["complete"] == complete
    return content


def run_tool(program: str, *arguments: str | Path) -> str:
    """Runs a program of this repository, which must succeed; returns its stdout."""
    command = [sys.executable, ROOT / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout
