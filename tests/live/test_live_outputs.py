"""Outputs of live sources: files that are cut, their names, and addresses that video is sent to."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from pipes import ENVIRONMENT, has_port
from typing import Any
from urllib.request import urlopen

import av
import barcode
import numpy as np
import pytest
from hostile_server import HostileServer
from live_runs import running
from marks import first
from numpy.typing import NDArray
from paths import ROOT
from program import TIMEOUT, cli, start
from rtsp_server import PASSWORD, USER, RtspServer

from segmentation import ConfigError, OutputError, Segmenter

SUPPORT = ENVIRONMENT | {"PYTHONPATH": str(ROOT / "tests" / "support")}


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0}
    with Segmenter(model=keep, **options) as made:
        yield made


def frames_of(path: Path) -> list[tuple[int, float]]:
    """Of each frame of a file its number, and when it is shown, in seconds."""
    with av.open(str(path)) as file:
        return [(barcode.read(f.to_ndarray(format="gray"))[0], float(f.time or 0)) for f in file.decode(video=0)]


def test_files_are_cut_at_keyframes_and_lack_nothing(segmenter: Segmenter, tmp_path: Path) -> None:
    with RtspServer(fps=30) as camera:
        pattern = tmp_path / "%Y" / "{name}-%Y%m%d.mkv"
        options: dict[str, Any] = {"cut_every": 2.0, "max_frames": 75, "max_delay": 10.0}
        also = [("mask", tmp_path / "{name}-mask.mkv")]
        report = segmenter.run("hall=" + camera.url(), pattern, also=also, **options)
    year = time.strftime("%Y")
    assert report.input == "hall" and report.output == str(tmp_path / "%Y" / "hall-%Y%m%d.mkv")
    parts = sorted((tmp_path / year).iterdir(), key=lambda path: (len(path.name), path.name))
    names = ["hall-DATE.mkv", *[f"hall-DATE-{number}.mkv" for number in range(2, len(parts) + 1)]]
    assert len(parts) > 1 and [re.sub(r"\d{8}", "DATE", path.name) for path in parts] == names
    found = [frames_of(part) for part in parts]
    assert all(part[0][1] == 0 for part in found)
    for part, (after, *_) in pairwise(found):  # a slow camera leaves pictures out, so that there are more parts
        number, last = part[-1]
        assert last < 2.1 and last + (after[0] - number) / 30 > 1.9
    numbers = [number for part in found for number, _ in part]
    assert len(numbers) == report.frames == 75 and numbers == sorted(set(numbers))
    masks = sorted(map(str, tmp_path.glob("hall-mask*.mkv")), key=len)
    assert report.parts == {report.output: tuple(map(str, parts)), report.also[0]: tuple(masks)}
    assert len(masks) == len(parts)


def test_no_part_replaces_a_file(segmenter: Segmenter, tmp_path: Path) -> None:
    (tmp_path / "hall.mkv").write_text("an earlier recording")
    with RtspServer() as camera:
        segmenter.run(f"hall={camera.url()}", tmp_path / "{name}.mkv", cut_every=60, max_frames=5, overwrite=True)
    assert (tmp_path / "hall.mkv").read_text() == "an earlier recording"
    assert len(frames_of(tmp_path / "hall-2.mkv")) == 5


@pytest.mark.slow
def test_a_killed_process_leaves_all_but_the_last_second(tmp_path: Path) -> None:
    with RtspServer(auth="Basic", fps=30) as camera:
        source = f"hall={camera.url(f'{USER}:{PASSWORD}')}"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            status = f"127.0.0.1:{probe.getsockname()[1]}"
        options = ["-o", tmp_path / "{name}-%H.mkv", "--cut-every", "1:00", "--smooth", "0", "--status", status]

        def shown() -> int:
            with suppress(OSError), urlopen(f"http://{status}/streams") as answer:
                return sum(one["shown"] for one in json.loads(answer.read()))
            return 0

        with start(source, *options) as process:
            process.until(lambda: shown() > 4 * camera.fps)
            count = shown()
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=240)
    (file,) = tmp_path.iterdir()
    numbers = [number for number, _ in frames_of(file)]
    assert re.fullmatch(r"hall-\d\d\.mkv", file.name) and numbers == sorted(set(numbers))
    assert len(numbers) > count - 2 * camera.fps  # a cluster of a second, and what is on its way


def test_the_command_names_files_and_reports_by_the_sources_names(tmp_path: Path) -> None:
    here = tmp_path / "50%Y"  # only the output's own name is a pattern
    here.mkdir()
    with RtspServer(auth="Digest") as hall, RtspServer() as gate:
        sources = [f"hall={hall.url(f'{USER}:{PASSWORD}')}", f"gate={gate.url()}"]
        arguments = ["--max-frames", "5", "--json", "-v", "--cut-every", "60", "--results", "lines/"]
        with start(*sources, "-o", "rec/{name}-%Y.mkv", *arguments, cwd=here) as process:
            out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert sorted(json.loads(line)["input"] for line in out.splitlines()) == ["gate", "hall"]
    year = time.strftime("%Y")
    names = sorted(str(path.relative_to(here)) for path in here.rglob("*.*"))
    assert names == ["lines/gate.jsonl", "lines/hall.jsonl", f"rec/gate-{year}.mkv", f"rec/hall-{year}.mkv"]
    assert PASSWORD not in out + err
    for name in ("gate", "hall"):
        file = f"rec/{name}-{year}.mkv"
        assert re.search(rf"^{file}: 5 frames in .*, {(here / file).stat().st_size / 1e6:.2g} MB$", err, re.M), err


@pytest.mark.parametrize("name", ["out.mp4", "out.png"])
def test_only_matroska_is_cut(name: str, segmenter: Segmenter, tmp_path: Path) -> None:
    with RtspServer() as camera, pytest.raises(OutputError, match=r"end in \.mkv; name such a file with -o"):
        segmenter.run(camera.url(), tmp_path / name, cut_every=60)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cant_be_made_is_one_line(segmenter: Segmenter, tmp_path: Path) -> None:
    (tmp_path / "rec").write_text("a file")
    with RtspServer() as camera, pytest.raises(OutputError, match=r"out\.mkv: cannot be written \(File exists\)"):
        segmenter.run(camera.url(), tmp_path / "rec" / "out.mkv", cut_every=60)


def test_an_output_that_fails_is_one_line_and_the_parts_before_stay(segmenter: Segmenter, tmp_path: Path) -> None:
    folder, moved = tmp_path / "rec", tmp_path / "moved"

    def replace(done: int, expected: int) -> None:
        if done == 40:
            folder.rename(moved)
            folder.write_text("a file")

    with RtspServer() as camera, pytest.raises(OutputError, match=r"cannot be written \(File exists\)"):
        segmenter.run(camera.url(), folder / "out.mkv", cut_every=2, max_frames=200, max_delay=10, progress=replace)
    # A part may end just before the 40th frame, of which the encoder still holds some of its neighbors.
    assert sum(len(frames_of(part)) for part in moved.glob("*.mkv")) > 30


def test_files_as_inputs_are_not_cut(segmenter: Segmenter, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is for live sources; leave out --cut-every"):
        segmenter.run("samples/astronaut.mp4", tmp_path / "out.mkv", cut_every=60)


RECEIVES = """
import sys
import av, barcode

