"""Names of live sources, and what is one."""

import pytest

from segmentation.live.address import is_live, source_label, split_name


@pytest.mark.parametrize(
    ("source", "name", "address"),
    [
        ("hall=rtsp://user:pa=ss@camera/s", "hall", "rtsp://user:pa=ss@camera/s"),
        ("gate-2.a=/dev/video0", "gate-2.a", "/dev/video0"),
        ("rtsp://camera/user=admin_password=x", "", "rtsp://camera/user=admin_password=x"),
        ("a/b=rtsp://camera", "", "a/b=rtsp://camera"),  # no part of a path becomes a name
        ("..=rtsp://camera", "", "..=rtsp://camera"),
        ("hall=clip.mp4", "", "hall=clip.mp4"),
    ],
)
def test_names(source: str, name: str, address: str) -> None:
    assert split_name(source) == (name, address)
    assert is_live(source) == (bool(name) or source.startswith("rtsp"))


def test_a_label_has_no_secrets() -> None:
    assert source_label("hall=rtsp://user:password@camera/s") == "hall"
    assert source_label("rtsp://user:password@camera/s") == "rtsp://***@camera/s"
    assert source_label("clip.mp4") == "clip.mp4"
