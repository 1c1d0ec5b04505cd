"""Several inputs at a time: the same bytes as one by one, and the same end by signals."""

import json
import shutil
import signal
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from fake_session import FakeSegmenter
from paths import SAMPLE
from program import TIMEOUT, start
from quick import NETWORK
from videos import Synthetic, times

from segmentation.cli.main import main

Session = type[FakeSegmenter]


# Of other sizes, shapes, codecs, depths, rates and lengths, one with distances that change.
MIXTURE = [
    Synthetic(size=(64, 48)),
    Synthetic(size=(128, 96), codec="mpeg4", pts=range(7)),
    Synthetic(size=(48, 96), codec="libx264", pix_fmt="yuv422p", time_base=Fraction(1, 60), pts=range(40)),
    Synthetic(size=(96, 54), codec="libx264", pix_fmt="yuv420p10le", time_base=Fraction(1001, 24000), pts=range(11)),
    Synthetic(size=(80, 60), codec="libx264", pts=(0, 1, 4, 5, 11, 12, 13, 20)),
    Synthetic(size=(64, 48), codec="libx264", pts=range(1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("interval", [(), pytest.param(("--interval", "2"), marks=pytest.mark.slow)])
def test_results_are_the_same_bytes_as_one_by_one(
    interval: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also those that are under way beside one that fails, at its beginning or on the way."""
    (tmp_path / "in").mkdir()
    for number, video in enumerate(MIXTURE):
        video.write(tmp_path / "in" / f"{number}.mkv")
    (tmp_path / "in" / "broken.mkv").write_bytes(b"no video")
    whole = Synthetic(size=(64, 48), codec="libx264", pts=range(60), gop=60).write(tmp_path / "whole.mkv").read_bytes()
    (tmp_path / "in" / "cut.mkv").write_bytes(whole[: len(whole) // 2] + bytes(len(whole) // 2))
    options = ["--infer", "onnxruntime", "--strict", "--json", *interval, "--results"]
    for jobs in ("1", "5"):
        folder = f"{tmp_path / jobs}/"
        assert main([str(tmp_path / "in"), "--jobs", jobs, "-o", folder, *options, folder]) == 1
        out, err = capfd.readouterr()
        lines = [json.loads(line) for line in out.splitlines()]
        assert sorted(line.get("frames", 0) for line in lines) == sorted([0, 0, *(len(v.pts) for v in MIXTURE)])
        assert "6 done, 2 failed: 92 frames" in err
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert len(names) == 12 and names == sorted(path.name for path in (tmp_path / "5").iterdir())
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "5" / name).read_bytes(), name


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_signal_ends_all_inputs_under_way(tmp_path: Path, count: int) -> None:
    """The first signal leaves playable files of the frames so far, the second one none."""
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        shutil.copy(SAMPLE, tmp_path / name)
    options = ("--jobs", 2, "--model", NETWORK, "--preset", "veryslow", "--encode", "x264")
    with start(tmp_path, *options, before="import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)") as process:
        process.until(lambda: sum(path.stat().st_size > 0 for path in tmp_path.glob(".*.part.mp4")) == 2)
        for number in (signal.SIGINT, signal.SIGTERM)[:count]:  # two of one kind may arrive as one
            process.send_signal(number)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and "Traceback" not in stderr, stderr
    made = sorted(path.name for path in tmp_path.iterdir() if path.name not in ("a.mp4", "b.mp4", "c.mp4"))
    if count == 1:
        assert made == ["a.segmented.partial.mp4", "b.segmented.partial.mp4"] and "2 stopped, 1 not begun" in stderr
        assert all(0 < len(times(tmp_path / name)) < 150 for name in made)
    else:
        assert not made


def test_no_more_inputs_at_a_time_than_asked(tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = set[int](), [0], threading.Lock()
    together = threading.Barrier(2, timeout=240)

    def during(stop: threading.Event) -> None:
        with lock:
            running.add(threading.get_ident())
            most[0] = max(most[0], len(running))
        together.wait()
        with lock:
            running.discard(threading.get_ident())

    monkeypatch.setattr(session, "during", staticmethod(during))
    for number in range(6):
        (tmp_path / f"{number}.mp4").write_bytes(b"v")
    assert main([str(tmp_path), "--jobs", "2", "-q"]) == 0
    assert most == [2] and len(session.made[0].runs) == 6 and threading.main_thread().ident not in running


def test_an_error_fails_its_input_alone_and_an_interrupt_ends_all(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    raised: list[type[BaseException]] = [ZeroDivisionError]

    def during(stop: threading.Event) -> None:
        if raised:
            raise raised.pop()

    monkeypatch.setattr(session, "during", staticmethod(during))
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        (tmp_path / name).write_bytes(b"v")
    assert main([str(tmp_path), "--jobs", "2"]) == 1
    assert "2 done, 1 failed" in capfd.readouterr().err
    raised += [KeyboardInterrupt]
    assert main([str(tmp_path), "--jobs", "2"]) == 0  # it ends the command, which no signal has stopped
    assert "done" not in capfd.readouterr().err


def test_a_thread_that_can_not_start_fails_its_own_input(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beside others that are under way, the input waits for one of them."""
    begin, refused = threading.Thread.start, [True, False, True]

    def start(self: threading.Thread) -> None:
        if self.name.endswith(".mp4") and refused and refused.pop(0):
            raise RuntimeError("can't start new thread")
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        (tmp_path / name).write_bytes(b"v")
    assert main([str(tmp_path), "--jobs", "3"]) == 1
    assert "2 done, 1 failed" in (said := capfd.readouterr().err)
    assert f"failed: {tmp_path}/a.mp4: memory or threads are used up" in said


@pytest.mark.parametrize("jobs", ["0", "-1", "some", "1.5"])
def test_a_number_of_jobs_is_one_or_more(jobs: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["clip.mp4", "--jobs", jobs])
    assert "--jobs" in capfd.readouterr().err
