"""Addresses: what is read, where redirects and playlists may lead, and how waiting ends."""

import itertools
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hostile_server import HostileServer
from paths import SAMPLE
from server import Server, serving
from videos import Synthetic

from segmentation.errors import InputError
from segmentation.media.demux import demuxed
from segmentation.media.opening import download
from segmentation.media.opening.download import DownloadError, HttpFile, is_public
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe
from segmentation.system.access import Access

DATA = bytes(range(256)) * 20_000  # 5 MB
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYICGr3T2ZmJQ7Xg6
rNrKc/Z+Ttuugk61BG96wVdc9V6hRANCAASGNV/bvYyUtbYLmPyOlHNGwUD8WMFX
L3D0Dv9ehzZlozhjoQCi2D1KgueGlAYGGUEpUZqS9f7/XKAj5c2Bh3KS
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBazCCARKgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjUwMTAxMDAwMDAwWhgPMjEyNTAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIY1X9u9jJS1tguY
/I6Uc0bBQPxYwVcvcPQO/16HNmWjOGOhAKLYPUqC54aUBgYZQSlRmpL1/v9coCPl
zYGHcpKjUzBRMA8GA1UdEQQIMAaHBH8AAAEwDwYDVR0TAQH/BAUwAwEB/zAdBgNV
HQ4EFgQU5TAjyMzsqZfsq3bw3zps8DAiNVkwDgYDVR0PAQH/BAQDAgKEMAoGCCqG
SM49BAMCA0cAMEQCICqo7Ajlt6w6jmgOexjmbw/uMqENnaXmlgfuQBUbDr+bAiBe
qGVtQ8H0rJLJ7EA46k7sY9xDj02W3k+8Whafz5O9PQ==
-----END CERTIFICATE-----
"""  # signed by itself, for 127.0.0.1, until 2125


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "data").write_bytes(DATA)
    (tmp_path / "a.mp4").write_bytes(SAMPLE.read_bytes())
    with serving(tmp_path) as server:
        yield server


def opened(address: str, access: Access | None = None) -> HttpFile:
    return HttpFile(address, access or Access(), named=True)


def test_a_file_is_read_and_sought(server: Server) -> None:
    file = opened(f"{server.address}/data")
    assert file.seekable() and file.read(1000) == DATA[: len(file.beginning)][:1000]
    for place in (0, 10, 100_000, 4_000_000, 50, len(DATA) - 7):
        assert file.seek(place) == file.tell() == place
        data = file.read(1000)
        assert data and data == DATA[place : place + len(data)]
    assert file.seek(-5, 2) == len(DATA) - 5 and file.read(100) == DATA[-5:] and file.read(100) == b""
    assert file.seek(-1) < 0


def test_what_lies_near_is_read_over(server: Server) -> None:
    file = opened(f"{server.address}/data")
    file.seek(900_000)
    assert file.read(10) == DATA[900_000:900_010] and len(server.asked) == 1
    file.seek(3_000_000)
    assert file.read(10) == DATA[3_000_000:3_000_010] and len(server.asked) == 2


def test_a_server_without_parts_is_read_once(server: Server) -> None:
    file = opened(f"{server.address}/whole/data")
    assert not file.seekable() and b"".join(iter(lambda: file.read(1 << 16), b"")) == DATA


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/missing.mp4", "no such file on the server (404 Not Found)"),
        ("/status/410", "no such file on the server (410 Gone)"),
        ("/status/403", "the server refuses it (403 Forbidden)"),
        ("/status/401", "asks for a user and password (401 Unauthorized)"),
        ("/status/503", "503 Service Unavailable; try again later"),
        ("/to//to//to//to//to//to//to//to//to//to/a.mp4", "redirected more than 8 times"),
        ("/to/file:///etc/passwd", "redirected to what is no http(s) address"),
        ("/to/ftp://example.org/a.mp4", "redirected to what is no http(s) address"),
    ],
)
def test_refusals_are_one_line(server: Server, path: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        probe(server.address + path)
    assert said in str(caught.value) and str(caught.value).startswith(server.address) and "\n" not in str(caught.value)


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        with pytest.raises(InputError, match=r"127.0.0.1:\d+ refuses the connection; does a server run there\?"):
            probe(f"http://127.0.0.1:{taken.getsockname()[1]}/a.mp4")
    with pytest.raises(InputError, match=r"the name nosuch\.invalid can't be found \(DNS\)"):
        probe("http://nosuch.invalid/a.mp4")
    with pytest.raises(InputError, match=r"http:///a\.mp4: is no http\(s\) address"):
        probe("http:///a.mp4")


def test_silence_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "CONNECT", 0.5)
    refused = pytest.raises(InputError, match=r"no answer from \S.* for 0\.5 s")
    with socket.create_server(("127.0.0.1", 0)) as silent, refused:
        probe(f"http://127.0.0.1:{silent.getsockname()[1]}/a.mp4")


def test_a_stall_ends_with_the_limit_or_the_signal(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "STALL", 0.5)
    monkeypatch.setattr(download, "CONNECT", 0.4)  # limits the wait for the answer alone
    file = opened(f"{server.address}/stall/100000/data")
    with pytest.raises(DownloadError, match=r"no data from 127\.0\.0\.1 for 0\.5 s"):
        while file.read(1 << 16):
            pass
    monkeypatch.undo()
    access = Access()
    file = opened(f"{server.address}/stall/100000/data", access)
    threading.Timer(0.3, access.stop.set).start()
    with pytest.raises(DownloadError, match="stopped"):
        while file.read(1 << 16):
            pass


def test_an_interrupt_is_raised_where_an_input_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """While PyAV waits for the file's first bytes, or for later ones."""
    take = download._Download.take

    def interrupted(one: download._Download) -> bytes:
        if next(left) == 0:
            raise KeyboardInterrupt
        return take(one)

    monkeypatch.setattr(download._Download, "take", interrupted)
    for calls in (1, 2):
        left = itertools.count(calls - 1, -1)
        with pytest.raises(KeyboardInterrupt), open_input(f"{server.address}/a.mp4") as container:
            list(demuxed(container))
    assert "Exception ignored" not in capfd.readouterr().err


def test_single_bytes_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "CONNECT", 0.5)
    refused = pytest.raises(InputError, match=r"no answer from 127\.0\.0\.1 for 0\.5 s")
    with HostileServer("http", "drip") as server, refused:
        probe(server.url)


@pytest.mark.parametrize(
    ("part", "stall", "said"),
    [("http", download.STALL, "got more than 100 headers"), ("trailer", 0.5, r"no data from \S+ for 0\.5 s|timed out")],
)
def test_headers_without_end_are_no_answer(part: str, stall: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "STALL", stall)
    with HostileServer(part, "endless") as server, pytest.raises(InputError, match=said):
        probe(server.url)


def test_a_connection_that_breaks_off_is_an_error(server: Server) -> None:
    file = opened(f"{server.address}/short/100000/data")
    with pytest.raises(DownloadError, match="broke off 5020000 bytes before the end"):
        while file.read(1 << 16):
            pass


def test_redirects_into_private_space_need_leave(server: Server, tmp_path: Path) -> None:
    """The server that the user named may be private; another one may not, though it is on the same machine."""
    assert probe(f"{server.address}/to/{server.address}/a.mp4").width == 640
    with serving(tmp_path) as other:
        address = f"{server.address}/to/{other.address}/a.mp4"
        with pytest.raises(InputError, match=r"leads to the private address 127\.0\.0\.1, .*--allow private$"):
            probe(address)
        assert not other.asked
        assert probe(address, Access(private=True)).width == 640 and other.asked


