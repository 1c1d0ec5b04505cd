"""Runs on live sources: which frames come out, in which order, how late, and what is said of those that do not."""

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from pipes import ENVIRONMENT
from typing import Any

import av
import barcode
import numpy as np
import pytest
from hostile_server import KINDS, HostileServer
from marks import first
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli, start
from rtsp_server import PASSWORD, USER, RtspServer, recording
from videos import times

from segmentation import BackendError, Config, ConfigError, InputError, Report, Segmenter
from segmentation.cli.console import ConsoleHandler
from segmentation.errors import LacksEngine
from segmentation.frames.live_frames import LiveFrames
from segmentation.frames.source import Source
from segmentation.gpu.discovery import GpuInfo
from segmentation.live.reader import LiveReader, probe_any
from segmentation.pipeline.planning import plan
from segmentation.pipeline.stream_status import StreamStatus
from segmentation.system.access import Access

Pictures = NDArray[np.float32]


def keep(batch: Pictures) -> Pictures:
    return np.ones((len(batch), 32, 32), np.float32)


def slow(batch: Pictures) -> Pictures:
    time.sleep(0.12)
    return keep(batch)


OPTIONS: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0}
PATIENT = 1000.0  # seconds without a frame: what waits for their end fails its test
QUICK: dict[str, Any] = {"stall": 0.6, "reconnect": "0.1..0.2"}


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=keep, **OPTIONS) as made:
        made.masks(np.zeros((64, 64, 3), np.uint8))
        yield made


def codes(path: Path) -> list[tuple[int, float, float]]:
    """Of each frame of an output its number, when it was drawn, and when it is shown, in seconds."""
    with av.open(str(path)) as file:
        return [(*barcode.read(f.to_ndarray(format="gray")), float(f.time or 0)) for f in file.decode(video=0)]


def numbers(path: Path) -> list[int]:
    return [number for number, _, _ in codes(path)]


def accounted(report: Report) -> bool:
    return report.received == report.frames + sum(report.dropped.values())


