"""Where something is missing: memory, space on the disk, permissions. One true line each, and nothing left."""

import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from paths import ROOT, SAMPLE
from program import TIMEOUT, after, cli, start

from segmentation.errors import reported
from segmentation.models.model import BUILT_IN

# Root may read and write everything, unless this is taken from it.
_RIGHTS = "-dac_override,-dac_read_search"
MERE = ["setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}"] if os.geteuid() == 0 else []


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder with a video, a file and folders that may not be used."""
    for name in ("clip.mp4", "secret.mp4"):
        (tmp_path / name).write_bytes(SAMPLE.read_bytes())
    for name in ("closed", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret.mp4").chmod(0)
    (tmp_path / "closed").chmod(0)
    (tmp_path / "full").chmod(0o555)
    yield tmp_path
    (tmp_path / "closed").chmod(0o755)
    (tmp_path / "full").chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("secret.mp4", "secret.mp4: may not be read; check its permissions"),
        ("closed/a.mp4", "closed/a.mp4: a folder on the way may not be searched; check its permissions"),
        ("closed", "closed: the folder may not be read; check its permissions"),
        ("clip.mp4 -o full/a.mp4", "full/a.mp4: cannot be written (Permission denied)"),
        ("clip.mp4 -o full/new/", "full/new: Permission denied"),
        ("clip.mp4 --results full/a.jsonl", "full/a.jsonl: cannot be written (Permission denied)"),
        ("clip.mp4 --model secret.mp4", "secret.mp4: may not be read; check its permissions"),
        ("clip.mp4 --masks secret.mp4", "secret.mp4: may not be read; check its permissions"),
    ],
)
def test_what_may_not_be_used_is_named(closed: Path, arguments: str, said: str) -> None:
    before = sorted(path.name for path in closed.iterdir())
    command = [*MERE, sys.executable, "-m", "segmentation", *arguments.split(), "--max-frames", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=closed, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stderr) == (1, f"segmentation: error: {said}\n")
    assert sorted(path.name for path in closed.iterdir()) == before


def test_masks_in_a_pipe_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    done = cli(SAMPLE, "--masks", tmp_path / "pipe.mp4", "-o", tmp_path / "a.mp4")
    assert done.returncode == 1 and f"{tmp_path}/pipe.mp4: is a pipe or a device; copy" in done.stderr


HOW_FULL = [
    pytest.param((), id="plain"),
    pytest.param(("--anonymize", "faces", "--audit", "a.html"), id="covering", marks=pytest.mark.slow),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.parametrize("how", HOW_FULL)
def test_a_full_disk(tmp_path: Path, how: tuple[str, ...]) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60k", "none", tmp_path], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        options = ["--quality", "5", "--preset", "ultrafast", *(tmp_path / one if "." in one else one for one in how)]
        done = cli(SAMPLE, "-o", tmp_path / "a.mp4", *options)
        assert done.returncode == 1 and f"{tmp_path}/a.mp4: cannot be written (No space left on device)" in done.stderr
        assert not list(tmp_path.iterdir())
        done = cli(SAMPLE, "-o", f"{tmp_path}/new/folder/", *options)
        assert done.returncode == 1 and not list(tmp_path.iterdir())  # nor the folders
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_little_memory_is_one_line() -> None:
    """So little that a library can't be loaded."""
    command = [sys.executable, "-m", "segmentation", str(SAMPLE)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))

    done = subprocess.run(command, cwd=ROOT, preexec_fn=limit, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("segmentation: error: a library can't be loaded (")


@pytest.mark.parametrize("how", [(), ("--workers", "local:2"), ("--processes", "2")])
def test_descriptors_at_their_limit(tmp_path: Path, how: tuple[str, ...]) -> None:
    before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))"
    with start(SAMPLE, "-o", tmp_path / "a.mp4", "--device", "cpu", *how, before=before) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1 and stderr.endswith(
        "too many files are open; raise ulimit -n, or run fewer at a time\n"
    )
    assert len(stderr.splitlines()) == 1 and not list(tmp_path.iterdir())


def test_opencv_without_memory_is_one_line() -> None:
    with pytest.raises(cv2.error) as caught:
        cv2.resize(np.zeros((1, 1), np.uint8), (1 << 30, 1 << 30))
    assert str(reported(caught.value, "a.mp4")).startswith("a.mp4: memory or threads are used up; free some")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user, whom the limit binds")
@pytest.mark.parametrize("threads, options", [(2, []), (10, []), (20, ["--codec", "av1"])])
def test_few_threads_are_one_line(tmp_path: Path, threads: int, options: list[str]) -> None:
    """Libraries start some when they are loaded, decoders when the first packet comes, and encoders at the first frame.

    SVT-AV1 would print a line of its own.
    """
    tmp_path.chmod(0o777)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NPROC, ({threads}, {threads}))"
    arguments = [str(SAMPLE), "-o", str(tmp_path / "a.mp4"), "--max-frames", "3", *options]
    command = [*_another_user(), *after(limit), "-m", "segmentation", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "memory or threads are used up; free some, or raise ulimit" in done.stderr
    assert not list(tmp_path.iterdir())


def _another_user() -> list[str]:
    """Returns the command that becomes a user with no other process, who may read what is root's."""
    rights = "+dac_override,+dac_read_search"
    return ["setpriv", "--reuid=12345", "--clear-groups", f"--inh-caps={rights}", f"--ambient-caps={rights}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user, whom the limit binds")
def test_a_network_where_no_thread_can_be_started(tmp_path: Path) -> None:
    """ONNX Runtime starts threads of its own. The file is good, and the line is about the machine."""
    model = shutil.copy(BUILT_IN["person"], tmp_path)
    code = f"""
import resource
from pathlib import Path
import onnxruntime
from segmentation.errors import reported
from segmentation.models.graph.onnx_file import open_session
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
try:
    open_session(Path({str(model)!r}), options)
except Exception as exc:
    print(reported(exc, "a.mp4"))
"""
    done = subprocess.run(
        [*_another_user(), sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.stdout.startswith("a.mp4: memory or threads are used up; free some"), done.stderr


def test_a_machine_without_another_thread(tmp_path: Path) -> None:
    without = "import runpy, sys, threading; sys.argv = ['x', *sys.argv[1:]]; import segmentation.cli.main"
    refuse = 'threading._start_new_thread = lambda *_: (_ for _ in ()).throw(RuntimeError("can\'t start new thread"))'
    run = "runpy.run_module('segmentation', run_name='__main__')"
    command = [sys.executable, "-c", f"{without}; {refuse}; {run}", str(SAMPLE), "-o", str(tmp_path / "a.mp4")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1 and "memory or threads are used up; free some, or raise ulimit" in done.stderr
    assert "Traceback" not in done.stderr


def test_libraries_start_no_threads_that_spin(tmp_path: Path) -> None:
    """NumPy and OpenCV would each have one for every core but the first, which wait for work by spinning."""
    program = """
        import os, sys
        from segmentation import __main__ as entry

        try:
            entry.start()
        finally:
            print(len(os.listdir("/proc/self/task")), "cv2" in sys.modules)
    """
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", textwrap.dedent(program), "no-such-video.mp4", "--device", "cpu"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout == "1 True\n" and "no-such-video.mp4" in done.stderr
