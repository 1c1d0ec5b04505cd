"""Results that are posted to an address: all lines in order, through failures, and none where nobody listens."""

import base64
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_server import HostileServer
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli
from receiver import Receiver
from rtsp_server import RtspServer
from videos import Synthetic

from segmentation import ConfigError, OutputError, Segmenter, Workers
from segmentation.frames.live_frames import LiveFrames
from segmentation.pipeline.result_files import posted_lines
from segmentation.pipeline.result_files.posted_lines import PostedLines

PAUSES = (0.05, 0.1)
RECONNECT = "0.05..0.1"


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    options: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64), "smooth": 0.0}
    with Segmenter(reconnect=RECONNECT, **options) as made:
        yield made


def until(happened: Any) -> None:
    deadline = time.monotonic() + 240
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def opened(receiver: Receiver, live: LiveFrames | None = None) -> PostedLines:
    lines = PostedLines(f"{receiver.url}/x", PAUSES, live)
    lines.open()
    return lines


def numbered(count: int) -> list[str]:
    return [f'{{"index": {number}}}\n' for number in range(count)]


def refused() -> str:
    """Returns an address where nothing listens any more."""
    with Receiver() as gone:
        return gone.url


def test_lines_are_those_of_a_file(receiver: Receiver, segmenter: Segmenter, tmp_path: Path) -> None:
    clip = Synthetic(codec="libx264").write(tmp_path / "a.mp4")
    segmenter.run(clip, tmp_path / "out.mp4", results=tmp_path / "a.jsonl")
    report = segmenter.run(clip, video=False, results=f"{receiver.url}/people?of=a b")
    assert "\n".join(receiver.lines) + "\n" == (tmp_path / "a.jsonl").read_text()
    assert report.frames == 25 and report.unsent == 0 and report.complete
    assert receiver.connections == 1 and set(receiver.paths) == {"/people?of=a%20b"}
    assert {headers["Content-Type"] for headers in receiver.headers} == {"application/x-ndjson"}


def test_those_of_a_moment_go_together_over_one_connection(receiver: Receiver) -> None:
    lines = opened(receiver)
    texts = numbered(300)
    for part in range(0, 300, 100):
        lines.writelines(texts[part : part + 100])
        until(lambda sent=part + 100: len(receiver.lines) == sent)
    lines.close()
    assert [post.count(b"\n") for post in receiver.posts] == [100, 100, 100] and receiver.connections == 1


def test_a_user_and_a_password_are_sent_and_not_said(
    receiver: Receiver, segmenter: Segmenter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = [500]
    address = receiver.url.replace("://", "://me:s%2Fsame@") + "/x?token=hidden"
    segmenter.run(Synthetic().write(tmp_path / "a.mkv"), video=False, results=address)
    given = base64.b64encode(b"me:s/same").decode()
    assert receiver.headers[0]["Authorization"] == f"Basic {given}" and receiver.paths[0] == "/x?token=hidden"
    receiver.answers = [403]
    with pytest.raises(OutputError, match="it answers 403 Forbidden") as caught:
        segmenter.run(tmp_path / "a.mkv", video=False, results=address)
    said = caplog.text + str(caught.value)
    assert "takes no results" in caplog.text and "***@" in said
    assert not any(secret in said for secret in ("same", "hidden", given))


@pytest.mark.parametrize("status", [301, 404])
def test_an_address_that_wants_something_else_is_an_error(
    status: int, receiver: Receiver, camera: RtspServer, segmenter: Segmenter
) -> None:
    for source in (SAMPLE, camera.url()):
        receiver.answers = [status]
        with pytest.raises(OutputError, match=f"takes no results .it answers {status}"):
            segmenter.run(source, video=False, results=receiver.url, max_frames=60)
    assert not receiver.posts


def test_nobody_who_listens_is_a_line_before_any_work(tmp_path: Path) -> None:
    result = cli(SAMPLE, "-o", tmp_path / "out.mp4", "--results", f"{refused()}/x")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "takes no results (Connection refused)" in result.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["http://", "http://host:pass/word@x/", "https://host:99999999/"])
def test_what_is_no_address(address: str, segmenter: Segmenter) -> None:
    with pytest.raises((ConfigError, OutputError)) as caught:
        segmenter.run(SAMPLE, video=False, results=address)
    assert "\n" not in str(caught.value) and "pass/word" not in str(caught.value)