def test_a_name_whose_address_changes_leads_nowhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the check is of the connection, and the named server is that of the first connection."""
    with serving(tmp_path) as other:
        ports = {"first": server.server_port, "then": other.server_port}
        answers = iter(["first", "then", "then"])
        create = socket.create_connection

        def look_up(place: tuple[str, int], *rest: object, **named: object) -> socket.socket:
            return create(("127.0.0.1", ports[next(answers)]), timeout=5)

        monkeypatch.setattr(socket, "create_connection", look_up)
        access = Access()
        with open_input("http://changing.example/a.mp4", access):
            pass
        with pytest.raises(InputError, match="private address"):
            open_input("http://changing.example/a.mp4", access)
        assert not other.asked


def test_user_and_password_are_sent_to_their_server_alone(server: Server, tmp_path: Path) -> None:
    with serving(tmp_path) as other:
        address = f"http://u:p%40@{server.address[7:]}/to/{other.address}/a.mp4"
        probe(address, Access(private=True))
        assert server.asked[0][1]["Authorization"] == "Basic dTpwQA=="
        assert "Authorization" not in other.asked[0][1]


@contextmanager
def serving_tls(folder: Path) -> Iterator[str]:
    """An https server in the folder `tls` of `folder`. Yields its address."""
    (folder / "tls").mkdir()
    (folder / "tls" / "a.mp4").write_bytes(SAMPLE.read_bytes())
    (folder / "both.pem").write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    with serving(folder / "tls") as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield f"https://127.0.0.1:{server.server_port}"
        assert all("Proxy-Authorization" not in headers for _, headers in server.asked)


def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_tls(tmp_path) as address:
        with pytest.raises(InputError, match=r"the certificate of 127\.0\.0\.1:\d+ is not valid \(self.signed"):
            probe(f"{address}/a.mp4")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
        assert probe(f"{address}/a.mp4").width == 640


def test_redirects_into_private_space_need_leave_with_tls_too(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
    with serving_tls(tmp_path) as address:
        with pytest.raises(InputError, match=r"leads to the private address 127\.0\.0\.1, .*--allow private$"):
            probe(f"{server.address}/to/{address}/a.mp4")
        assert probe(f"{server.address}/to/{address}/a.mp4", Access(private=True)).width == 640


def test_a_proxy_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.address)
    assert probe("http://videos.example/a.mp4").width == 640
    assert server.asked[0][0] == "http://videos.example/a.mp4"


def test_a_proxy_gets_its_password(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://u:p@{server.address[7:]}")
    assert probe("http://bücher.example/a.mp4").width == 640
    path, headers = server.asked[0]
    assert path == "http://xn--bcher-kva.example/a.mp4" and headers["Proxy-Authorization"] == "Basic dTpw"


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(InputError, match=r"127\.0\.0\.1:1: unknown url type: socks5"):
        probe("http://videos.example/a.mp4")


class Tunnel(BaseHTTPRequestHandler):
    """A proxy for https that leads to one server, whatever is asked for."""

    port = 0
    asked: list[str]

    def do_CONNECT(self) -> None:
        self.asked.append(f"{self.path} {self.headers['Proxy-Authorization']}")
        with socket.create_connection(("127.0.0.1", self.port)) as far:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=relay, args=(far, self.connection))
            back.start()
            relay(self.connection, far)
            back.join()

    def log_message(self, format: str, *values: object) -> None:
        pass


def relay(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()


def test_a_proxy_is_used_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
    with serving_tls(tmp_path) as address, ThreadingHTTPServer(("127.0.0.1", 0), Tunnel) as proxy:
        port = int(re.sub(r".*:", "", address))
        monkeypatch.setattr(Tunnel, "port", port)
        monkeypatch.setattr(Tunnel, "asked", [], raising=False)
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("https_proxy", f"http://u:p@127.0.0.1:{proxy.server_port}")
        monkeypatch.setenv("no_proxy", "")
        assert probe(f"{address}/a.mp4").width == 640
        assert Tunnel.asked[0] == f"127.0.0.1:{port} Basic dTpw"
        proxy.shutdown()


def test_letters_of_any_kind_may_stand_in_an_address(server: Server) -> None:
    (server.folder / "%C3%A4%20b.mp4").write_bytes(SAMPLE.read_bytes())
    assert probe(f"{server.address}/ä%20b.mp4").width == 640


@pytest.mark.parametrize(
    ("ip", "public"),
    [
        ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False), ("169.254.169.254", False),
        ("100.64.0.1", False), ("0.0.0.0", False), ("::1", False), ("fe80::1%eth0", False), ("fd00::1", False),
        ("::ffff:10.0.0.1", False), ("224.0.0.1", False), ("8.8.8.8", True), ("2606:4700::1111", True),
        ("::ffff:8.8.8.8", True),
    ],
)  # fmt: skip
def test_which_addresses_are_public(ip: str, public: bool) -> None:
    assert is_public(ip) == public


@pytest.mark.parametrize(("flags", "hint"), [("", "needs its index at its beginning"), ("faststart", "")])
def test_an_index_at_the_end_is_named_where_a_server_sends_no_parts(flags: str, hint: str, tmp_path: Path) -> None:
    options = {"codec": "libx264", "size": (320, 240), "pts": range(50)}
    Synthetic(**options, container_options={"movflags": flags} if flags else {}).write(tmp_path / "a.mp4")
    with serving(tmp_path) as server:
        assert probe(f"{server.address}/a.mp4").frames == 50
        if not hint:
            assert probe(f"{server.address}/whole/a.mp4").frames == 50
            return
        with pytest.raises(InputError, match=f"from a server that sends no parts an MP4 {hint}.*faststart"):
            probe(f"{server.address}/whole/a.mp4")
