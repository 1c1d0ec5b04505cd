"""RTMP with a server that others wrote, as an output and as an input."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import barcode
import numpy as np
import pytest
from nginx_rtmp import MISSING, NginxRtmp
from numpy.typing import NDArray
from rtsp_server import RtspServer

from segmentation import OutputError, Report, Segmenter

pytestmark = pytest.mark.skipif(MISSING, reason="needs nginx with its RTMP module (Debian: libnginx-mod-rtmp)")


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(model=keep, device="cpu", input_size=(64, 64), smooth=0.0) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NginxRtmp]:
    folder = tmp_path / "nginx"
    folder.mkdir()
    with NginxRtmp(folder) as made:
        yield made


@contextmanager
def sending(segmenter: Segmenter, camera: RtspServer, url: str, **options: Any) -> Iterator[list[Report]]:
    """A run that sends a camera to an address while the context lasts. Its report is in the list after that."""
    stop, reports = threading.Event(), []

    def run() -> None:
        reports.append(segmenter.run(camera.url(), url, stop=stop, max_delay=10.0, **options))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        thread.join()


def read(segmenter: Segmenter, url: str, path: Path) -> list[int]:
    """The numbers of 20 pictures that the program reads from an address, once somebody publishes there."""
    segmenter.run(url, path, max_frames=20, max_delay=10.0, overwrite=True)
    with av.open(str(path)) as file:
        return [barcode.read(frame.to_ndarray(format="gray"))[0] for frame in file.decode(video=0)]


def test_nginx_passes_the_result_on(segmenter: Segmenter, server: NginxRtmp, tmp_path: Path) -> None:
    """The address has what FFmpeg's muxer `tee` would take for its own, if it were not quoted."""
    url, path = server.url("it's|the,cam:\\1"), tmp_path / "read.mkv"
    with RtspServer(sound=True) as camera, sending(segmenter, camera, url) as reports:
        found = read(segmenter, url, path)
    assert len(found) == 20 and found == [number for number in camera.sent if found[0] <= number <= found[-1]]
    with av.open(str(path)) as file:
        assert [stream.codec_context.name for stream in file.streams] == ["h264", "pcm_s16le"]  # of G.711
        assert len(list(file.demux(audio=0))) > 10
    assert reports[0].complete and reports[0].unsent == 0


@pytest.mark.slow
def test_nginx_that_is_started_again_gets_the_rest(segmenter: Segmenter, server: NginxRtmp, tmp_path: Path) -> None:
    url, path = server.url("cam"), tmp_path / "read.mkv"
    with RtspServer() as camera, sending(segmenter, camera, url, reconnect="0.1..0.2") as reports:
        first = read(segmenter, url, path)
        server.down()
        while not any(monitor.status().unsent for monitor in segmenter.streams.monitors):
            time.sleep(0.01)
        server.up()
        second = read(segmenter, url, path)
    assert first[-1] < second[0] and set(first + second) <= set(camera.sent)
    assert reports[0].unsent > 0


def test_a_name_that_is_taken_is_one_line(segmenter: Segmenter, server: NginxRtmp, tmp_path: Path) -> None:
    url = server.url("cam")
    with RtspServer() as camera, sending(segmenter, camera, url):
        read(segmenter, url, tmp_path / "read.mkv")
        with pytest.raises(OutputError, match="can't be sent to \\(the server refuses the stream"):
            segmenter.run(camera.url(), url)
