"""The live streams of another process, as `segmentation serve --streams` shows them."""

import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rtsp_server import RtspServer
from served import TIMEOUT, Served

from segmentation import ConfigError, Streams

NAME = "höhe.jpg"


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


def detail(answer: tuple[int, bytes, dict[str, str]]) -> tuple[int, str]:
    return answer[0], json.loads(answer[1])["detail"]


def until_up(served: Served, name: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while {one["name"]: one["state"] for one in served.json("streams")}.get(name) != "up":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_streams_are_shown_on_the_one_server(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    options: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64), "smooth": 0.0}
    with RtspServer() as camera, Streams(**options) as streams:
        address = streams.serve("127.0.0.1:0")
        with Served(tmp_path / "work", "--streams", address) as served:
            assert served.json("streams") == []
            streams.add(NAME, camera.url(), tmp_path / "out.mkv")
            until_up(served, NAME)
            status, picture, headers = served.ask("streams/h%C3%B6he.jpg.jpg")
            assert (status, headers["content-type"]) == (200, "image/jpeg") and picture.startswith(b"\xff\xd8")
            assert detail(served.ask("streams/gate.jpg"))[0] == 404
            for path, kind in (("live", "text/html"), ("streams.css", "text/css"), ("streams.js", "text/javascript")):
                status, _, headers = served.ask(path)
                assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
            assert b'href="/live">' in served.ask("")[1]
            assert served.ask("streams", {"name": "gate"})[0] == 405  # streams come and go at their own address
            assert detail(served.ask("streams", headers={"Host": "evil.example"}))[0] == 403

            families = {
                one.name: one for one in parser.text_string_to_metric_families(served.ask("metrics")[1].decode())
            }
            assert {"segmentation_jobs", "segmentation_frames_received"} <= families.keys()
            assert families["segmentation_streams_answer"].samples[0].value == 1
            streams.close()
            place = address.removeprefix("http://").strip("/")
            assert detail(served.ask("streams")) == (502, f"streams {place}: does not answer (Connection refused)")
            figures = served.ask("metrics")[1].decode()
            assert "segmentation_streams_answer 0" in figures and "segmentation_jobs" in figures


class _Other(BaseHTTPRequestHandler):
    """A server of something else."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path.endswith(".jpg") else 200)
        self.send_header("Location", "/secret")
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<script>alert(1)</script>")

    def log_message(self, *_: object) -> None:
        pass


def test_whatever_else_answers_is_not_passed_on(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Other) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        place = f":{other.server_address[1]}"
        with Served(tmp_path / "work", "--streams", place) as served:
            assert detail(served.ask("streams")) == (502, f"streams {place}: is not the --status of live streams")
            assert detail(served.ask("streams/a.jpg")) == (502, f"streams {place}: answers 302")
            assert "alert" not in served.ask("metrics")[1].decode()
        other.shutdown()


@pytest.mark.parametrize("address", ["9100", ":", "camera:0", ":70000", "http://user:word@host:9100", "host/path:9100"])
def test_addresses_that_are_none(address: str) -> None:
    relay = pytest.importorskip("segmentation.web.streams").StreamsRelay
    with pytest.raises(ConfigError, match="write HOST:PORT or :PORT of --status") as caught:
        relay(address, 8400)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("address", [":8400", "localhost:8400", "[::1]:8400", "http://127.0.0.2:8400"])
def test_the_page_does_not_ask_itself(address: str) -> None:
    relay = pytest.importorskip("segmentation.web.streams").StreamsRelay
    with pytest.raises(ConfigError, match="is the page's own port; give that of --status"):
        relay(address, 8400)
    relay(address, 8401).close()


def test_without_streams_none_are_shown(tmp_path: Path) -> None:
    with Served(tmp_path / "work") as served:
        assert served.ask("live")[0] == served.ask("streams")[0] == 404
        assert b'href="/live" hidden' in served.ask("")[1]
