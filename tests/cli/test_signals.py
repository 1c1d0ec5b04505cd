"""One session serves all inputs, until a signal."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from fake_session import FakeSegmenter
from marks import first
from paths import ROOT, SAMPLE
from program import TIMEOUT

from segmentation import InputError
from segmentation.cli import main as module
from segmentation.cli import signals
from segmentation.cli.console import say
from segmentation.cli.inputs import batch
from segmentation.cli.signals import Received, finish_on_signals, interrupt_on_signals

Handling = AbstractContextManager[Received]


@pytest.fixture
def clips(tmp_path: Path) -> list[str]:
    return [str(shutil.copy(SAMPLE, tmp_path / name)) for name in ("a.mp4", "b.mp4")]


def test_one_session_serves_all_inputs(session: type[FakeSegmenter], clips: list[str], tmp_path: Path) -> None:
    options = ["--effect", "mask", "--results", str(tmp_path), "--also", f"blur:{tmp_path}"]
    assert module.main([*clips, "-q", *options]) == 0
    (made,) = session.made
    assert made.closed and made.config.effect == "mask"
    assert made.runs == [
        {
            "source": clip,
            "also": [("blur", tmp_path / f"{name}.segmented.blur.mp4")],
            "results": tmp_path / f"{name}.segmented.jsonl",
        }
        for clip, name in zip(clips, "ab", strict=True)
    ]


def test_a_failed_input_leaves_the_session_to_the_next(
    session: type[FakeSegmenter], clips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(stop: threading.Event) -> None:
        if len(session.made[0].runs) == 1:
            raise InputError("no video")

    monkeypatch.setattr(session, "during", staticmethod(fail))
    assert module.main([*clips, "-q"]) == 1
    assert len(session.made) == 1 and len(session.made[0].runs) == 2


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("number", first(2, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_ends_the_work(
    session: type[FakeSegmenter],
    clips: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    number: signal.Signals,
    count: int,
) -> None:
    """The first signal lets the run finish, the second one interrupts it; the next input is not begun."""

    line = threading.Event()

    def heard(text: str) -> None:
        say(text)
        if "ends at once" in text:
            line.set()

    def send(stop: threading.Event) -> None:
        os.kill(os.getpid(), number)
        assert stop.wait(240) and line.wait(240)
        if count == 2:
            os.kill(os.getpid(), number)
            while True:
                time.sleep(0.01)

    monkeypatch.setattr(signals, "_TWICE", 0.0)  # seconds: the second signal is another one, however soon it comes
    monkeypatch.setattr(batch, "say", heard)
    monkeypatch.setattr(session, "during", staticmethod(send))
    before = signal.signal(number, signal.SIG_DFL)  # whatever the process that runs the tests ignores
    try:
        assert module.main(clips) == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    (made,) = session.made
    assert made.closed and len(made.runs) == 1
    said = capfd.readouterr().err
    again = "another Ctrl-C" if number == signal.SIGINT else f"another {number.name}"
    assert ("stopped, 1 frame " in said) == (count == 1) and said.count(f"; {again} ends at once") == 1


def test_a_signal_that_comes_twice_at_once_is_one(
    session: type[FakeSegmenter], clips: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """timeout(1) sends it to the process, and then to its group."""
    monkeypatch.setattr(signals, "_TWICE", 240.0)  # seconds, on a machine that is busy

    def send(stop: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(240)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)

    monkeypatch.setattr(session, "during", staticmethod(send))
    assert module.main(clips) == 128 + signal.SIGTERM
    assert "stopped, 1 frame " in capfd.readouterr().err


@pytest.mark.parametrize("handling", [finish_on_signals, interrupt_on_signals])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_may_be_ignored(number: signal.Signals, handling: Callable[[], Handling]) -> None:
    """As under nohup, and in the background of a script."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with handling() as received:
            os.kill(os.getpid(), number)
        assert received.exit_code is None and not received.stop.is_set()
    finally:
        signal.signal(number, before)


def test_a_build_is_interrupted_at_once() -> None:
    with interrupt_on_signals() as received:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # what is being cleared away is not disturbed
    assert received.exit_code == 128 + signal.SIGTERM


@pytest.mark.parametrize("entry", ["start", "start_build", "start_clips", "start_models", "start_pieces"])
def test_ctrl_c_has_no_traceback_while_libraries_are_imported(entry: str) -> None:
    """What Python imports before the handler is set takes a few milliseconds; without `site` there is no library."""
    code = f"""
import _signal, sys
class Early:
    def find_spec(name, path=None, target=None):
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            print(name)
sys.meta_path.insert(0, Early)
sys.path.append({str(ROOT)!r})
from segmentation.__main__ import {entry}
{entry}()
"""
    done = subprocess.run([sys.executable, "-S", "-c", code, "a.mp4"], capture_output=True, text=True, timeout=TIMEOUT)
    early = set(done.stdout.split())
    assert {name for name in early if name.startswith("segmentation")} == {
        *("segmentation", "segmentation._version", "segmentation.__main__")
    }
    assert not early & {"typing", "re", "ctypes", "threading", "numpy"}
    assert done.returncode == 3 and "a library can't be loaded (No module named" in done.stderr
    assert "Traceback" not in done.stderr