url = sys.argv[1]
listening = {"rtsp": {"rtsp_flags": "listen", "listen_timeout": "30"}, "rtmp": {"listen": "1", "timeout": "30"}}
listening["rtmp"]["analyzeduration"] = "500000"  # microseconds; until then FFmpeg looks for more streams
with av.open(url, options=listening.get(url[:4], {})) as file:
    print(file.streams.video[0].codec_context.name)
    for frame, _ in zip(file.decode(video=0), range(20)):
        print(barcode.read(frame.to_ndarray(format="gray"))[0], flush=True)
"""


@pytest.mark.parametrize("scheme", ["rtsp", "rtmp", "udp"])
def test_the_result_is_sent_to_an_address(scheme: str, segmenter: Segmenter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"{scheme}://127.0.0.1:{port}" + "/live/cam" * (scheme != "udp")
    command = [sys.executable, "-c", RECEIVES, url]
    stop = threading.Event()
    with RtspServer() as camera, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=SUPPORT) as receiver:
        while not has_port(port):
            assert receiver.poll() is None
            time.sleep(0.01)
        threading.Thread(target=lambda: (receiver.wait(240), stop.set())).start()
        with suppress(OutputError):  # the receiver closes the connection when it has enough
            segmenter.run(camera.url(), url, stop=stop, max_delay=10.0)
        assert receiver.stdout is not None
        codec, *numbers = receiver.stdout.read().split()
    found = [int(number) for number in numbers]
    assert codec == "h264" and len(found) == 20
    assert found == [number for number in camera.sent if found[0] <= number <= found[-1]]


def _received(process: subprocess.Popen[str]) -> list[int]:
    """The numbers of the frames that a receiver has shown, at its end."""
    out, _ = process.communicate(timeout=240)
    return [int(number) for number in out.split()[1:]]


@pytest.mark.parametrize("scheme", first(1, ["rtsp", "rtmp", "udp"]))
def test_a_lost_output_is_connected_again(
    scheme: str, segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on meanwhile, and so does the file beside the address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"{scheme}://127.0.0.1:{port}" + "/live/cam" * (scheme != "udp")
    stop, first_receiver, found = threading.Event(), _receiver(url), []
    _listens(first_receiver, port)

    def receive() -> None:
        try:
            found.append(_received(first_receiver))
            while scheme != "udp" and not segmenter.streams.monitors[-1].status().unsent:
                time.sleep(0.01)
            found.append(_received(_receiver(url)))  # it may be connected to as soon as it listens
        finally:
            stop.set()

    with RtspServer() as camera:
        thread = threading.Thread(target=receive)
        thread.start()
        also = [("blur", tmp_path / "whole.mkv")]
        options: dict[str, Any] = {"max_delay": 10.0, "reconnect": "0.1..0.2"}
        report = segmenter.run(camera.url(), url, stop=stop, also=also, **options)
        thread.join()
    first, second = found
    assert len(first) == len(second) == 20 and first[-1] < second[0] and set(first + second) <= set(camera.sent)
    whole = [number for number, _ in frames_of(tmp_path / "whole.mkv")]
    assert len(whole) == report.frames and whole == sorted(set(whole)) and set(first + second) <= set(whole)
    assert report.received == report.frames + sum(report.dropped.values())
    lines = [record for record in caplog.records if record.name.endswith("push_muxer") and record.levelname != "INFO"]
    if scheme != "udp":
        assert report.unsent > 0 and len(lines) <= 2 and "trying to reconnect" in lines[0].getMessage()
        assert not report.complete


def _receiver(url: str) -> subprocess.Popen[str]:
    """A program that shows 20 frames of what is sent to an address."""
    return subprocess.Popen([sys.executable, "-c", RECEIVES, url], stdout=subprocess.PIPE, text=True, env=SUPPORT)


def _listens(receiver: subprocess.Popen[str], port: int) -> None:
    while not has_port(port):
        assert receiver.poll() is None
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["rtsp", "rtmp"])
def test_a_server_that_answers_without_end_holds_up_no_other_run(
    scheme: str, segmenter: Segmenter, tmp_path: Path
) -> None:
    held, beside = threading.Event(), tmp_path / "beside.mkv"

    def shown() -> int:
        return sum(monitor.status().shown for monitor in segmenter.streams.monitors if monitor.name == "beside")

    def watch() -> None:
        server.met.wait()
        before = shown()
        while shown() < before + 20:
            time.sleep(0.01)
        held.set()

    with (
        RtspServer() as camera,
        RtspServer() as other,
        HostileServer(scheme, "endless") as server,
        running(segmenter, f"beside={other.url()}", beside, max_delay=10.0),
    ):
        thread = threading.Thread(target=watch)
        thread.start()
        with pytest.raises(OutputError, match=r"can't be sent to \(the server holds up what it is sent\)"):
            segmenter.run(camera.url(), server.url, stop=held)
        thread.join()
    assert held.is_set()


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_program_while_a_server_answers_without_end(ends: signal.Signals, code: int) -> None:
    with (
        RtspServer() as camera,
        HostileServer("rtmp", "endless") as server,
        start(camera.url(), "-o", server.url) as process,
    ):
        process.until(server.met.is_set)
        process.send_signal(ends)
        _, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == code and "Traceback" not in err, err


@pytest.mark.parametrize("scheme", ["rtsp", "rtmp"])
def test_without_reconnecting_a_lost_output_ends_the_run(scheme: str, segmenter: Segmenter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"{scheme}://127.0.0.1:{port}/live/cam"
    with RtspServer() as camera, _receiver(url) as receiver:
        _listens(receiver, port)
        reading = threading.Thread(target=_received, args=(receiver,))
        reading.start()
        with pytest.raises(OutputError, match=r"can't be sent to|cannot be written"):
            segmenter.run(camera.url(), url, max_delay=10.0, reconnect="never")
        reading.join()


def test_a_lost_output_without_a_thread_to_reconnect_ends_the_run(
    segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "segmentation-reconnection":
            raise RuntimeError("can't start new thread")
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"rtmp://127.0.0.1:{port}/live/cam"
    with RtspServer() as camera, _receiver(url) as receiver:
        _listens(receiver, port)
        reading = threading.Thread(target=_received, args=(receiver,))
        reading.start()
        with pytest.raises(OutputError, match=r"can't reconnect \(can't start new thread\)$"):
            segmenter.run(camera.url(), url, max_delay=10.0, reconnect="0.1..0.2")
        reading.join()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rtsp://someone:sesame@127.0.0.1:1/x", "Connection refused"),
        ("rtsp://no-such-host.invalid/x", "the host's name is not known"),
        ("rtsp://127.0.0.1:{mute}/x", "no answer that FFmpeg can read"),
        ("rtmp://someone:sesame@127.0.0.1:1/live/x", "Connection refused"),
        ("rtmp://no-such-host.invalid/live/x", "the host's name is not known"),
        ("rtmp://127.0.0.1:{mute}/live/x", "silent for too long"),
    ],
)
def test_an_address_that_takes_nothing_is_one_line(url: str, reason: str, segmenter: Segmenter) -> None:
    refused = pytest.raises(OutputError)
    with RtspServer() as camera, socket.create_server(("127.0.0.1", 0)) as mute, refused as caught:
        segmenter.run(camera.url(), url.format(mute=mute.getsockname()[1]), stall=0.5)
    assert str(caught.value).endswith(f": can't be sent to ({reason})") and PASSWORD not in str(caught.value)


def test_what_cant_be_sent_is_refused(segmenter: Segmenter) -> None:
    with pytest.raises(ConfigError, match="takes live sources"):
        segmenter.run("samples/astronaut.mp4", "rtsp://127.0.0.1:1/x")
    with pytest.raises(ConfigError, match="is for files"):
        segmenter.run("rtsp://127.0.0.1:1/x", "udp://127.0.0.1:9", cut_every=60)
    with pytest.raises(ConfigError, match="leave out --low-delay"):
        segmenter.run("samples/astronaut.mp4", low_delay=True)
    with pytest.raises(ConfigError, match="av1 holds back frames"):
        segmenter.run("rtsp://127.0.0.1:1/x", low_delay=True, codec="av1")
    with RtspServer() as camera, pytest.raises(OutputError, match="RTMP takes h264, not hevc"):
        segmenter.run(camera.url(), "rtmp://127.0.0.1:1/live/x", codec="hevc")
    done = cli("rtsp://127.0.0.1:1/a", "-o", "rtmps://user:sesame@127.0.0.1:1/live/x")
    assert done.returncode == 2 and "rtmps://***@127.0.0.1:1/live/x: can't be sent to" in done.stderr
    done = cli("rtsp://127.0.0.1:1/a", "rtsp://127.0.0.1:1/b", "-o", "rtsp://user:sesame@127.0.0.1:1/x")
    assert done.returncode == 2 and "several inputs need an address each; write {name} in it" in done.stderr
    assert PASSWORD not in done.stderr
