"""Messages to systemd, whose part a datagram socket plays."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import TIMEOUT, Served

from segmentation.cli.main import main
from segmentation.system.notify import notify


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.settimeout(TIMEOUT)
        bound.bind(f"\0{name}" if request.param == "abstract" else name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if request.param == "abstract" else name)
        yield bound


def test_a_state_arrives(manager: socket.socket) -> None:
    notify("READY=1")
    assert manager.recv(100) == b"READY=1"


def test_nobody_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    assert not caplog.records
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    notify("READY=1")
    assert "NOTIFY_SOCKET: takes no READY=1" in caplog.text


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_command_is_ready_once_its_arguments_are_right(manager: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_text("no video")
    assert main([str(tmp_path / "broken.mp4"), "-q", "--status", "no port"]) == 2
    assert main([str(tmp_path / "broken.mp4"), "-q"]) == 1
    assert manager.recv(100) == b"READY=1"
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_the_page_is_ready_once_it_listens(manager: socket.socket, tmp_path: Path) -> None:
    with Served(tmp_path / "work") as served:
        assert manager.recv(100) == b"READY=1"
        assert served.ask("healthz")[0] == 200
