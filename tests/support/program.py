"""The command line as users start it, and what it prints."""

import atexit
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

from paths import ROOT

from segmentation.system.fork_server import ForkServer

TIMEOUT = 480.0  # seconds: far more than any run needs, on any machine


def cli(*arguments: str | Path, cwd: Path | None = None, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end. Whatever it was given, it must not show a traceback.

    Lines of progress are left out of `stderr`: they come every 30 s, and so on slow machines only, or on a GPU's first
    run.
    """
    done = run_python("segmentation", *arguments, cwd=cwd, timeout=timeout, env=_environment())
    assert "Traceback" not in done.stderr, done.stderr
    done.stderr = without_progress(done.stderr)
    return done


def run_python(
    program: str | Path,
    *arguments: str | Path,
    cwd: Path | None = None,
    timeout: float = TIMEOUT,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program in Python to its end: a file, or a module's name.

    It is forked from a process that has our libraries already. Where a test has changed how Python starts, it is
    started.
    """
    env = dict(os.environ) if env is None else env
    args = [*map(str, (program, *arguments))]
    if sys.platform == "linux" and _of_python(os.environ) == _OF_PYTHON:
        return _forked(args, str(cwd or Path.cwd()), timeout, env)
    command = [sys.executable, *(() if args[0].endswith(".py") else ("-m",)), *args]
    return subprocess.run(
        command, cwd=cwd, timeout=timeout, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


_OF_PYTHON = _of_python(os.environ)


def _forked(args: list[str], folder: str, timeout: float, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    pipes = [os.pipe(), os.pipe()]
    request = {"TESTS_REQUEST": json.dumps([args, folder, env])}
    process = _fork_server()([], request, (pipes[0][1], pipes[1][1]))
    timer = Timer(timeout, process.kill)
    timer.start()
    for _, writer in pipes:
        os.close(writer)
    with ThreadPoolExecutor(2) as pool:
        stdout, stderr = pool.map(_read, (reader for reader, _ in pipes))
    timer.cancel()
    return subprocess.CompletedProcess(args, process.wait(TIMEOUT), stdout, stderr)


@cache
def _fork_server() -> ForkServer:
    server = ForkServer("forked_program")
    atexit.register(server.close)
    return server


def _read(descriptor: int) -> str:
    with open(descriptor) as file:
        return file.read()


class Program(subprocess.Popen[str]):
    """The program while it runs. Leaving the context ends it, so that no test waits for one that hangs."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Waits for the end; returns what has been printed, without progress on stderr, see `cli`."""
        stdout, stderr = super().communicate(input, timeout)
        return stdout, without_progress(stderr)

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
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "500", "TERM": "dumb"}


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
    done = run_python(ROOT / program, *arguments, cwd=ROOT, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout
