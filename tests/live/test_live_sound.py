"""Sound of live sources in the outputs: the camera's packets, at the time of the pictures that came with them."""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from pipes import ENVIRONMENT, has_port
from typing import Any

import av
import barcode
import numpy as np
import pytest
from live_runs import keep
from marks import first
from mpegts import FPS, send
from numpy.typing import NDArray
from rtsp_server import RtspServer

from segmentation import OutputError, Segmenter

OPTIONS: dict[str, Any] = {"max_delay": 10.0}


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=keep, device="cpu", input_size=(64, 64), smooth=0.0) as made:
        made.masks(np.zeros((64, 64, 3), np.uint8))
        yield made


def levels() -> list[int]:
    """The levels of all bytes of G.711 (mu-law), by ITU-T G.711: 14 bits, here of 16."""

    def level(byte: int) -> int:
        byte ^= 0xFF
        size = ((byte & 15) << 3 | 0x84) << (byte >> 4 & 7)
        return 0x84 - size if byte & 0x80 else size - 0x84

    return [level(byte) for byte in range(256)]


LEVELS = levels()
SILENCE = LEVELS.index(0)


def heard(path: Path) -> list[tuple[int, float]]:
    """Of each stretch of the sound the number, modulo 256, of the picture it came with, and its time in seconds."""
    with av.open(str(path)) as file:
        stream = file.streams.audio[0]
        codec = stream.codec_context
        assert codec.name == ("pcm_mulaw" if path.suffix == ".mov" else "pcm_s16le") and codec.sample_rate == 8000
        samples = [
            (level, float(frame.time or 0) + i / 8000)
            for frame in file.decode(stream)
            for i, level in enumerate(frame.to_ndarray()[0].tolist())
        ]
    found = [(LEVELS.index(level), at) for level, at in samples]
    return [new for i, new in enumerate(found) if not i or new[0] != found[i - 1][0]]


def seen(path: Path) -> list[tuple[int, float]]:
    """Of each picture its number and its time in seconds."""
    with av.open(str(path)) as file:
        return [(barcode.read(f.to_ndarray(format="gray"))[0], float(f.time or 0)) for f in file.decode(video=0)]


def check_in_step(path: Path, lost: int = 0, apart: float = 0.015) -> None:
    """Every picture has its sound, at its time, but for the first, for which RTSP states no time, and the last.

    `lost` others may have none. Times may be `apart`, in seconds.
    """
    sound = {}
    for number, at in heard(path):
        assert number == SILENCE or number not in sound, "no sound is heard twice"
        sound[number] = at
    pictures = seen(path)
    assert pictures
    # On a busy machine the first one comes late, and those that have caught up with it follow a millisecond apart.
    settled = [(number, at) for number, at in pictures[1:-1] if at > 0.5]
    assert settled
    assert len([number for number, _ in settled if number & 0xFF not in sound]) <= lost
    for number, at in settled:
        assert sound.get(number & 0xFF, at) == pytest.approx(at, abs=apart)
    others = len(sound.keys() - {SILENCE})
    assert others <= len(pictures) + 1, "nothing is heard before the first picture or after the last"


@pytest.mark.parametrize("name", ["out.mkv", "out.mov"])
def test_sound_is_heard_with_its_pictures(name: str, segmenter: Segmenter, tmp_path: Path) -> None:
    also = [("mask", tmp_path / "mask.mkv")]
    with RtspServer(fps=FPS, sound=True) as camera:
        segmenter.run(camera.url(), tmp_path / name, also=also, max_frames=45, **OPTIONS)
    check_in_step(tmp_path / name)
    assert len(heard(tmp_path / "mask.mkv")) == pytest.approx(45, abs=1)


def test_sound_is_heard_from_the_first_picture_on(tmp_path: Path) -> None:
    """The outputs open long after the source has begun to send: the network is slow at first."""
    delays = iter([1.0])

    def slow(batch: NDArray[np.float32]) -> NDArray[np.float32]:
        time.sleep(next(delays, 0.0))
        return keep(batch)

    with RtspServer(fps=FPS, sound=True) as camera, Segmenter(model=slow, device="cpu", input_size=(64, 64)) as made:
        made.run(camera.url(), tmp_path / "a.mkv", max_frames=20, **OPTIONS)
    pictures, sound = seen(tmp_path / "a.mkv"), heard(tmp_path / "a.mkv")
    assert sound[0][0] in [number & 0xFF for number, _ in pictures[:2]]  # RTSP states no time for the first


def test_sound_is_cut_with_the_pictures(segmenter: Segmenter, tmp_path: Path) -> None:
    with RtspServer(fps=FPS, sound=True) as camera:
        segmenter.run(camera.url(), tmp_path / "a.mkv", cut_every=2.0, max_frames=90, **OPTIONS)
    parts = [tmp_path / "a.mkv", tmp_path / "a-2.mkv"]
    assert [seen(part)[0][1] for part in parts] == [0, 0]
    for part in parts:
        check_in_step(part)
    whole = [number for part in parts for number, _ in heard(part)]
    sent = [number & 0xFF for number in camera.sent]
    first = sent.index(whole[0])
    assert whole == sent[first : first + len(whole)], "nothing is lost at the cut"