def test_a_receiver_that_fails_for_a_while_gets_all(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers = [503, 500, 200, 404, 429]  # once it has taken a POST, what it answers is its own trouble
    lines = opened(receiver)
    texts = numbered(20)
    lines.writelines(texts[:10])
    until(lambda: len(receiver.lines) == 10)
    lines.writelines(texts[10:])
    lines.close()
    assert "".join(f"{line}\n" for line in receiver.lines) == "".join(texts) and not receiver.answers
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2 and all("trying again" in line for line in said)


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_a_receiver_that_closes_connections_or_is_slow_gets_all(delay: float, receiver: Receiver) -> None:
    receiver.hang_up, receiver.delay = True, delay
    lines = opened(receiver)
    texts = numbered(60)
    for number, text in enumerate(texts):
        lines.writelines([text])
        time.sleep(0.01 if number % 20 else 0.3)
    lines.close()
    assert "".join(f"{line}\n" for line in receiver.lines) == "".join(texts)
    assert receiver.connections == len(receiver.posts) > 1


def test_a_run_of_a_file_waits_for_its_receiver(
    receiver: Receiver, segmenter: Segmenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted_lines, "_ROOM", 500)  # about four lines
    seen: list[int] = []

    def watch(done: int, expected: int) -> None:
        seen.append(done)
        if done == 10:
            receiver.down()
            threading.Timer(1.0, receiver.up).start()

    report = segmenter.run(SAMPLE, tmp_path / "out.mp4", results=receiver.url, max_frames=60, progress=watch)
    indices = [json.loads(line)["index"] for line in receiver.lines]
    assert report.frames == 60 and seen[-1] == 60 and report.unsent == 0 and report.complete
    assert sorted(set(indices)) == list(range(60)) and len(indices) <= 75  # an answer that is lost brings lines twice


def test_a_receiver_that_stays_away_ends_a_run_of_a_file(
    receiver: Receiver, segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted_lines, "_PATIENCE", 0.3)

    def watch(done: int, expected: int) -> None:
        if done == 10:
            until(lambda: receiver.posts)
            receiver.answers = [500] * 1000

    with pytest.raises(OutputError, match="it answers 500"):
        segmenter.run(SAMPLE, video=False, results=receiver.url, progress=watch)
    assert receiver.posts


def test_a_receiver_that_drips_its_answer_ends_a_run_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posted_lines, "_TIMEOUT", 0.5)
    monkeypatch.setattr(posted_lines, "_PATIENCE", 0.5)
    with HostileServer("http", "drip") as server:
        lines = PostedLines(server.url, PAUSES, None)
        lines.open()
        lines.writelines(["{}\n"])
        with pytest.raises(OSError, match="timed out"):
            lines.close()
        lines.abandon()


def test_without_attempts_the_first_failure_ends_a_run(receiver: Receiver, segmenter: Segmenter) -> None:
    receiver.answers = [500]
    with pytest.raises(OutputError, match="it answers 500"):
        segmenter.run(SAMPLE, video=False, results=receiver.url, reconnect="never")


def test_a_live_run_is_not_held_up(
    receiver: Receiver, camera: RtspServer, segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that find no room are counted; those that waited, and later ones, come when the receiver is back."""
    monkeypatch.setattr(posted_lines, "_ROOM", 1000)  # about nine lines
    before = threading.active_count()

    def watch(done: int, expected: int) -> None:
        if done == 20:
            until(lambda: receiver.posts)
            receiver.down()
        if done == 80:
            receiver.up()

    options: dict[str, Any] = {"video": False, "max_frames": 120, "max_delay": 10.0, "progress": watch}
    report = segmenter.run("hall=" + camera.url(), results=receiver.url + "/{name}", **options)
    indices = [json.loads(line)["index"] for line in receiver.lines]
    assert report.frames == 120 and report.received == 120 + sum(report.dropped.values())
    assert set(receiver.paths) == {"/hall"} and indices[-1] == 119
    assert report.unsent > 20 and not report.complete
    assert 120 - report.unsent <= len(set(indices)) <= 120 - report.unsent + 10  # with those whose answer was lost
    assert all(a < b for a, b in pairwise(dict.fromkeys(indices)))
    until(lambda: threading.active_count() <= before + 1)


def test_a_live_run_does_not_wait_long_in_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(posted_lines, "_LAST", 0.3)
    live = LiveFrames(0.5)
    lines = opened(receiver, live)
    receiver.answers = [500] * 1000
    lines.writelines(numbered(30))
    lines.close()
    assert live.unsent == 30 and not receiver.posts
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is missing")
def test_https_takes_known_certificates_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "both.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x".split()
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(["openssl", *made], check=True, capture_output=True)
    file.write_text(file.read_text() + (tmp_path / "cert.pem").read_text())
    with Receiver(certificate=file) as receiver:
        with pytest.raises(OSError, match="certificate verify failed"):
            opened(receiver)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        lines = opened(receiver)
        lines.writelines(numbered(3))
        lines.close()
        assert len(receiver.lines) == 3 and receiver.url.startswith("https://")


def test_other_formats_and_workers_are_refused(receiver: Receiver, segmenter: Segmenter, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="results format mot: is for files"):
        segmenter.run(SAMPLE, video=False, results=receiver.url, results_format="mot")
    with Workers("local:1", device="cpu") as workers, pytest.raises(ConfigError, match="workers read and write files"):
        workers.run(SAMPLE, tmp_path / "out.mp4", results=receiver.url)
    assert not receiver.posts and not list(tmp_path.iterdir())


def test_several_inputs_need_an_address_each(receiver: Receiver, tmp_path: Path) -> None:
    clips = [Synthetic(pts=range(n), codec="libx264").write(tmp_path / f"{n}.mp4") for n in (2, 3)]
    refused = cli(*clips, "--no-video", "--results", receiver.url)
    assert refused.returncode == 2 and "several inputs need an address each" in refused.stderr
    patient = ("--max-delay", "60", "--smooth", "0", "--json")  # a busy machine's network is not ready at once
    streams = cli("--pace", *clips, "--no-video", "--results", receiver.url + "/{name}", *patient)
    reports = [json.loads(line) for line in streams.stdout.splitlines()]
    posted = dict.fromkeys(receiver.paths, 0)
    for path, post in zip(receiver.paths, receiver.posts, strict=True):
        posted[path] += post.count(b"\n")
    assert posted == {f"/{report['input']}": report["frames"] for report in reports} and len(posted) == 2


def test_a_picture_is_a_line_too(receiver: Receiver, tmp_path: Path) -> None:
    picture = Synthetic(pts=(0,), codec="png", pix_fmt="rgb24", format="image2").write(tmp_path / "a.png")
    with Segmenter(device="cpu") as segmenter:
        segmenter.run(picture, results=receiver.url)
    assert len(receiver.lines) == 1
