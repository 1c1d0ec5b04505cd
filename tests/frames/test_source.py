"""What names of inputs stand for."""

import io
import threading
from pathlib import Path

import pytest

from segmentation import ConfigError
from segmentation.frames.source import Source, named, source_of


@pytest.mark.parametrize(
    ("text", "name", "address"),
    [
        ("hall=rtsp://user:pa=ss@camera/s", "hall", "rtsp://user:pa=ss@camera/s"),
        ("gate-2.a=/dev/video0", "gate-2.a", "/dev/video0"),
        ("hall=https://camera/a.m3u8?b=c", "hall", "https://camera/a.m3u8?b=c"),
        ("rtsp://camera/user=admin_password=x", "", "rtsp://camera/user=admin_password=x"),
        ("a/b=rtsp://camera", "", "a/b=rtsp://camera"),  # no part of a path becomes a name
        ("..=rtsp://camera", "", "..=rtsp://camera"),
        ("hall=clip.mp4", "", "hall=clip.mp4"),
    ],
)
def test_names(text: str, name: str, address: str) -> None:
    source = Source.parse(text)
    assert (source.name, source.address) == (name, address)
    assert source.is_live == (bool(name) or text.startswith("rtsp"))


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "%d.png").touch()
    kinds = {
        "a.mp4": "file",
        "https://x/a.m3u8": "url",
        "RTSP://x": "live",
        "/dev/video3": "live",
        "a/%03d.png": "pictures",
    }
    assert {text: Source.parse(text).kind for text in kinds} == kinds
    assert Source.parse(tmp_path / "%d.png").kind == "file"  # there is such a file
    assert Source.parse("file:///a.mp4").is_paced and not Source.parse("udp://:5000").is_paced
    given = source_of(b"video", threading.Event())
    assert given.kind == "bytes" and given.open().read() == b"video" and not given.is_read_once
    assert source_of(given, threading.Event()) is given
    with pytest.raises(ConfigError, match="of type StringIO"):
        source_of(io.StringIO(), threading.Event())  # type: ignore[arg-type]


def test_a_label_has_no_secrets() -> None:
    assert Source.parse("hall=rtsp://user:password@camera/s").label == "hall"
    assert Source.parse("rtsp://user:password@camera/s").label == "rtsp://***@camera/s"
    assert Source.parse("clip.mp4").label == "clip.mp4"


@pytest.mark.parametrize("name, address", [("", "rtsp://x"), ("a/b", "rtsp://x"), ("hall", "a.mp4")])
def test_what_is_no_live_source_gets_no_name(name: str, address: str) -> None:
    with pytest.raises(ConfigError, match="is no live source with a name"):
        named(name, address)
