"""A forked process is like one that was started, and is told from one that is not there yet."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmentation.system.child_process import ChildProcess
from segmentation.system.fork_server import ForkServer

TIMEOUT = 60.0
MODULE = """
    import os, sys

    def main(*descriptors):
        for descriptor in descriptors:
            os.read(descriptor, 1)
        print("at first", os.environ.get("GREETING"), flush=True)
        if os.environ.get("GREETING") == "folder":
            print(os.getcwd(), flush=True)
        if os.environ.get("GREETING") == "fail":
            raise ValueError("as asked")
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "forkable.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    server = ForkServer("forkable")
    yield server
    server.close()


def forked(server: ForkServer, *descriptors: int, greeting: str = "hello") -> ChildProcess:
    return ChildProcess("forkable", *descriptors, environment={"GREETING": greeting}, quiet=True, fork=server)


@pytest.mark.parametrize(
    ("greeting", "death"),
    [("hello", "has ended with code 0 (at first hello)"), ("fail", "has ended with code 1 (ValueError: as asked)")],
)
def test_a_forked_process_has_its_environment_and_output(server: ForkServer, greeting: str, death: str) -> None:
    process = forked(server, greeting=greeting)
    assert process.describe_death(TIMEOUT) == death
    process.close()


def test_it_gets_the_descriptors_and_is_there_until_it_ends(server: ForkServer) -> None:
    theirs, ours = os.pipe()
    first, second = forked(server, theirs), forked(server)
    assert second.describe_death(TIMEOUT) == "has ended with code 0 (at first hello)", "the first one keeps no other"
    assert first.is_alive() and first.is_started() and first.pid != second.pid
    os.close(theirs)
    os.close(ours)  # no other process has it
    assert first.describe_death(TIMEOUT) == "has ended with code 0 (at first hello)"


@pytest.mark.filterwarnings("error")
def test_it_leaves_no_descriptor_behind(server: ForkServer) -> None:
    gc.collect()  # of what earlier tests have left
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        process = forked(server)
        process.describe_death(TIMEOUT)
        process.close()
    del process
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) <= before


def test_it_begins_in_the_folder_of_who_asks(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked(server).describe_death(TIMEOUT)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    process = forked(server, greeting="folder")
    assert process.describe_death(TIMEOUT) == f"has ended with code 0 ({tmp_path / 'other'})"
    process.close()


def test_a_killed_one_is_told_with_its_signal(server: ForkServer) -> None:
    theirs, ours = os.pipe()
    process = forked(server, theirs)
    forked(server).describe_death(TIMEOUT)  # the server has come to both
    process.kill()
    assert "signal 9" in process.describe_death(TIMEOUT)
    os.close(theirs)
    os.close(ours)


def test_one_that_the_server_has_not_come_to_ends_at_once(server: ForkServer) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    process = forked(server)
    assert process.is_alive() and not process.is_started()
    process.kill()
    assert not process.is_alive()


def test_it_does_not_outlive_a_server_that_is_killed(server: ForkServer) -> None:
    theirs, ours = os.pipe()
    process = forked(server, theirs)
    forked(server).describe_death(TIMEOUT)
    killed = server.pid
    server.kill()
    assert "signal 9" in process.describe_death(TIMEOUT)
    os.close(theirs)
    os.close(ours)
    again = forked(server)
    assert again.describe_death(TIMEOUT) == "has ended with code 0 (at first hello)" and server.pid != killed


def test_where_none_can_be_forked_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container may have no more processes."""
    refusing = """
        fork, left = os.fork, iter([True, False])
        os.fork = lambda: fork() if next(left) else fork_refused()

        def fork_refused():
            os.fork = fork
            raise BlockingIOError(11, "Resource temporarily unavailable")
    """
    (tmp_path / "refusing.py").write_text(textwrap.dedent(MODULE) + textwrap.dedent(refusing))
    monkeypatch.syspath_prepend(tmp_path)
    server = ForkServer("refusing")
    theirs, ours = os.pipe()
    first, second, third = (ChildProcess("refusing", *given, quiet=True, fork=server) for given in ((theirs,), (), ()))
    assert "(no process can be forked (Resource temporarily unavailable))" in second.describe_death(TIMEOUT)
    assert third.describe_death(TIMEOUT).startswith("has ended with code 0") and first.is_alive()
    os.close(theirs)
    os.close(ours)
    assert first.describe_death(TIMEOUT).startswith("has ended with code 0")
    server.close()


def test_one_that_was_started_early_is_taken_once() -> None:
    ForkServer.start_early("json")
    assert ForkServer._early is not None
    early = ForkServer._early[1].pid
    servers = [ForkServer("json"), ForkServer("json")]
    assert servers[0].pid == early and servers[1].pid != early
    for server in servers:
        server.close()


@pytest.mark.parametrize("module", ["segmentation.scale.worker", "segmentation.sessions.process_worker"])
def test_pytorch_finds_its_settings_where_it_is_imported(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads them then, on a thread that warms up or in a run."""
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    code = f"import os, sys, {module}; print('torch' in sys.modules, os.environ['PYTORCH_CUDA_ALLOC_CONF'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ") and "pinned_num_register_threads" in done.stdout


def test_nothing_that_workers_import_starts_a_thread() -> None:
    """One thread at the fork is what makes it safe, and ONNX Runtime's telemetry would be another."""
    code = "import os, segmentation.scale.worker, onnxruntime; print(len(os.listdir('/proc/self/task')))"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "1\n"
