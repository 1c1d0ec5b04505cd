"""The end of a job goes to the address that its request has named, and nowhere else."""

import json
import threading
from pathlib import Path

import pytest
from hostile_server import HostileServer
from paths import SAMPLE
from receiver import Receiver
from served import Served

from segmentation import ConfigError
from segmentation.web import webhooks
from segmentation.web.store import DONE, FAILED, QueuedJob, Store
from segmentation.web.webhooks import Webhooks


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_PAUSES", (0.01, 0.01))
    monkeypatch.setattr(webhooks, "_TIMEOUT", 0.3)


def post(folder: Path, address: str, *, private: bool = True) -> int:
    """Ends a job; returns how many are left whose end is to be posted."""
    store = Store(folder)
    store.add(QueuedJob("1234", "a.mp4", "/place/a.mp4", {"effect": "blur:40"}, webhook=address))
    store.end("1234", FAILED, error="a.mp4: is no video")
    hooks = Webhooks(store, private=private)
    hooks.wake()
    hooks._pool.shutdown()
    left = len(store.unposted())
    store.close()
    return left


def test_a_receiver_gets_the_end_after_some_failures(tmp_path: Path) -> None:
    with Receiver() as receiver:
        receiver.answers = [503, 500]
        assert post(tmp_path, receiver.url.replace("//", "//me:word@") + "/done?job=1") == 0
        (job,) = map(json.loads, receiver.posts)
        assert (job["id"], job["state"], job["error"]) == ("1234", "failed", "a.mp4: is no video")
        assert "place" not in receiver.posts[0].decode() and "word" not in receiver.posts[0].decode()
        (headers,) = receiver.headers
        assert headers["Content-Type"] == "application/json" and headers["Authorization"].startswith("Basic ")
        assert receiver.paths == ["/done?job=1"]


@pytest.mark.parametrize("status", [302, 307, 404])
def test_a_refusal_is_the_end(tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver() as receiver:
        receiver.answers = [status]
        assert post(tmp_path, receiver.url) == 0
        assert receiver.posts == [] and receiver.connections == 1
    assert [f"it answers {status}" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("kind", ["mute", "drip", "reset"])
def test_a_receiver_that_dawdles_is_given_up(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with HostileServer("http", kind) as server:
        assert post(tmp_path, server.url) == 0
    assert len(caplog.records) == 1


def test_private_addresses_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path / "other")
    hooks = Webhooks(store, private=False)
    for host in ("127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "[::1]", "[fe80::1]", "[::ffff:10.0.0.1]"):
        with pytest.raises(ConfigError, match="private"):
            hooks.checked(f"http://{host}:80/x")
    for address in ("ftp://example.com/", "http:///x", "http://a b/", "http://example.com\r\nX: y/", "http://[/"):
        with pytest.raises(ConfigError, match="no http"):
            hooks.checked(address)
    assert hooks.checked("https://example.com/done") and hooks.checked("") is None
    store.close()
    with Receiver() as receiver:  # a name that leads there is found out at the connection
        assert post(tmp_path / "work", receiver.url, private=False) == 0
        assert receiver.posts == []
    assert "leads to the private address 127.0.0.1" in caplog.text


def test_what_a_server_leaves_the_next_one_posts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_PAUSES", (600.0, 600.0))
    store = Store(tmp_path)
    with Receiver() as receiver:
        receiver.answers = [503]
        asked = threading.Event()
        with Webhooks(store, private=True) as hooks:
            real = hooks._post
            monkeypatch.setattr(hooks, "_post", lambda job: (asked.set(), real(job)))
            store.add(QueuedJob("1", "a.mp4", "a.mp4", {}, webhook=receiver.url))
            store.end("1", DONE)
            hooks.wake()
            assert asked.wait(60)
        assert len(store.unposted()) == 1 and receiver.posts == []
        with Webhooks(store, private=True) as hooks:
            hooks._pool.shutdown()
        assert store.unposted() == [] and len(receiver.posts) == 1
    store.close()


def test_a_job_of_the_server_has_one(tmp_path: Path) -> None:
    with Receiver() as receiver, Served(tmp_path / "work", "--allow", "private") as served:
        id = served.job({"file": SAMPLE, "options": {"max_frames": 1}, "webhook": receiver.url})
        job = served.until(id, "done")
        served.process.terminate()
        served.process.wait(60)
        assert json.loads(receiver.posts[0]) == job
