"""One session serves all inputs, until a signal."""

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from fake_session import FakeSegmenter
from paths import SAMPLE

from segmentation import InputError
from segmentation.cli import main as module
from segmentation.cli.signals import finish_on_signals, interrupt_on_signals


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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_work(
    session: type[FakeSegmenter],
    clips: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    number: signal.Signals,
    count: int,
) -> None:
    """The first signal lets the run finish, the second one interrupts it; the next input is not begun."""

    def send(stop: threading.Event) -> None:
        for _ in range(count):
            os.kill(os.getpid(), number)
        assert stop.is_set()

    monkeypatch.setattr(session, "during", staticmethod(send))
    before = signal.signal(number, signal.SIG_DFL)  # whatever the process that runs the tests ignores
    try:
        assert module.main(clips) == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    (made,) = session.made
    assert made.closed and len(made.runs) == 1
    assert ("stopped, 1 frames" in capfd.readouterr().err) == (count == 1)


def test_a_closed_terminal_may_be_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with finish_on_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
        assert received.exit_code is None and not received.stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_build_is_interrupted_at_once() -> None:
    with interrupt_on_signals() as received, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert received.exit_code == 128 + signal.SIGTERM
