"""RTMP with a server that others wrote, as an output and as an input."""

import time
from collections.abc import Iterator
from pathlib import Path

import av
import barcode
import pytest
from live_runs import keep, running
from nginx_rtmp import MISSING, NginxRtmp
from rtsp_server import RtspServer

from segmentation import OutputError, Segmenter

pytestmark = pytest.mark.skipif(MISSING, reason="needs nginx with its RTMP module (Debian: libnginx-mod-rtmp)")


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


def read(segmenter: Segmenter, url: str, path: Path) -> list[int]:
    """The numbers of 20 pictures that the program reads from an address, once somebody publishes there."""
    segmenter.run(url, path, max_frames=20, max_delay=10.0, overwrite=True)
    with av.open(str(path)) as file:
        return [barcode.read(frame.to_ndarray(format="gray"))[0] for frame in file.decode(video=0)]


def test_nginx_passes_the_result_on(segmenter: Segmenter, server: NginxRtmp, tmp_path: Path) -> None:
    """The address has what FFmpeg's muxer `tee` would take for its own, if it were not quoted."""
    url, path = server.url("it's|the,cam:\\1"), tmp_path / "read.mkv"
    with RtspServer(sound=True) as camera, running(segmenter, camera.url(), url, max_delay=10.0) as reports:
        found = read(segmenter, url, path)
    assert len(found) == 20 and found == [number for number in camera.sent if found[0] <= number <= found[-1]]
    with av.open(str(path)) as file:
        assert [stream.codec_context.name for stream in file.streams] == ["h264", "pcm_s16le"]  # of G.711
        assert len(list(file.demux(audio=0))) > 10
    assert reports[0].complete and reports[0].unsent == 0


@pytest.mark.slow
def test_nginx_that_is_started_again_gets_the_rest(segmenter: Segmenter, server: NginxRtmp, tmp_path: Path) -> None:
    url, path = server.url("cam"), tmp_path / "read.mkv"
    with RtspServer() as camera, running(segmenter, camera.url(), url, max_delay=10.0, reconnect="0.1..0.2") as reports:
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
    with RtspServer() as camera, running(segmenter, camera.url(), url, max_delay=10.0):
        read(segmenter, url, tmp_path / "read.mkv")
        with pytest.raises(OutputError, match="can't be sent to \\(the server refuses the stream"):
            segmenter.run(camera.url(), url)
