"""RTMP servers that stop: how long FFmpeg and this program wait for them."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from io import BytesIO
from pipes import has_port

import av
import pytest
from av.container import OutputContainer
from av.packet import Packet

from segmentation.media.rtmp import greet, tee_to_rtmp

LIMIT = 0.4  # seconds

# A server in a process of its own, since FFmpeg connects with the GIL. `last` is the last thing it does.
SERVES = """
import socket, sys, time

last = sys.argv[1]
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
server = listener.accept()[0]
hello = server.recv(1537, socket.MSG_WAITALL)
if last == "garbage":
    server.sendall(bytes([80]) * 4000)
else:
    server.sendall(hello + hello[1:])
    server.recv(1536, socket.MSG_WAITALL)
if last == "close":
    sys.exit()
time.sleep(10)
"""


@contextmanager
def serving(last: str) -> Iterator[int]:
    """A server that answers the handshake and then falls silent, closes or sends no RTMP, at the port of this value."""
    with subprocess.Popen([sys.executable, "-c", SERVES, last], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def connection(port: int) -> OutputContainer:
    model = av.open(BytesIO(), "w", format="flv")
    stream = model.add_stream("libx264", rate=25)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    model.start_encoding()
    made = av.open(tee_to_rtmp(f"rtmp://127.0.0.1:{port}/live/x", {}, LIMIT), "w", format="tee")
    made.add_stream_from_template(stream)
    return made


@pytest.mark.parametrize("last", ["silent", "close", "garbage"])
def test_a_server_that_stops_amid_the_connection_is_an_error_in_time(last: str) -> None:
    with serving(last) as port:
        made = connection(port)
        with pytest.raises(av.error.FFmpegError):
            made.start_encoding()


RECEIVES = """
import sys
import av

with av.open(sys.argv[1], options={"listen": "1", "timeout": "30"}) as file:
    list(file.demux())
"""


def test_a_server_that_takes_nothing_any_more_is_an_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", RECEIVES, f"rtmp://127.0.0.1:{port}/live/x"]
    with subprocess.Popen(command) as receiver:
        late = threading.Timer(240, receiver.kill)  # ends a wait without a limit
        late.start()
        try:
            while not has_port(port):
                assert receiver.poll() is None
                time.sleep(0.01)
            made = connection(port)
            made.start_encoding()
            send(made, range(5))
            receiver.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                send(made, range(5, 1000))
            made.close()
        finally:
            late.cancel()
            receiver.kill()


def send(made: OutputContainer, numbers: range) -> None:
    for number in numbers:
        packet = Packet(bytes([0, 0, 0, 1, 0x65]) + bytes(100_000))
        packet.stream, packet.time_base = made.streams[0], Fraction(1, 25)
        packet.pts = packet.dts = number
        packet.is_keyframe = True
        made.mux_one(packet)


@pytest.mark.parametrize(
    ("answer", "error"), [(b"\x03", None), (b"HTTP/1.1 400 Bad Request", ValueError), (b"", ValueError)]
)
def test_a_greeting_tells_a_server_of_rtmp(answer: bytes, error: type[Exception] | None) -> None:
    def serve() -> None:
        with listener.accept()[0] as server:
            server.recv(1537, socket.MSG_WAITALL)
            server.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(error) if error is not None else nullcontext():
            greet(listener.getsockname(), 20)
        thread.join()


def test_a_greeting_waits_no_longer_than_its_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            greet(mute.getsockname(), LIMIT)
        assert time.monotonic() - begin >= LIMIT
    with pytest.raises(ConnectionRefusedError):
        greet(("127.0.0.1", 1), LIMIT)


def test_characters_of_an_address_that_tee_would_take_as_its_own() -> None:
    assert tee_to_rtmp(r"rtmp://h/a|b\c'd", {"flush_packets": "1"}, 0.5) == (
        r"[f=flv:flush_packets=1:rw_timeout=500000:tcp_nodelay=1]rtmp://h/a\|b\\c\'d"
    )
