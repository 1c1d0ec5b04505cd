"""What the status server answers, and to whom."""

import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families
from rtsp_server import PASSWORD, USER, RtspServer

from segmentation import ConfigError, Streams, StreamStatus
from segmentation.frames.latency import BOUNDS, Latencies
from segmentation.frames.source import Source
from segmentation.pipeline.stream_status import StreamBoard, StreamMonitor
from segmentation.sessions import bounded_server, status_server
from segmentation.sessions.status_server import TOKEN, StatusServer, metrics

TIMEOUT = 240.0  # seconds: far more than anything here takes


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


OPTIONS: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64), "smooth": 0.0, "stall": 0.6}


class Client:
    """Asks a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, body: object = None, **options: Any) -> tuple[int, bytes]:
        """Returns status and body."""
        headers = {key.replace("_", "-"): value for key, value in options.items() if key != "method"}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(self.url + path, data, headers, method=options.get("method"))
        try:
            with urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, answer.read()
        except HTTPError as exc:
            return exc.code, exc.read()

    def streams(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in json.loads(self.ask("streams")[1])}


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    monkeypatch.setenv(TOKEN, "sesame-token")
    with Streams(reconnect="0.1..0.2", **OPTIONS) as made:
        yield made


@pytest.fixture
def client(streams: Streams, tmp_path: Path) -> Client:
    return Client(streams.serve("127.0.0.1:0", tmp_path / "{name}.mkv"))


def until(happened: Any) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_streams_are_told_of_added_and_removed(client: Client, tmp_path: Path) -> None:
    right = {"Authorization": "Bearer sesame-token"}
    with RtspServer(auth="Digest") as camera:
        assert client.streams() == {} and client.ask("readyz")[0] == client.ask("healthz")[0] == 200
        hall = {"name": "hall", "address": camera.url(f"{USER}:{PASSWORD}")}
        assert client.ask("streams", hall)[0] == 401
        assert client.ask("streams", hall, Authorization="Bearer sesame-tokeN")[0] == 401
        assert client.streams() == {}
        assert client.ask("streams", hall, **right)[0] == 200
        until(lambda: client.streams()["hall"]["state"] == "up")
        one = client.streams()["hall"]
        assert one.keys() == {each.name for each in fields(StreamStatus)}
        assert one["received"] == one["shown"] + one["waiting"] + sum(one["dropped"].values())
        status, said = client.ask("streams", hall, **right)
        assert status == 409 and "under way already" in json.loads(said)["error"]
        assert client.ask("readyz")[0] == 200
        status, picture = client.ask("streams/hall.jpg")
        assert status == 200 and picture.startswith(b"\xff\xd8")
        camera.refuse()
        camera.reset()
        until(lambda: client.ask("readyz") == (503, b'{"missing": ["hall"]}'))
        camera.accept()
        until(lambda: client.ask("readyz")[0] == 200)
        assert client.ask("streams/hall", method="DELETE")[0] == 401
        assert client.ask("streams/hall", method="DELETE", **right)[0] == 200
        assert client.streams()["hall"]["state"] == "ended" and (tmp_path / "hall.mkv").exists()
        assert client.ask("readyz") == (200, b'{"missing": []}')  # nothing is amiss
        figures = client.ask("metrics")[1]
        assert b'segmentation_up{stream="hall"}' not in figures and b'received_total{stream="hall"}' in figures
        assert client.ask("streams/hall", method="DELETE", **right)[0] == 409
    everything = b"".join(client.ask(path)[1] for path in ("", "streams", "metrics", "readyz"))
    assert PASSWORD.encode() not in everything and b"sesame" not in everything


def test_a_failed_stream_is_not_ready_until_it_is_removed(client: Client, tmp_path: Path) -> None:
    right = {"Authorization": "Bearer sesame-token"}
    (tmp_path / "hall.mkv").touch()  # is not replaced
    with RtspServer() as camera:
        client.ask("streams", {"name": "hall", "address": camera.url()}, **right)
        until(lambda: client.streams()["hall"]["state"] == "failed")
    assert client.ask("readyz") == (503, b'{"missing": ["hall"]}')
    assert b'segmentation_up{stream="hall"} 0' in client.ask("metrics")[1]
    assert client.ask("streams/hall", method="DELETE", **right)[0] == 200
    assert client.ask("readyz")[0] == 200 and client.streams() == {}


def test_head_is_answered_as_get_without_a_body(client: Client) -> None:
    for path in ("", "streams", "metrics", "healthz", "readyz"):
        with urlopen(Request(client.url + path, method="HEAD"), timeout=TIMEOUT) as answer:
            assert answer.status == 200 and int(answer.headers["Content-Length"]) > 0 and answer.read() == b""
    assert client.ask("nowhere", method="HEAD") == (404, b"")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"name": "x"}', b'{"name": 1, "address": 2}', b"[" * 9000, b"\xff"]
)
def test_what_is_no_stream_is_refused(body: bytes, client: Client) -> None:
    status, said = client.ask("streams", body, Authorization="Bearer sesame-token")
    assert status == 400 and "rtsp://" in json.loads(said)["error"]


@pytest.mark.parametrize(
    ("name", "address"),
    [("hall", "/etc/passwd"), ("hall", "http://127.0.0.1/a.mp4"), ("../up", "rtsp://127.0.0.1/x"), ("", "rtsp://h/x")],
)
def test_only_live_sources_are_added(name: str, address: str, client: Client) -> None:
    added = {"name": name, "address": address}
    status, said = client.ask("streams", added, Authorization="Bearer sesame-token")
    assert status == 409 and "is no live source with a name" in json.loads(said)["error"]
    assert client.streams() == {}


def test_no_file_of_this_machine_is_added(client: Client) -> None:
    added = {"name": "hall", "address": "FILE:///etc/passwd"}
    status, said = client.ask("streams", added, Authorization="Bearer sesame-token")
    assert status == 400 and "no stream" in json.loads(said)["error"] and client.streams() == {}


def test_without_a_token_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    with Streams(**OPTIONS) as streams:
        client = Client(streams.serve("127.0.0.1:0"))
        status, said = client.ask("streams", {"name": "a", "address": "rtsp://h/x"}, Authorization="Bearer ")
        assert status == 403 and TOKEN in json.loads(said)["error"]


def test_names_of_other_hosts_are_refused_here(client: Client) -> None:
    """A page on the web could have its own name lead to this machine, and read what its script asks for."""
    for host in ("evil.example", "evil.example:80", "10.0.0.1"):
        assert client.ask("streams", Host=host)[0] == 403
    for host in ("localhost", "localhost:9100", "LOCALHOST.", "127.0.0.1:1", "[::1]:9100"):
        assert client.ask("streams", Host=host)[0] == 200


def test_what_is_not_there(client: Client) -> None:
    for path in ("favicon.ico", "streams/none.jpg", "streams/", "../../etc/passwd", "streams/..%2f..%2fx.jpg"):
        code, body = client.ask(path)
        assert code == 404
        there = re.findall(r"/\w*", json.loads(body)["error"])
        assert "/streams" in there and all(client.ask(one[1:])[0] == 200 for one in there)
    assert client.ask("healthz", method="PUT")[0] == 501
    assert client.ask("streams", b"x" * (1 << 17), Authorization="Bearer sesame-token")[0] == 413


@pytest.mark.parametrize("address", ["127.1", "2130706433", "0x7f.1", "localhost.", "LocalHost", "[::1]"])
def test_however_this_machine_is_named_other_names_are_refused(address: str, streams: Streams) -> None:
    client = Client(streams.serve(f"{address}:0"))
    assert client.ask("streams")[0] == client.ask("streams", Host=f"{address}:80")[0] == 200
    assert client.ask("streams", Host="evil.example")[0] == client.ask("streams", Host="[")[0] == 403


def test_an_address_of_the_old_protocol_within_the_new(streams: Streams) -> None:
    try:
        client = Client(streams.serve("[::ffff:127.0.0.1]:0"))
    except ConfigError as exc:
        pytest.skip(str(exc))
    assert client.ask("streams")[0] == 200 and client.ask("streams", Host="evil.example")[0] == 403


def test_whoever_listens_on_all_addresses_is_told_so(streams: Streams) -> None:
    assert streams.serve("0:0").startswith("http://0.0.0.0:")


def test_metrics_alone_are_on_all_addresses_and_show_nothing_else(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "sesame")
    url = streams.serve("metrics@:0")
    assert url.startswith("http://0.0.0.0:")
    client = Client(url)
    for path, kind in (("metrics", b"# HELP"), ("healthz", b"{"), ("readyz", b"{")):
        status, body = client.ask(path, Host="prometheus.internal:9100")
        assert status == 200 and body.startswith(kind)
    for path in ("", "streams", "streams/hall.jpg", "workers"):
        assert client.ask(path)[0] == 404
    assert client.ask("streams", {"name": "a", "address": "rtsp://a/b"}, Authorization="Bearer sesame")[0] == 403
    assert client.ask("streams/a", method="DELETE", Authorization="Bearer sesame")[0] == 403
    assert streams.serve("metrics@127.0.0.1:0").startswith("http://127.0.0.1:")


def connection(client: Client, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", int(client.url.rpartition(":")[2].strip("/"))))
    made.settimeout(TIMEOUT)
    made.sendall(sent)
    return made


def test_slow_clients_shut_nobody_out(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has been slow for longest is hung up on where there are too many."""
    monkeypatch.setattr(bounded_server, "PATIENCE", 10 * TIMEOUT)
    sent = (
        b"",
        b"GET /streams HT",
        b"GET / HTTP/1.1\r\nX-Y: z\r\n",
        b"POST /streams HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
    )
    slow = []
    for number in range(3 * bounded_server.MOST):
        slow.append(connection(client, sent[number % len(sent)]))
        if number >= bounded_server.MOST:
            assert client.ask("healthz")[0] == 200
    for one in slow:
        one.close()


