"""Bugs: an exception that nothing has foreseen is one line of its own input, and the other inputs are done."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bugs
import pytest
from bugs import ABORT, ABORT_ENCODERS, plant
from marks import first
from paths import SAMPLE
from program import TIMEOUT, cli, start
from quick import NETWORK
from rtsp_server import RtspServer
from videos import Synthetic, times

from segmentation import Processes, Segmenter, Streams
from segmentation.live.decoding import ConnectionDecoder
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor

STAGES = [
    "pipeline.run:Run._copied",
    "stages.decode.pyav:PyAVDecoder.__iter__",
    "stages.preprocess.opencv:OpenCVPreprocessor.__call__",
    "stages.encode.pyav:PyAVEncoder.encode",
    "media.muxer:Muxer.copy_streams",
]
ENCODERS = "stages.encode.codec_settings:CodecSettings.wrap_frame"
FAST = ("--device", "cpu", "--effect", "mask", "--preset", "ultrafast", "--model", NETWORK)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """A folder with three videos, of which the second is the one that fails."""
    (tmp_path / "in").mkdir()
    for name in ("a", bugs.NAME, "z"):
        Synthetic(codec="libx264", pts=range(30)).write(tmp_path / "in" / f"{name}.mp4")
    return tmp_path / "in"


def check(done: Any, inputs: Path, suffix: str = ".mp4") -> None:
    """All inputs but one are done, and that one has a line, which is told in JSON too."""
    name = f"{inputs / bugs.NAME}{suffix}"
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and errors[0].startswith(f"segmentation: error: {name}: ")
    assert errors[0].endswith(bugs.TEXT) and "2 done, 1 failed" in done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    (failed,) = (report for report in reports if "error" in report)
    assert failed["input"] == name and failed["error"].endswith(bugs.TEXT) and failed["exit_code"] == 1
    assert {Path(report["input"]).stem for report in reports if "frames" in report} == {"a", "z"}


@pytest.mark.parametrize("place", first(1, STAGES))
def test_each_stage_fails_its_own_input_alone(
    place: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(place, tmp_path / "site", monkeypatch)
    check(cli(inputs, "-o", tmp_path / "out", "--json", *FAST), inputs)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.segmented.mp4", "z.segmented.mp4"]


@pytest.mark.parametrize("how", first(2, [["--jobs", "3"], ["--processes", "2"], ["--workers", "local:2"]]))
def test_however_the_inputs_are_shared_out(
    how: list[str], inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(STAGES[0], tmp_path / "site", monkeypatch)
    check(cli(inputs, "-o", tmp_path / "out", "--json", *how, *FAST), inputs)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"a.segmented.mp4", "z.segmented.mp4"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--processes", "2"), ("--workers", "local:1")])
def test_v_shows_where(how: tuple[str, ...], inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(STAGES[0], tmp_path / "site", monkeypatch)
    source = inputs / f"{bugs.NAME}.mp4"
    with start(source, "-o", tmp_path / "a.mp4", "-v", *how, *FAST) as process:
        _, stderr = process.communicate(timeout=TIMEOUT)
    lines = stderr.splitlines()
    assert process.returncode == 1 and sum("error: " in line for line in lines if line.startswith("segmentation")) == 1
    assert "Traceback (most recent call last):" in lines and "ZeroDivisionError: on purpose" in stderr
    assert re.search(r'File ".*sitecustomize\.py", line \d+, in method', stderr)


@pytest.mark.parametrize(
    ("how", "place", "fault"),
    first(
        2,
        [
            (("--encode", "x264-segments"), ENCODERS, ABORT_ENCODERS),
            (("--workers", "local:2"), STAGES[0], ABORT),
            (("--processes", "2"), STAGES[0], ABORT),
            (("--jobs", "3", "--encode", "x264-segments"), ENCODERS, ABORT_ENCODERS),
        ],
    ),
    ids=["encoder", "worker", "process", "encoders"],
)
def test_a_child_process_that_dies(
    how: tuple[str, ...], place: str, fault: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a library's assertion fails."""
    plant(place, tmp_path / "site", monkeypatch, fault)
    done = cli(inputs, "-o", tmp_path / "out", *how, *FAST)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert done.returncode == 1 and len(errors) == 1 and bugs.NAME in errors[0], done.stderr
    assert "was ended by signal 6" in errors[0] and "2 done, 1 failed" in done.stderr