@pytest.mark.slow  # on a busy machine the camera's numbers begin anew within the recording
@pytest.mark.parametrize("name", ["a.mkv", "a.mov"])
def test_sound_goes_on_after_a_loss(name: str, segmenter: Segmenter, tmp_path: Path) -> None:
    """Matroska keeps the sound's times. MOV keeps none of PCM, so the gap is filled."""

    def lose(done: int, expected: int) -> None:
        if done == 20:
            camera.reset()

    with RtspServer(fps=FPS, sound=True) as camera:
        report = segmenter.run(
            camera.url(), tmp_path / name, progress=lose, max_frames=60, reconnect="0.3..0.3", **OPTIONS
        )
    assert report.reconnects == 1
    # The loss took the sound of a picture, and RTSP states no time for the first picture behind the loss either.
    check_in_step(tmp_path / name, lost=1, apart=0.1)
    sound = [(number, at) for number, at in heard(tmp_path / name) if number != SILENCE]
    gaps = [(b - a, (m - n) & 0xFF) for (n, a), (m, b) in pairwise(sound)]
    longest = max(gaps)
    assert longest[0] > 0.25 and longest[0] == pytest.approx(longest[1] / FPS, abs=0.1), "a gap stays a gap"
    assert all(later > 0 for later, _ in gaps)


def test_an_output_that_holds_no_such_sound_says_so(
    segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RtspServer(fps=FPS, sound=True) as camera, caplog.at_level(logging.WARNING):
        segmenter.run("hall=" + camera.url(), tmp_path / "a.webm", max_frames=10, **OPTIONS)
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"hall: its sound (audio pcm_mulaw) is left out, since {tmp_path / 'a.webm'} can't hold it"]
    with av.open(str(tmp_path / "a.webm")) as file:
        assert not file.streams.audio


def free_port() -> int:
    """Returns a port that is free for TCP and for UDP."""
    with socket.create_server(("127.0.0.1", 0)) as probe, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(probe.getsockname())
        return int(probe.getsockname()[1])


@contextmanager
def sending(url: str) -> Iterator[None]:
    """MPEG-TS with bar codes and AAC goes to `url`, see `mpegts.send`."""
    ended = threading.Event()
    thread = threading.Thread(target=send, args=(url, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4"])
def test_aac_of_mpeg_ts(name: str, segmenter: Segmenter, tmp_path: Path) -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    with sending(url):
        segmenter.run(url, tmp_path / name, max_frames=60, **OPTIONS)
    pictures = seen(tmp_path / name)
    offset = pictures[5][0] / FPS - pictures[5][1]  # seconds from the output's clock to the sender's
    with av.open(str(tmp_path / name)) as file:
        loud = []
        for frame in file.decode(audio=0):
            samples = frame.to_ndarray()[0]
            if np.abs(samples).max() > 0.1:
                loud.append(float(frame.time or 0) + offset)
    assert loud
    assert all((at + 0.06) % 1 < 0.2 for at in loud), "the tone is heard in the first tenth of each second"


RECEIVES = """
import sys
import av

url = sys.argv[1]
listening = {"rtsp": {"rtsp_flags": "listen", "listen_timeout": "30"}, "rtmp": {"listen": "1", "timeout": "30"}}
listening["rtmp"]["analyzeduration"] = "500000"  # microseconds; until then FFmpeg looks for more streams
with av.open(url, options=listening.get(url[:4], {})) as file:
    print(*(stream.codec_context.name for stream in file.streams), flush=True)
    audio = [packet for packet, _ in zip(file.demux(), range(60)) if packet.stream.type == "audio"]
    print(*(bytes(packet)[0] for packet in audio))
"""


@pytest.mark.parametrize(
    ("scheme", "codec"), first(2, [("rtsp", "pcm_mulaw"), ("rtmp", "aac"), ("rtmp", "pcm_mulaw"), ("udp", "aac")])
)
def test_sound_is_sent_to_an_address(scheme: str, codec: str, segmenter: Segmenter) -> None:
    """G.711 to servers, and AAC. In MPEG-TS, FFmpeg would write G.711 as data that nobody can read."""
    sent, received = free_port(), free_port()
    url = f"{scheme}://127.0.0.1:{received}" + "/live/cam" * (scheme != "udp")
    stop = threading.Event()
    with ExitStack() as exits:
        if codec == "pcm_mulaw":
            camera = exits.enter_context(RtspServer(fps=FPS, sound=True))
            source = camera.url()
        else:
            source = f"udp://127.0.0.1:{sent}"
            exits.enter_context(sending(source))
        command = [sys.executable, "-c", RECEIVES, url]
        receiver = exits.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT))
        while not has_port(received):
            assert receiver.poll() is None
            time.sleep(0.01)
        threading.Thread(target=lambda: (receiver.wait(240), stop.set())).start()
        with suppress(OutputError):  # the receiver closes the connection when it has enough
            segmenter.run(source, url, stop=stop, **OPTIONS)
        assert receiver.stdout is not None
        codecs, packets = receiver.stdout.read().splitlines()
    assert codecs == f"h264 {codec}"
    if codec == "pcm_mulaw":
        numbers = [int(number) for number in packets.split()]
        sent = [number & 0xFF for number in camera.sent]  # a busy machine's camera leaves frames out
        first = sent.index(numbers[0])
        assert len(numbers) > 20 and numbers == sent[first : first + len(numbers)]


def test_sound_that_nobody_could_read_is_left_out(segmenter: Segmenter, caplog: pytest.LogCaptureFixture) -> None:
    with RtspServer(fps=FPS, sound=True) as camera, caplog.at_level(logging.WARNING):
        segmenter.run("hall=" + camera.url(), f"udp://127.0.0.1:{free_port()}", max_frames=10, **OPTIONS)
    assert any("its sound (audio pcm_mulaw) is left out" in record.getMessage() for record in caplog.records)
