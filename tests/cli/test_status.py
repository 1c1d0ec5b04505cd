"""`--status` of the command: figures of its streams and workers, and streams that come and go while it runs."""

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pieced import OPTIONS, long_video
from program import TIMEOUT, Program, cli, start
from rtsp_server import RtspServer


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def ask(port: int, path: str, body: object = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{port}/{path}", data, {"Authorization": "Bearer sesame"}, method=method)
    with urlopen(request, timeout=TIMEOUT) as answer:
        return json.loads(answer.read())


def ready(port: int) -> bool:
    try:
        return bool(ask(port, "readyz")["missing"] != ["worker 1", "worker 2"])
    except OSError:  # also status 503
        return False


def states(port: int) -> dict[str, str]:
    try:
        return {one["name"]: one["state"] for one in ask(port, "streams")}
    except OSError:
        return {}


def until(process: Program, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def test_streams_come_and_go_while_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENTATION_STATUS_TOKEN", "sesame")
    port = free_port()
    options = ("-o", tmp_path / "{name}.mkv", "--status", f":{port}", "--json", "--preset", "ultrafast", "-v")
    with RtspServer(fps=5) as hall, RtspServer(fps=5) as gate, start(f"hall={hall.url()}", *options) as process:
        until(process, lambda: states(port) == {"hall": "up"})
        assert ask(port, "streams", {"name": "gate", "address": gate.url()}) == {"done": True}
        until(process, lambda: states(port) == {"hall": "up", "gate": "up"})
        until(process, lambda: all(one["shown"] for one in ask(port, "streams")))  # else nothing is written
        assert ask(port, "streams/hall", method="DELETE") == {"done": True}
        until(process, lambda: states(port) == {"hall": "ended", "gate": "up"})
        again = {"name": "hall", "address": hall.url()}
        assert ask(port, "streams", again) == {"done": True}  # the name is free again, but the file exists
        until(process, lambda: states(port) == {"gate": "up", "hall": "failed"})
        ask(port, "streams/gate", method="DELETE")
        out, err = process.communicate(timeout=TIMEOUT)  # the last stream has ended
    assert process.returncode == 1, err
    reports = {report["input"]: report for report in map(json.loads, out.splitlines()) if "frames" in report}
    assert reports.keys() == {"hall", "gate"}
    for name, report in reports.items():
        assert report["output"] == str(tmp_path / f"{name}.mkv") and report["frames"] > 0
    assert "2 done, 1 failed" in err and "exists already" in err


@pytest.mark.slow
def test_workers_show_their_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGMENTATION_STATUS_TOKEN", "sesame")
    source = long_video(tmp_path / "in.mp4", frames=1620)
    port = free_port()
    options = ("--device", "cpu", "--model", OPTIONS["model"], "--workers", "local:2", "--status", f":{port}")
    with start(source, "-o", tmp_path / "out.mp4", *options) as process:
        until(process, lambda: ready(port))
        until(process, lambda: ask(port, "workers")["done"] > 0)
        told = ask(port, "")
        (video,) = told["videos"]
        assert (video["input"], video["output"]) == (str(source), str(tmp_path / "out.mp4"))
        assert video["pieces"] == video["left"] + told["done"] and video["left"] == told["left"]
        assert 0 < video["frames"] <= video["expected"] == 1620 and told["alive"] <= len(told["workers"]) == 2
        busy = max(told["workers"], key=lambda worker: worker["frames"])
        assert busy["state"] == "at work" and busy["video"] == str(source) and busy["fps"] > 0
        with pytest.raises(HTTPError, match="404"):  # streams can't come and go here
            ask(port, "streams", {"name": "a", "address": "rtsp://127.0.0.1/a"})
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130 and not (tmp_path / "out.mp4").exists()


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("rtsp://127.0.0.1:1/cam", "-o", tmp_path / "a.mkv", "--status", f":{port}")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"status :{port}: can't be listened on" in done.stderr and not list(tmp_path.iterdir())