@pytest.mark.slow
def test_files_that_shared_a_process_are_made_all_the_same(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(STAGES[0], tmp_path / "site", monkeypatch, ABORT)
    sources = sorted(inputs.iterdir())
    with Processes(1, device="cpu", effect="mask") as session, ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(session.run, source, tmp_path / f"{source.stem}.mkv") for source in sources]
        ends = {source.stem: call.exception() for source, call in zip(sources, calls, strict=True)}
    assert ends["a"] is None and ends["z"] is None and "signal 6" in str(ends[bugs.NAME])
    assert len(times(tmp_path / "a.mkv")) == len(times(tmp_path / "z.mkv")) == 30


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", bugs.NAME, "z"):
        Synthetic(codec="png", pts=range(1), pix_fmt="rgb24", format="image2").write(tmp_path / "in" / f"{name}.png")
    plant("sessions.picture_run:PictureRun._tell", tmp_path / "site", monkeypatch)
    check(cli(tmp_path / "in", "-o", tmp_path / "out", "--json"), tmp_path / "in", ".png")


@pytest.mark.parametrize("place", [STAGES[0], "live.decoding:ConnectionDecoder.__call__"])
def test_cameras(place: str, camera: RtspServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(place, tmp_path / "site", monkeypatch)
    sources = [f"{name}={camera.url()}" for name in ("hall", bugs.NAME)]
    done = cli(*sources, "-o", tmp_path / "{name}.mkv", "--json", "--max-frames", 20, *FAST)
    assert done.returncode == 1 and f"error: {bugs.NAME}: {bugs.TEXT}\n" in done.stderr
    assert len(times(tmp_path / "hall.mkv")) == 20 and not (tmp_path / f"{bugs.NAME}.mkv").exists()
    assert [line for line in done.stderr.splitlines() if "thread" in line.lower()] == []


def test_frames_of_a_camera_before_its_reader_failed_are_kept(
    camera: RtspServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library raises the exception itself, and other streams go on."""
    call, ready = ConnectionDecoder.__call__, threading.Event()

    def failing(self: Any, packet: Any) -> Any:
        if self._name == bugs.NAME and ready.is_set():
            raise ZeroDivisionError("on purpose")
        return call(self, packet)

    monkeypatch.setattr(ConnectionDecoder, "__call__", failing)
    with RtspServer() as other, Streams(device="cpu", input_size=(64, 64), max_delay=10.0) as streams:
        streams.add("hall", other.url(), tmp_path / "hall.mkv", max_frames=60)
        streams.add(bugs.NAME, camera.url(), tmp_path / "a.mkv")
        ends = {}
        for event in streams.events():
            if event.kind == "started" and event.name == bugs.NAME:
                ready.set()
            elif event.kind != "started":
                ends[event.name] = event
    assert ends["hall"].kind == "ended" and len(times(tmp_path / "hall.mkv")) == 60
    assert ends[bugs.NAME].kind == "failed" and type(ends[bugs.NAME].error) is ZeroDivisionError
    assert len(times(tmp_path / "a.mkv")) > 0


def test_the_library_raises_the_exception_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, batch: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(OpenCVPostprocessor, "__call__", failing)
    with Segmenter(device="cpu", effect="mask") as session, pytest.raises(ZeroDivisionError, match="on purpose"):
        session.run(SAMPLE, tmp_path / "a.mp4", max_frames=3)
    assert not list(tmp_path.iterdir())


def test_a_bug_before_the_first_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    fault = "def fail(*_, **__):\n    raise KeyError('x')\njobs.make_jobs = fail\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(f"from segmentation.cli.inputs import jobs\n{fault}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    done = cli(SAMPLE, "-o", tmp_path / "a.mp4")
    assert done.returncode == 1
    assert done.stderr == "segmentation: error: internal error (KeyError: 'x'); -v shows where\n"