def test_who_drips_is_hung_up_on(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "PATIENCE", 0.5)
    with connection(client, b"GET /streams HTTP/1.1\r\n") as slow, pytest.raises(OSError):
        while True:
            slow.sendall(b"x")
            time.sleep(0.02)


def test_requests_for_pictures_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "_PATIENCE", 10.0 * TIMEOUT)
    board = StreamBoard()
    monitor = board.begin(Source.parse("hall=rtsp://h/x"))  # which shows no picture
    request = b"GET /streams/hall.jpg HTTP/1.0\r\nHost: localhost\r\n\r\n"
    with StatusServer("127.0.0.1:0", board) as server:
        client = Client(server.url)
        asking = [connection(client, request) for _ in range(bounded_server.MOST)]
        refused: list[socket.socket] = []
        while len(refused) < bounded_server.MOST // 2:
            refused = select.select(asking, [], [], TIMEOUT)[0]
        assert all(one.recv(12) == b"HTTP/1.0 503" for one in refused)
        assert client.ask("healthz")[0] == 200
        monitor.failed(OSError())
        assert all(one.recv(12) == b"HTTP/1.0 404" for one in asking if one not in refused)
    for one in asking:
        one.close()


def test_threads_that_cant_start_leave_the_server_as_it_was(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as scarce:
        scarce.setattr(threading, "_start_new_thread", no_thread)
        for _ in range(bounded_server.MOST + 1):
            with (
                connection(client, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n") as one,
                suppress(ConnectionResetError),
            ):
                assert one.recv(1) == b""
    assert client.ask("healthz")[0] == 200


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def client_answers(client: Client) -> bool:
    try:
        return client.ask("healthz")[0] == 200
    except OSError:
        return False


@pytest.mark.parametrize(
    "address", ["9100", "localhost", ":", ":x", ":-1", ":99999999", "no-such-host.invalid:80", "all@:1", "@:1"]
)
def test_addresses_that_are_none(address: str, streams: Streams) -> None:
    with pytest.raises(ConfigError, match=r"^status .*: "):
        streams.serve(address)


def test_a_port_that_is_taken(streams: Streams) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"status :{port}: can't be listened on .* name another port"):
            streams.serve(f":{port}")


def test_threads_and_ports_are_free_at_the_end() -> None:
    before = threading.active_count()
    with Streams(**OPTIONS) as streams:
        url = streams.serve(":0")
        assert Client(url).ask("healthz")[0] == 200 and url.startswith("http://127.0.0.1:")
    assert not client_answers(Client(url))
    until(lambda: threading.active_count() <= before)


def monitor(name: str, received: int, dropped: dict[str, int], latencies: Latencies) -> StreamMonitor:
    status = StreamStatus(
        name=name, address="", state="up", received=received, shown=received, dropped=dropped, reconnects=3
    )
    late = latencies.histogram()
    return cast(StreamMonitor, SimpleNamespace(name=name, status=lambda: status, late=late))


def test_metrics_are_what_prometheus_reads() -> None:
    latencies = Latencies()
    for seconds in (0.02, 0.15, 0.15, 9.0):
        latencies.add(seconds)
    strange = 'a"b\\c\nd{e},f=1'
    monitors = [monitor("hall", 12_345_678, {"late": 5, "end": 2}, latencies), monitor(strange, 0, {}, Latencies())]
    text = "".join(f"{line}\n" for line in metrics(monitors))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation and family.type != "unknown" for family in families.values())

    def value(name: str, **labels: str) -> float:
        found = [
            s.value for family in families.values() for s in family.samples if (s.name, s.labels) == (name, labels)
        ]
        assert len(found) == 1, (name, labels)
        return float(found[0])

    assert value("segmentation_frames_received_total", stream="hall") == 12_345_678
    assert value("segmentation_frames_dropped_total", stream="hall", cause="late") == 5
    assert value("segmentation_frames_received_total", stream=strange) == 0
    assert value("segmentation_up", stream="hall") == 1 and value("segmentation_reconnects_total", stream="hall") == 3
    buckets = [value("segmentation_latency_seconds_bucket", stream="hall", le=str(bound)) for bound in BOUNDS]
    assert buckets == list(latencies.histogram().up_to) and buckets == sorted(buckets)
    assert value("segmentation_latency_seconds_bucket", stream="hall", le="+Inf") == 4
    assert value("segmentation_latency_seconds_count", stream="hall") == 4
    assert value("segmentation_latency_seconds_sum", stream="hall") == pytest.approx(9.32)


def test_the_page_needs_nothing_else() -> None:
    with StatusServer("127.0.0.1:0", StreamBoard()) as server:
        for path, kind in (("", "text/html"), ("streams.css", "text/css"), ("streams.js", "text/javascript")):
            with urlopen(server.url + path, timeout=TIMEOUT) as answer:
                text = answer.read().decode()
                assert "http" not in text.replace("<!doctype html>", "") and " style=" not in text
                assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
                assert answer.headers["Content-Security-Policy"] == "default-src 'self'"
        assert Client(server.url).ask(f"streams/{quote('no such', safe='')}.jpg")[0] == 404
        assert Client(server.url).ask("streams", {"name": "a"}, Authorization="Bearer x")[0] == 403
