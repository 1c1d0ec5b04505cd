"""Text that reaches a terminal: no control characters, no secrets."""

import pytest

from segmentation.errors import InputError, printable


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a\x1b[2J\r\nb\x07.mp4", r"a\x1b[2J\r\nb\x07.mp4"),
        ("\u202egpm.exe\u2028", r"\u202egpm.exe\u2028"),
        ("a\x9b2J\udcff", r"a\x9b2J\udcff"),
        ("Kätzchen 猫 \U0001f408.mp4", "Kätzchen 猫 \U0001f408.mp4"),
        ("http://user:secret@host:80/a.mp4: no such file", "http://***@host:80/a.mp4: no such file"),
        ("https://host/a.mp4?token=secret&v=1#secret, b", "https://host/a.mp4?token=***&v=***#***, b"),
        ("see HTTPS://me@se@host?secret.", "see HTTPS://***@host?***."),
        ("rtsp://me:s@cret@cam:554/s?u=secret, rtsps://me:secret@cam", "rtsp://***@cam:554/s?u=***, rtsps://***@cam"),
        ("rtmp://me:secret@h/live/cam?key=secret, rtmps://me:secret@h", "rtmp://***@h/live/cam?key=***, rtmps://***@h"),
        ("rtsp://cam/user=secret_password=se_cret_channel=1.sdp", "rtsp://cam/user=***_password=***_channel=1.sdp"),
        ("ftp://me:secret@h/a.mp4, x-y+z.1://me:secret@h", "ftp://***@h/a.mp4, x-y+z.1://***@h"),
        ("file:///a@b/c#t=1: no, -rtsp://me:secret@h", "file:///a@b/c#t=1: no, -rtsp://***@h"),
        ("srt://host:1?passphrase=secret: no", "srt://host:1?passphrase=***: no"),
        ("https://host/a@b/c.mp4: ok", "https://host/a@b/c.mp4: ok"),
        ("rtsp://user:pa/ss@host:554/x: no", "rtsp://***@host:554/x: no"),
        ("rtsp://user:secret#1@host/x: no", "rtsp://***@host/x: no"),
        ("rtsp://user:secret word@host/x: no", "rtsp://***@host/x: no"),
        ("rtsp:/me:secret@cam/s: no such file", "rtsp:/***@cam/s: no such file"),
        ("rtsp//me:secret@cam/s, RTSP:me:secret@cam", "rtsp//***@cam/s, RTSP:***@cam"),
        ("http:///me:secret@host/a.mp4, srt:\\\\me:secret@h", "http:///***@host/a.mp4, srt:\\\\***@h"),
        ("me:secret@10.0.0.5:554/s, me:secret@cam.local/s", "***@10.0.0.5:554/s, ***@cam.local/s"),
        ("effect 'blur:40@face', 640,360@1:02, a@b.mp4: no", "effect 'blur:40@face', 640,360@1:02, a@b.mp4: no"),
        ("rtsp://host:554: refused, ask a@b", "rtsp://host:554: refused, ask a@b"),
        ("rtsp://host:554/x, or rtsp://host: a@b", "rtsp://host:554/x, or rtsp://host: a@b"),
    ],
)
def test_lines_for_a_terminal(text: str, printed: str) -> None:
    assert printable(text) == printed


def test_errors_hide_secrets() -> None:
    error = InputError("http://user:secret@host/a.mp4?t=secret: empty")
    assert str(error) == "http://***@host/a.mp4?t=***: empty" and repr(error) == f"InputError('{error}')"
