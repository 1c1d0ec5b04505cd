"""Hooks and fixtures that all tests share; what they import is in support/."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT, SAMPLE, SHARED
from programs import starts_programs
from rtsp_server import RtspServer
from videos import repeated

import segmentation  # noqa: F401 - before any test imports onnxruntime: switches its telemetry off
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS

# Compiled modules are kept, by the tests and by the programs that they start: to compile all tests takes 15 s in each
# process, and a start without them half a second more.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-programs", action="store_true", help="leave out modules whose tests start programs")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out modules that start programs, where that is asked for; `None` leaves the choice to pytest."""
    left_out = config.getoption("--no-programs") and collection_path.name.startswith("test_")
    return True if left_out and starts_programs(collection_path) else None


def pytest_configure() -> None:
    """Lets the tests interrupt themselves, and what they start: shells let background jobs ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leaves all tests and modules out of later collections of garbage: some tests ask for several."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `gpu` skip where there is no GPU, unless a GPU is promised: then its absence is a failure."""
    if item.get_closest_marker("gpu") is not None and not _has_gpu():
        refuse = pytest.fail if os.environ.get("SEGMENTATION_REQUIRE_GPU") == "1" else pytest.skip
        refuse("needs an NVIDIA GPU and PyTorch with CUDA")


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real videos, which lies beside the repository, not in it. CONTRIBUTING.md lists what it is for."""
    folder = SHARED / "corpus"
    if not folder.is_dir():
        pytest.skip(f"the real videos are not here: {os.path.relpath(folder, ROOT)} is missing")
    return folder


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of somebody, twice the sample: 300 frames of 640x360 in ten seconds, H.264 with B-frames, and AAC."""
    return repeated(SAMPLE, tmp_path_factory.mktemp("people") / "people.mp4", 2)


@pytest.fixture(scope="session")
def long_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `people`, with 1200 frames: a signal after its first frame is written comes before its last is read."""
    return repeated(SAMPLE, tmp_path_factory.mktemp("long") / "people.mp4", 8)


@pytest.fixture
def camera() -> Iterator[RtspServer]:
    """A camera that sends for as long as the test runs."""
    with RtspServer() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where engines go, instead of among the user's."""
    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path / "engines"))
    return tmp_path / "engines"


@pytest.fixture(autouse=True, scope="module")
def implementations_as_before() -> Iterator[None]:
    """Tools add stages of their own to those that can be chosen, which later tests would find in help and documents."""
    before = {stage: known.copy() for stage, known in IMPLEMENTATIONS.items()}
    yield
    for stage, known in before.items():
        IMPLEMENTATIONS[stage].clear()
        IMPLEMENTATIONS[stage].update(known)


@pytest.fixture(autouse=True)
def priority_as_before() -> Iterator[None]:
    """No test leaves its thread with a real-time policy, which all later threads and processes would inherit."""
    if not hasattr(os, "sched_getscheduler"):  # macOS
        yield
        return
    before = os.sched_getscheduler(0)
    yield
    assert os.sched_getscheduler(0) == before


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The command sets the level and the handlers of the process's log, which later tests read."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers
