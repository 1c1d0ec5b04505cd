"""`segmentation-models` writes the file that the table names, after consent, and no other."""

import functools
import hashlib
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from paths import ROOT, SHARED

from segmentation.cli.networks.fetch import main
from segmentation.cli.networks.table import NETWORKS, Network
from segmentation.models.model import load_model
from segmentation.options.config import Config

CONTENT = bytes(range(256)) * 8000  # more than a read


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A network of the table, `thing`, whose file a server of this machine has; yields that file."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    file = tmp_path / "there" / "thing.onnx"
    file.write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=file.parent))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    network = Network(
        address=f"http://127.0.0.1:{server.server_port}/thing.onnx",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        license="MIT",
        origin="https://example.com/thing",
        finds="things",
        options="--model thing.onnx",
    )
    monkeypatch.setitem(NETWORKS, "thing", network)
    yield file
    server.shutdown()
    server.server_close()


def test_an_agreed_network_is_written_whole_and_not_fetched_again(
    served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "thing", "--yes"]) == 0
    said = capsys.readouterr()
    assert said.out == "thing.onnx\n" and Path("thing.onnx").read_bytes() == CONTENT
    assert "license is MIT" in said.err and "2.0 MB" in said.err and "--model thing.onnx" in said.err
    served.unlink()
    assert main(["fetch", "thing"]) == 0
    assert "is there already" in capsys.readouterr().err


def test_nothing_is_fetched_without_consent(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "thing"]) == 2
    assert "--yes agrees" in capsys.readouterr().err and not list(Path().iterdir())


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT[:-1], CONTENT + b"x", None])
def test_another_file_is_refused_and_leaves_nothing(
    content: bytes | None, served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.unlink() if content is None else served.write_bytes(content)
    assert main(["fetch", "thing", "--yes"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert ("no such file on the server" if content is None else "is another file") in line
    assert not list(Path().iterdir())


def test_another_file_is_replaced_on_request_alone(served: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("thing.onnx").write_text("mine")
    assert main(["fetch", "thing", "--yes"]) == 1
    assert "exists already" in capsys.readouterr().err and Path("thing.onnx").read_text() == "mine"
    assert main(["fetch", "thing", "--yes", "-o", "other.onnx"]) == 0
    assert main(["fetch", "thing", "--yes", "-y"]) == 0 and Path("thing.onnx").read_bytes() == CONTENT


@pytest.mark.parametrize("arguments", [["fetch"], ["fetch", "prisma"], ["fetch", "nothing"]])
def test_an_unknown_name_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "segmentation-models list shows all" in line and ("prisma-portrait" in line) == ("prisma" in arguments)


def test_the_list_and_the_page_name_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NETWORKS)
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_table_describes_the_files(name: str) -> None:
    path, network = SHARED / "models" / f"{name}.onnx", NETWORKS[name]
    if not path.exists():
        pytest.skip(f"{path} is missing")
    data = path.read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (network.sha256, network.size)
    load_model(Config(model=str(path)))
