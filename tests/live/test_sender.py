"""Connections that are sent to, each with a process: how long a server may hold it up."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from pipes import ENVIRONMENT, has_port

import av
import pytest
from av.packet import Packet
from av.stream import Stream
from child_processes import children
from hostile_server import HostileServer
from marks import first
from program import TIMEOUT

from segmentation.flow import threads
from segmentation.flow.threads import interrupt
from segmentation.live import sender as module
from segmentation.live.push_muxer import tee_to_rtmp
from segmentation.live.sender import Sender

LIMIT = 0.4  # seconds of a step
ERRORS = (av.error.FFmpegError, OSError, ValueError)


@pytest.fixture
def sender() -> Iterator[Sender]:
    made = Sender(threading.Event())
    yield made
    made.kill()


@pytest.fixture
def streams() -> Iterator[list[Stream]]:
    with av.open(BytesIO(), "w", format="flv") as model:
        video = model.add_stream("libx264", rate=25)
        video.width = video.height = 64
        video.pix_fmt = "yuv420p"
        model.add_stream("pcm_mulaw", rate=8000, layout="mono")
        model.start_encoding()
        yield list(model.streams)


def connect(sender: Sender, url: str, streams: list[Stream]) -> None:
    if url.startswith("rtmp"):
        sender.connect(tee_to_rtmp(url, {}, LIMIT), "tee", {}, LIMIT, streams)
    else:
        options = {"rtsp_transport": "tcp", "timeout": str(round(LIMIT * 1_000_000))}
        sender.connect(url, "rtsp", options, LIMIT, streams)


@pytest.mark.parametrize("scheme", first(1, ["rtsp", "rtmp"]))
@pytest.mark.parametrize("kind", ["mute", "endless", "drip", "reset"])
def test_no_server_holds_a_connection_for_longer_than_its_limit(
    scheme: str, kind: str, sender: Sender, streams: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WHOLE", 2.0)
    with HostileServer(scheme, kind) as server, pytest.raises(ERRORS):
        connect(sender, server.url, streams)
    assert sender.is_alive() == (kind in ("mute", "reset"))  # FFmpeg's own limits serve there


def test_once_the_run_is_to_end_a_server_gets_less_time(streams: list[Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", TIMEOUT)
    stop = threading.Event()
    sender, begin = Sender(stop), time.monotonic()
    with HostileServer("rtmp", "endless") as server:
        threading.Thread(target=lambda: (server.met.wait(), stop.set())).start()
        with pytest.raises(ConnectionError, match="the server holds up what it is sent"):
            connect(sender, server.url, streams)
    assert time.monotonic() - begin < TIMEOUT and not sender.is_alive()


def test_another_thread_ends_the_wait(streams: list[Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE", TIMEOUT)
    sender = Sender(threading.Event())
    with HostileServer("rtsp", "endless") as server:
        threading.Thread(target=lambda: (server.met.wait(), sender.kill())).start()
        with pytest.raises(OSError):
            connect(sender, server.url, streams)
    assert not sender.is_alive()


def test_an_interrupt_ends_the_wait(streams: list[Stream], monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--timeout` and a second Ctrl-C send it."""
    monkeypatch.setattr(module, "WHOLE", TIMEOUT)
    monkeypatch.setattr(threads, "_INTERRUPTED", 2 * TIMEOUT)  # the second one would end the killing
    sender, raised = Sender(threading.Event()), []

    def work() -> None:
        try:
            connect(sender, server.url, streams)
        except BaseException as exc:
            raised.append(type(exc))

    with HostileServer("rtmp", "endless") as server:
        thread = threading.Thread(target=work)
        thread.start()
        server.met.wait()
        interrupt([thread])
        thread.join()
    assert raised == [KeyboardInterrupt] and not sender.is_alive()


def test_a_process_that_stands_still_is_ended(
    sender: Sender, streams: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WHOLE", 1.0)
    (pid,) = children(module="sender_process")
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ConnectionError):
        connect(sender, "udp://127.0.0.1:9", streams)
    assert not sender.is_alive()


HELD = """
import sys, threading
from io import BytesIO
from pathlib import Path
import av
from segmentation.live.sender import Sender

with av.open(BytesIO(), "w", format="nut") as model:
    stream = model.add_stream("pcm_mulaw", rate=8000, layout="mono")
    model.start_encoding()
    Sender(threading.Event()).connect(sys.argv[1], "rtsp", {"rtsp_transport": "tcp"}, 1.0, [stream])
"""


@pytest.mark.slow
def test_a_process_that_is_held_up_ends_where_the_program_was_killed() -> None:
    with HostileServer("rtsp", "endless") as server:
        with subprocess.Popen([sys.executable, "-c", HELD, server.url], env=ENVIRONMENT) as process:
            assert server.met.wait(TIMEOUT)
            (pid,) = children(process.pid)
            process.kill()
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.05)


# A server in a process of its own, so that it can be stopped. It takes what is sent by RTMP.
RECEIVES = """
import sys
import av

with av.open(sys.argv[1], options={"listen": "1", "timeout": "30"}) as file:
    list(file.demux())
"""


@pytest.mark.slow
def test_a_server_that_takes_nothing_any_more_is_an_error(sender: Sender, streams: list[Stream]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"rtmp://127.0.0.1:{port}/live/x"
    with subprocess.Popen([sys.executable, "-c", RECEIVES, url]) as receiver:
        try:
            while not has_port(port):
                assert receiver.poll() is None
                time.sleep(0.01)
            connect(sender, url, streams)
            send(sender, streams[0], range(5))
            receiver.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):  # once the system's buffers are full
                send(sender, streams[0], range(5, 1000))
        finally:
            receiver.kill()
    assert sender.is_alive()


def send(sender: Sender, stream: Stream, numbers: range) -> None:
    for number in numbers:
        packet = Packet(bytes([0, 0, 0, 1, 0x65]) + bytes(100_000))
        packet.stream, packet.time_base = stream, Fraction(1, 25)
        packet.pts = packet.dts = number
        packet.is_keyframe = True
        sender.mux_one(packet)


def test_characters_of_an_address_that_tee_would_take_as_its_own() -> None:
    assert tee_to_rtmp(r"rtmp://h/a|b\c'd", {"flush_packets": "1"}, 0.5) == (
        r"[f=flv:flush_packets=1:rw_timeout=500000:tcp_nodelay=1]rtmp://h/a\|b\\c\'d"
    )