def later(seconds: float, act: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def test_all_frames_come_in_order_and_on_time(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    report = segmenter.run(camera.url(), tmp_path / "out.mp4", max_frames=40, max_delay=10.0)
    found = codes(tmp_path / "out.mp4")
    first, last = found[0][0], found[-1][0]
    assert list(report.latency) == ["p50", "p95", "p99", "max"]
    assert 0 < report.latency["p50"] <= report.latency["p95"] <= report.latency["p99"]
    assert report.latency["max"] < report.seconds
    assert [number for number, _, _ in found] == [number for number in camera.sent if first <= number <= last]
    assert report.frames == 40 and accounted(report) and report.dropped.keys() <= {"end"} and report.complete
    assert report.plan["decode"] == "live" and report.reconnects == report.damaged == 0
    _show_their_distance(found, camera)


def _show_their_distance(found: list[tuple[int, float, float]], camera: RtspServer) -> None:
    """A frame that is left out leaves its time, whatever the network's and this machine's delays are."""
    assert found[0][2] == 0
    for (number, _, shown), (other, _, then) in pairwise(found[1:]):  # RTSP's first frame has no time of its own
        assert other > number and then - shown == pytest.approx((other - number) / camera.fps, abs=0.01)


@pytest.mark.slow
def test_covered_frames_wait_for_later_ones_and_none_is_lost(camera: RtspServer, tmp_path: Path) -> None:
    with Segmenter(anonymize="faces", device="cpu", input_size=(64, 64)) as segmenter:
        report = segmenter.run(camera.url(), tmp_path / "out.mp4", max_frames=40, max_delay=30.0)
    found = numbers(tmp_path / "out.mp4")
    assert report.frames == 40 and accounted(report) and report.complete
    assert report.latency["max"] >= 0.9, "a frame waits for those of the next second"
    assert found == [number for number in camera.sent if found[0] <= number <= found[-1]]


@pytest.mark.slow
def test_a_slow_pipeline_drops_the_oldest_frames_and_counts_them(camera: RtspServer, tmp_path: Path) -> None:
    """The delay does not grow: at most `max_delay`, and the time of the frames that are on their way already."""
    seen = []
    with Segmenter(model=slow, **OPTIONS) as segmenter:

        def watch(done: int, expected: int) -> None:
            seen.append(time.monotonic())

        report = segmenter.run(
            camera.url(), tmp_path / "out.mkv", duration=4.0, max_delay=0.3, max_interval=0, progress=watch
        )
    found = codes(tmp_path / "out.mkv")
    assert accounted(report) and report.frames == len(found) == len(seen) and report.complete
    assert report.dropped["late"] > report.frames and report.dropped.keys() <= {"late", "end"}
    assert 0.3 < report.latency["p50"] <= report.latency["max"]
    assert report.received >= len(camera.sent) - 10  # the connection was drained all the time
    _show_their_distance(found, camera)
    delays = [when - drawn for when, (_, drawn, _) in zip(seen, found, strict=True)]
    step = (seen[-1] - seen[0]) / len(seen)
    assert 0 < max(delays) < 0.3 + 10 * step and max(delays[-5:]) < max(delays[:12]) + 3 * step


def test_a_congested_network_changes_no_distance_and_loses_nothing(
    camera: RtspServer, segmenter: Segmenter, tmp_path: Path
) -> None:
    """Half a second of frames comes at once."""
    camera.gathering = 0.5
    report = segmenter.run(camera.url(), tmp_path / "out.mp4", max_frames=60, max_delay=10.0)
    found = codes(tmp_path / "out.mp4")
    assert [number for number, _, _ in found] == [n for n in camera.sent if found[0][0] <= n <= found[-1][0]]
    assert report.frames == 60 and accounted(report) and report.reconnects == report.damaged == 0
    _show_their_distance(found, camera)


@pytest.mark.slow
def test_lost_packets_damage_frames_and_end_nothing(segmenter: Segmenter, tmp_path: Path) -> None:
    def watch(done: int, expected: int) -> None:
        camera.losing = 0.2 if 20 <= done < 50 else 0.0

    with RtspServer(payload=60) as camera:
        report = segmenter.run(camera.url(), tmp_path / "out.mp4", max_frames=120, max_delay=10.0, progress=watch)
    found = codes(tmp_path / "out.mp4")
    assert report.frames == len(found) == 120 and accounted(report)
    assert (
        report.damaged > 0
        and not report.complete
        and report.reconnects == 0
        and report.dropped.keys() <= {"end", "undecodable"}
    )
    assert all(then > shown for (_, _, shown), (_, _, then) in pairwise(found))
    with av.open(str(tmp_path / "out.mp4")) as file:
        pictures = [frame.to_ndarray(format="gray") for frame in file.decode(video=0)]
    whole = [barcode.read(picture)[0] for picture in pictures if barcode.is_whole(picture)]
    assert whole == sorted(whole) and 60 < len(whole) < 120
    _show_their_distance([found[0], *found[-30:]], camera)  # whole again after the next keyframe


ENDS = """
import sys
from segmentation import Segmenter

def keep(batch):
    return batch[:, 0] * 0 + 1

with Segmenter(model=keep, device="cpu", input_size=(64, 64)) as segmenter:
    segmenter.run(sys.argv[1], sys.argv[2], duration=0.5, stall=2.0)
print("done")
"""


def test_an_iterator_over_frames_hands_each_on_at_once(
    camera: RtspServer, segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, tell = [], LiveFrames.written

    def note(frames: LiveFrames, count: int) -> None:
        written.append(count)
        tell(frames, count)  # else the ring waits for these frames, once the first is late

    monkeypatch.setattr(LiveFrames, "written", note)
    frames = segmenter.frames(camera.url(), max_delay=60.0, stall=PATIENT)
    for count, frame in enumerate(frames, 1):
        if count == 20:
            camera.silent.set()
        number, _ = barcode.read(frame.image[..., 1])
        if count >= 20 and number >= camera.sent[-1] - 1:  # FFmpeg hands a packet out when the next one begins
            break
    frames.close()
    assert sum(written) == count


def test_a_schemes_letters_may_be_large(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    url = camera.url().replace("rtsp", "RTSP")
    assert segmenter.run(url, tmp_path / "out.mkv", max_frames=3).frames == 3


@pytest.mark.parametrize("password", ["se/cret", "secret#1", "secret word"])
def test_a_password_that_is_no_part_of_an_address_is_not_told(
    password: str, segmenter: Segmenter, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        segmenter.run(f"rtsp://user:{password}@127.0.0.1:1/x", tmp_path / "out.mkv")
    assert "cret" not in str(caught.value) and "%2" in str(caught.value)


def test_a_redirect_is_not_followed(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def redirect() -> None:
            client, _ = server.accept()
            with client, client.makefile("rb") as lines:
                while head := [line for line in iter(lambda: lines.readline().strip().decode(), "")]:
                    sequence = next(line for line in head if line.startswith("CSeq"))
                    status = "200 OK" if head[0].startswith("OPTIONS") else f"302 Moved\r\nLocation: {camera.url()}"
                    client.sendall(f"RTSP/1.0 {status}\r\n{sequence}\r\n\r\n".encode())

        threading.Thread(target=redirect, daemon=True).start()
        with pytest.raises(InputError):
            segmenter.run(f"rtsp://127.0.0.1:{server.getsockname()[1]}/x", tmp_path / "out.mkv", stall=2.0)
    assert not camera.sent


def test_each_loss_of_a_camera_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    handler = ConsoleHandler()
    for name in ("segmentation.live.reader", "segmentation.media.opening.open_input"):
        for _ in range(2):
            handler.emit(logging.LogRecord(name, logging.WARNING, "", 0, f"{name}: lost", (), None))
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        *["segmentation.live.reader"] * 2,
        "segmentation.media.opening.open_input",
    ]


def test_a_program_ends_in_peace_while_a_camera_is_silent(camera: RtspServer, tmp_path: Path) -> None:
    def silence() -> None:
        while len(camera.sent) < 60:  # a busy machine takes long to begin
            time.sleep(0.01)
        camera.silent.set()

    threading.Thread(target=silence, daemon=True).start()
    command = [sys.executable, "-X", "faulthandler", "-c", ENDS, camera.url(), str(tmp_path / "out.mkv")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def _silence(camera: RtspServer) -> None:
    camera.silent.set()
    later(1.0, camera.silent.clear)


def _refusal(camera: RtspServer) -> None:
    camera.refuse()
    camera.hang_up()
    later(0.8, camera.accept)


def _other_size(camera: RtspServer) -> None:
    camera.size = (640, 480)
    camera.hang_up()


@pytest.mark.parametrize("loss", first(3, [_silence, RtspServer.hang_up, _other_size, RtspServer.reset, _refusal]))
def test_a_lost_source_comes_back_after_a_gap(
    loss: Callable[[RtspServer], None],
    camera: RtspServer,
    segmenter: Segmenter,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def watch(done: int, expected: int) -> None:
        if done == 15:
            loss(camera)

    output = tmp_path / "out.mp4"
    report = segmenter.run(camera.url(), output, max_frames=40, max_delay=10.0, progress=watch, **QUICK)
    found = codes(tmp_path / "out.mp4")
    assert report.frames == len(found) == 40 and report.reconnects >= 1 and report.complete and accounted(report)
    steps = [(other - number, then - shown) for (number, _, shown), (other, _, then) in pairwise(found)]
    assert all(frames > 0 and seconds > 0 for frames, seconds in steps)
    frames, seconds = max(steps)  # the gap stays a gap
    assert frames > 3 and seconds == pytest.approx(frames / camera.fps, abs=0.3)
    lines = [record.getMessage() for record in caplog.records if "trying to reconnect" in record.getMessage()]
    assert len(lines) == report.reconnects == len([r for r in caplog.records if r.name == "segmentation.live.reader"])
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert (file.streams.video[0].width, file.streams.video[0].height) == (320, 240)


@pytest.mark.parametrize("loss", [RtspServer.hang_up, RtspServer.reset])
def test_without_reconnecting_the_first_loss_ends_the_run(
    loss: Callable[[RtspServer], None], camera: RtspServer, segmenter: Segmenter, tmp_path: Path
) -> None:
    def watch(done: int, expected: int) -> None:
        if done == 15:
            loss(camera)

    report = segmenter.run(camera.url(), tmp_path / "out.mp4", reconnect="never", progress=watch)
    assert not report.complete and accounted(report)
    assert len(codes(tmp_path / "out.mp4")) == report.frames >= 15


def test_a_silent_source_can_be_stopped(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    stop = threading.Event()

    def watch(done: int, expected: int) -> None:
        if done == 6:
            camera.silent.set()
            later(0.7, stop.set)

    report = segmenter.run(camera.url(), tmp_path / "out.mp4", stop=stop, stall=PATIENT, progress=watch)
    assert report.complete and accounted(report) and len(codes(tmp_path / "out.mp4")) == report.frames > 5
    camera.silent.clear()
    timed: dict[str, Any] = {"duration": 1.0, "stall": PATIENT}  # which ends though no frame comes after it
    assert segmenter.run(
        camera.url(), tmp_path / "timed.mp4", progress=lambda done, expected: camera.silent.set(), **timed
    ).complete


LOST: dict[str, Any] = {"stall": 1.5, "max_delay": 60.0}
QUIET: dict[str, Any] = {"stall": 60.0, "max_delay": 0.3}


@pytest.mark.parametrize(("limits", "interval"), [(LOST, 0), (QUIET, 0), (QUIET, 3)])
def test_the_frames_before_a_silence_do_not_wait_for_the_source(
    limits: dict[str, Any], interval: int, segmenter: Segmenter, tmp_path: Path
) -> None:
    """Neither for those that smoothing looks ahead to, nor for the next frame that the network sees."""

    def watch(done: int, expected: int) -> None:
        if done == 15:
            camera.silent.set()

    def until(happened: Callable[[StreamStatus], bool]) -> StreamStatus:
        deadline = time.monotonic() + 240
        while not happened(status := segmenter.streams.monitors[-1].status()):
            assert time.monotonic() < deadline and not running.done(), status
            time.sleep(0.02)
        return status

    stop = threading.Event()
    recorded = recording(str(SAMPLE), (160, 120), 20, 1)[:5]  # bar codes would be a cut at each frame
    with RtspServer(size=(160, 120), fps=20, recorded=recorded) as camera, ThreadPoolExecutor(1) as pool:
        options: dict[str, Any] = {"smooth": 0.5, "interval": interval, "reconnect": "0.1..0.2", **limits}
        running = pool.submit(segmenter.run, camera.url(), tmp_path / "out.mkv", stop=stop, progress=watch, **options)
        try:
            while not camera.silent.wait(0.1):
                assert not running.done()
            status = until(lambda now: not now.waiting and (limits is QUIET or now.state == "lost"))
            assert status.shown + sum(status.dropped.values()) == status.received
            camera.silent.clear()
            until(lambda now: now.shown > status.shown)
        finally:
            stop.set()
    report = running.result()
    assert accounted(report) and len(times(tmp_path / "out.mkv")) == report.frames > status.shown


@pytest.mark.parametrize("scheme", ["rtsp", "rtmp"])
def test_a_source_that_is_silent_from_the_start_can_be_stopped(
    scheme: str, segmenter: Segmenter, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"{scheme}://127.0.0.1:{mute.getsockname()[1]}/live/cam"
        stop = threading.Event()
        later(0.3, stop.set)
        with pytest.raises(InputError, match="stopped before the first frame"):
            segmenter.run(url, tmp_path / "out.mp4", stop=stop, stall=PATIENT)
        with pytest.raises(InputError, match=r"silent for 0.5 s \(--stall\)$"):
            segmenter.run(url, tmp_path / "out.mp4", stall=0.5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("rtsp://127.0.0.1:1/cam", "the connection is refused"),
        ("rtsp://no-such-host.invalid/cam", "the host's name is not known"),
        ("rtmp://127.0.0.1:1/live/cam", "the connection is refused"),
        ("udp://127.0.0.1:{port}", "silent for 0.5 s (--stall)"),
        ("rtp://127.0.0.1:{port}", "silent for 0.5 s (--stall)"),
        ("srt://127.0.0.1", "the address has no port; write srt://HOST:PORT"),
        ("rtsp://127.0.0.1/a b", "the address has a space or line break; write it as %20"),
        ("/dev/video99", "no such device"),
    ],
)
def test_a_source_that_cant_be_opened_is_one_line(
    address: str, fault: str, segmenter: Segmenter, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        segmenter.run(address.format(port=_free_port()), tmp_path / "out.mp4", stall=0.5)
    assert str(caught.value).endswith(f": {fault}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["rtsp", "rtmp"])
def test_a_server_that_lets_nobody_get_anywhere_is_one_line(scheme: str, kind: str) -> None:
    faults = r"silent for 0\.5 s \(--stall\)|sends nothing that FFmpeg can read|Connection reset by peer|Broken pipe"
    with HostileServer(scheme, kind) as server, pytest.raises(InputError, match=faults):
        LiveReader(Source.parse(server.url), Access(stall=0.5)).describe()


@pytest.mark.parametrize("auth", ["Basic", "Digest"])
def test_passwords(auth: str, segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def watch(done: int, expected: int) -> None:
        if done == 5:
            camera.hang_up()

    caplog.set_level(logging.DEBUG)
    with RtspServer(auth=auth) as camera:
        for user in ("", f"{USER}:wrong"):
            with pytest.raises(InputError, match=r"user or password is missing or wrong \(401\)$"):
                segmenter.run(camera.url(user), tmp_path / "out.mp4")
        with pytest.raises(InputError, match=r"there is no such stream \(404\)$"):
            segmenter.run(camera.url(f"{USER}:{PASSWORD}", "other"), tmp_path / "out.mp4")
        options: dict[str, Any] = {"reconnect": "0.1..0.2", "stall": PATIENT, "progress": watch}
        report = segmenter.run(camera.url(f"{USER}:{PASSWORD}"), tmp_path / "out.mp4", max_frames=20, **options)
    assert report.reconnects == 1 and report.input == f"rtsp://***@127.0.0.1:{camera.port}/cam"
    assert PASSWORD not in caplog.text + str(report)


@pytest.mark.slow
def test_nothing_that_the_command_writes_has_the_password(tmp_path: Path) -> None:
    with RtspServer(auth="Digest") as camera:
        url = camera.url(f"{USER}:{PASSWORD}", f"cam?token={PASSWORD}")
        options = ["--json", "-v", "--results", "r.jsonl", "--trace", "t.json", "--reconnect", "0.1..1"]
        with start(url, "--max-frames", "30", *options, cwd=tmp_path) as done:
            done.until(lambda: len(camera.sent) > 10)
            camera.hang_up()
            stdout, stderr = done.communicate(timeout=240)
        failed = cli(camera.url(f"{USER}:{PASSWORD}x"), "--json", "-v", "-y", cwd=tmp_path)
    assert done.returncode == 0, stderr
    assert failed.returncode == 1 and "(401)" in failed.stderr and len(json.loads(failed.stdout)["error"]) < 120
    report = json.loads(stdout)
    assert report["output"] == "cam.segmented.mp4"
    assert report["received"] == report["frames"] + sum(report["dropped"].values())
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["cam.segmented.mp4", "r.jsonl", "t.json"]
    everything = stdout + stderr + failed.stdout + failed.stderr
    assert PASSWORD not in everything and not any(PASSWORD.encode() in file.read_bytes() for file in files)


@pytest.mark.parametrize("scheme", ["udp", "rtp"])
def test_mpeg_ts(scheme: str, segmenter: Segmenter, tmp_path: Path) -> None:
    url = f"{scheme}://127.0.0.1:{_free_port()}"
    with _sending(url):
        report = segmenter.run(url, tmp_path / "out.mkv", max_frames=30, max_delay=10.0)
    found = numbers(tmp_path / "out.mkv")
    assert report.frames == 30 and accounted(report) and report.damaged == 0
    assert found == list(range(found[0], found[0] + 30))


def test_two_cameras_at_once_of_which_one_is_silent(tmp_path: Path) -> None:
    with RtspServer() as gate, RtspServer() as hall:
        gate.silent.set()
        arguments = ["--max-frames", "5", "--stall", "120", "--json", "-o", f"{tmp_path}/"]
        done = [tmp_path / f"127.0.0.1-{camera.port}-cam.segmented.mp4" for camera in (gate, hall)]
        with start(gate.url(), hall.url(), *arguments) as process:
            process.until(done[1].exists)
            assert not done[0].exists()
            gate.silent.clear()
            out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    for report in map(json.loads, out.splitlines()):
        assert report["received"] == report["frames"] + sum(report["dropped"].values())
        assert len(codes(Path(report["output"]))) == report["frames"] == 5


def test_ctrl_c_completes_the_file_of_a_silent_camera(camera: RtspServer, tmp_path: Path) -> None:
    pictures = tmp_path / "%05d.png"  # files that are there at once
    with start(camera.url(), "-o", pictures, "--stall", str(PATIENT), "--json") as process:
        process.until(lambda: len([*tmp_path.rglob("*.png")]) > 3)
        camera.silent.set()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert json.loads(out)["frames"] == len([*tmp_path.glob("*.png")]) > 3


def test_a_loop_over_frames(camera: RtspServer, segmenter: Segmenter) -> None:
    frames = segmenter.frames(camera.url(), max_delay=10.0, stall=PATIENT)
    found = [barcode.read(frame.image[..., 1])[0] for frame, _ in zip(frames, range(10), strict=False)]
    camera.silent.set()
    frames.close()
    assert found == [number for number in camera.sent if found[0] <= number <= found[-1]]


def test_what_needs_a_beginning_is_refused(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    for option in ({"start": 1.0}, {"verify": True}):
        with pytest.raises(ConfigError, match="a live source"):
            segmenter.run(camera.url(), tmp_path / "out.mp4", **option)
    with pytest.raises(ConfigError, match="a live source has no beginning"):
        next(segmenter.frames(camera.url(), start=1.0))
    with Segmenter(model=keep, decode="pyav", **OPTIONS) as other, pytest.raises(ConfigError, match="reads files"):
        other.run(camera.url(), tmp_path / "out.mp4")


def test_where_the_gpu_lacks_nvenc_the_line_names_who_encodes(
    camera: RtspServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lacks(config: Config) -> str:
        raise LacksEngine("this GPU has no NVENC")

    monkeypatch.setattr(plan, "find_gpu", lambda: GpuInfo("NVIDIA H200", (9, 0)))
    monkeypatch.setattr(plan, "device_index", lambda config: 0)
    monkeypatch.setattr(plan, "nvenc_engine", lacks)
    info = probe_any(Source.parse(camera.url()), Access())
    assert info.live is not None
    try:
        config = Config(model=keep, decode="live", preprocess="opencv", postprocess="opencv")
        made = plan.make_plan(config, info, tmp_path / "out.mp4")
    finally:
        info.live.close()
    assert made.encode is not None and made.encode.name == "x264"
    assert caplog.messages == ["encode: x264 on the CPU (this GPU has no NVENC)"]


def test_decoders_of_live_sources_are_chosen_by_name(camera: RtspServer, tmp_path: Path) -> None:
    with Segmenter(model=keep, decode="live", **OPTIONS) as segmenter:
        assert segmenter.run(camera.url(), tmp_path / "out.mp4", max_frames=3).plan["decode"] == "live"
        with pytest.raises(BackendError, match="reads live sources"):
            segmenter.run(SAMPLE, tmp_path / "file.mp4")
    with Segmenter(model=keep, decode="live-nvdec", **OPTIONS) as segmenter, pytest.raises(BackendError):
        segmenter.run(camera.url(), tmp_path / "none.mp4")  # the device is the CPU
    with Segmenter(model=keep, decode="nvdec", **OPTIONS) as segmenter, pytest.raises(ConfigError, match="live-nvdec"):
        segmenter.run(camera.url(), tmp_path / "none.mp4")


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port & ~1  # RTP's are even


@contextmanager
def _sending(url: str) -> Iterator[None]:
    """MPEG-TS of pictures with bar codes goes to `url`, whoever reads it."""
    ended = threading.Event()

    def send() -> None:
        with av.open(url, "w", format="rtp_mpegts" if url.startswith("rtp") else "mpegts") as out:
            stream: Any = out.add_stream("libx264", rate=30)
            stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
            stream.options = {"preset": "ultrafast", "tune": "zerolatency", "g": "10"}
            begin = time.monotonic()
            number = 0
            while not ended.wait(max(0.0, begin + number / 30 - time.monotonic())):
                frame = barcode.drawn(number, (320, 240))
                frame.pts, frame.time_base = number, Fraction(1, 30)
                out.mux(stream.encode(frame))
                number += 1

    with ThreadPoolExecutor(1) as pool:
        sender = pool.submit(send)
        try:
            yield
        finally:
            ended.set()
            sender.result()
