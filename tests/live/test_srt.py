"""SRT as an input and as an output, with srt-live-transmit as the other end."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from pipes import has_port
from typing import Any

import av
import numpy as np
import pytest
from barcode import numbers
from child_processes import children
from live_runs import keep, running
from paths import ROOT
from rtsp_server import RtspServer
from segmented import descriptors
from srt_peer import MISSING, SrtPeer

from segmentation import InputError, OutputError, Segmenter
from segmentation.pipeline.stream_status import StreamStatus

pytestmark = pytest.mark.skipif(MISSING, reason="needs srt-live-transmit (Debian: srt-tools)")
PASSPHRASE, WRONG = "open-sesame", "open-barley"
QUICK: dict[str, Any] = {"reconnect": "0.1..0.2", "max_delay": 10.0}


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=keep, device="cpu", input_size=(64, 64), smooth=0.0) as made:
        made.masks(np.zeros((64, 64, 3), np.uint8))
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(segmenter: Segmenter) -> Iterator[None]:
    before = set(children()), descriptors(), threading.active_count()
    yield
    until(lambda: threading.active_count() <= before[2])
    assert set(children()) <= before[0] and descriptors() <= before[1]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def status(segmenter: Segmenter, source: str) -> StreamStatus:
    found = [monitor.status() for monitor in segmenter.streams.monitors if monitor.name == source]
    return found[-1] if found else StreamStatus(name=source, address="", state="connecting")


@pytest.mark.slow
def test_pictures_and_sound_arrive_in_order(segmenter: Segmenter, tmp_path: Path) -> None:
    peer, path = SrtPeer(f"&passphrase={PASSPHRASE}"), tmp_path / "out.mkv"
    with peer.sending():
        url = f"hall=SRT{peer.address[3:]}?passphrase={PASSPHRASE}&latency=60&streamid=#!::r=live,m=request"
        report = segmenter.run(url, path, max_frames=40, **QUICK)
    found = numbers(path)
    assert report.frames == 40 and report.damaged == 0 and found == list(range(found[0], found[0] + 40))
    with av.open(str(path)) as file:
        assert len(list(file.demux(audio=0))) > 20


@pytest.mark.slow
def test_a_listener_waits_for_its_caller(segmenter: Segmenter, tmp_path: Path) -> None:
    port, path = SrtPeer().port, tmp_path / "out.mkv"
    url = f"srt://127.0.0.1:{port}"
    with (
        RtspServer() as camera,
        ExitStack() as exits,
        running(segmenter, f"door={url}?mode=listener", path, stall=30.0, **QUICK),
    ):
        until(lambda: has_port(port))
        exits.enter_context(running(segmenter, camera.url(), url, **QUICK))
        until(lambda: status(segmenter, "door").shown > 20)
    found = numbers(path)
    assert len(found) > 20 and set(found) <= set(camera.sent) and found == sorted(found)


@pytest.mark.slow
def test_a_source_that_goes_and_comes_back(
    segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    peer, path = SrtPeer(f"&passphrase={PASSPHRASE}"), tmp_path / "out.mkv"
    with ExitStack() as exits:
        with peer.sending():
            url = f"{peer.address}?passphrase={PASSPHRASE}"
            reports = exits.enter_context(running(segmenter, f"gate={url}", path, **QUICK))
            until(lambda: status(segmenter, "gate").shown > 10)
        until(lambda: status(segmenter, "gate").state == "lost")
        with peer.sending():
            until(lambda: status(segmenter, "gate").reconnects == 1)
            shown = status(segmenter, "gate").shown
            until(lambda: status(segmenter, "gate").shown > shown + 10)
            exits.close()
    assert reports[0].reconnects == 1
    assert "gate: the source has closed the connection; trying to reconnect" in caplog.messages
    assert PASSPHRASE not in caplog.text + str(reports)


def test_a_source_that_sends_padding_alone_is_silent(segmenter: Segmenter, tmp_path: Path) -> None:
    peer = SrtPeer()
    with peer.padding(), pytest.raises(InputError, match=r": silent for 0.5 s \(--stall\)$"):
        segmenter.run(peer.address, tmp_path / "out.mkv", stall=0.5)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (f"?passphrase={WRONG}", "the connection is rejected (Incorrect passphrase)"),
        ("", "the connection is rejected (Password required or unexpected)"),
        (f"?passphrase={WRONG[:9]}", "a passphrase has 10 to 79 bytes"),
        ("?latency=x", "srt-live-transmit has ended with code 255: ConfigurePre: Success"),
    ],
)
def test_what_the_other_side_or_the_program_refuses_is_one_line(
    options: str, fault: str, segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    peer = SrtPeer(f"&passphrase={PASSPHRASE}")
    with peer.sending(), pytest.raises(InputError) as caught:
        segmenter.run(peer.address + options, tmp_path / "out.mkv")
    with RtspServer() as camera, peer.receiving(tmp_path / "in.ts"), pytest.raises(OutputError) as sent:
        segmenter.run(camera.url(), peer.address + options)
    assert str(caught.value).endswith(f": {fault}") and str(sent.value).endswith(f": can't be sent to ({fault})")
    assert WRONG[:9] not in caplog.text + str(caught.value) + str(sent.value)


@pytest.mark.slow
def test_a_port_at_which_nobody_listens(segmenter: Segmenter, tmp_path: Path) -> None:
    url = SrtPeer().address
    with pytest.raises(InputError, match=r": no answer, or the connection was closed at once$"):
        segmenter.run(url, tmp_path / "out.mkv")
    with RtspServer() as camera, pytest.raises(OutputError, match=r"can't be sent to \(no answer, or"):
        segmenter.run(camera.url(), url)


@pytest.mark.parametrize("options", ["127.0.0.1:{port}?mode=listener", ":{port}", "127.0.0.1:{port}?mode=rendezvous"])
def test_an_output_calls(options: str, segmenter: Segmenter) -> None:
    url = "srt://" + options.format(port=SrtPeer().port)
    with RtspServer() as camera, pytest.raises(OutputError, match="is not possible here; write mode=caller"):
        segmenter.run(camera.url(), url)


def test_without_the_program(segmenter: Segmenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r": needs the program srt-live-transmit \(Debian: srt-tools\)$"):
        segmenter.run("srt://127.0.0.1:5000", tmp_path / "out.mkv")
    with RtspServer() as camera, pytest.raises(OutputError, match=r"\(needs the program srt-live-transmit \(Debian"):
        segmenter.run(camera.url(), "srt://127.0.0.1:5000")


def test_what_is_sent_arrives_to_the_end(segmenter: Segmenter, tmp_path: Path) -> None:
    sender, receiver, path = SrtPeer(), SrtPeer(f"&passphrase={PASSPHRASE}"), tmp_path / "in.ts"
    with sender.sending(), receiver.receiving(path):
        url = f"{receiver.address}?passphrase={PASSPHRASE}"
        report = segmenter.run(sender.address, url, max_frames=60, **QUICK)
    found = numbers(path)
    assert report.complete and report.unsent == 0 and PASSPHRASE not in str(report)
    assert found == list(range(found[0], found[0] + 60))
    with av.open(str(path)) as file:
        assert len(list(file.demux(audio=0))) > 60


@pytest.mark.slow
def test_a_receiver_that_goes_and_comes_back(segmenter: Segmenter, tmp_path: Path) -> None:
    peer, first, second = SrtPeer(), tmp_path / "first.ts", tmp_path / "second.ts"
    with RtspServer() as camera, ExitStack() as exits:
        with peer.receiving(first):
            reports = exits.enter_context(running(segmenter, f"roof={camera.url()}", peer.address, **QUICK))
            until(lambda: first.stat().st_size > 15_000)
        until(lambda: status(segmenter, "roof").unsent > 5)
        with peer.receiving(second):
            until(lambda: second.stat().st_size > 15_000)
            exits.close()
    found = numbers(first), numbers(second)
    assert found[0][-1] < found[1][0] and set(found[0] + found[1]) <= set(camera.sent)
    assert found[1] == sorted(found[1]) and reports[0].unsent > 5


KILLED = """
import sys, time
from child_processes import children
from segmentation.live.srt import SrtOutput

SrtOutput(sys.argv[1], 10.0)
print(*children(), flush=True)
time.sleep(60)
"""


def test_a_killed_process_leaves_no_program(tmp_path: Path) -> None:
    peer = SrtPeer()
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    command = [sys.executable, "-c", KILLED, peer.address]
    with (
        peer.receiving(tmp_path / "in.ts"),
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as process,
    ):
        assert process.stdout is not None
        started = process.stdout.readline().split()
        process.kill()
        until(lambda: not any(runs(int(pid)) for pid in started))
    assert len(started) == 2


def runs(pid: int) -> bool:
    with suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False
