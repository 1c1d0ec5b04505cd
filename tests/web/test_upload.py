"""The rest of a body that is refused is taken in, so that its client reads why; one that drips is not waited for."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("python_multipart")

from starlette.requests import Request
from starlette.types import Message

from segmentation.errors import ConfigError
from segmentation.web import upload
from segmentation.web.problems import TooMuch
from segmentation.web.upload import Upload

HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.mp4"\r\n\r\n'
CHUNKS = 20


def left_of(most: int, headers: list[tuple[bytes, bytes]], folder: Path) -> int:
    """Returns how many chunks of an upload that is refused are not taken in."""
    chunks = [HEAD, *[bytes(100)] * CHUNKS]

    async def receive() -> Message:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    kind = (b"content-type", b"multipart/form-data; boundary=b")
    request = Request({"type": "http", "headers": [kind, *headers]}, receive)
    with pytest.raises(TooMuch):
        asyncio.run(Upload(folder, most, ()).read(request))
    return len(chunks)


def test_the_rest_is_taken_in(tmp_path: Path) -> None:
    assert left_of(500, [], tmp_path) == 0


def test_who_asks_first_sends_nothing(tmp_path: Path) -> None:
    headers = [(b"content-length", b"100000000000"), (b"expect", b"100-continue")]
    assert left_of(500, headers, tmp_path) == CHUNKS + 1


def refused(body: bytes, folder: Path) -> str:
    """Returns why a body is refused."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    kind = (b"content-type", b"multipart/form-data; boundary=b")
    request = Request({"type": "http", "headers": [kind]}, receive)
    with pytest.raises(ConfigError) as error:
        asyncio.run(Upload(folder, 1000, ("options", "source")).read(request))
    return str(error.value)


@pytest.mark.parametrize("end", [b"", b"\r\n--b", b"\r\n--b\r\n"])
def test_a_body_that_ends_early_is_refused(end: bytes, tmp_path: Path) -> None:
    assert refused(HEAD + b"half of a video" + end, tmp_path) == "the body: ends before its last boundary"


def test_a_file_in_a_field_of_text_is_said(tmp_path: Path) -> None:
    body = HEAD.replace(b'"file"', b'"source"') + b"\xff\xd8\r\n--b--\r\n"
    assert refused(body, tmp_path) == "source: is no UTF-8 text; send a file as file=@NAME"


def field(name: str, value: bytes = b"a") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)


def test_what_would_count_for_nothing_is_refused(tmp_path: Path) -> None:
    """A misspelt `options` gave another video than was asked for."""
    end = b"--b--\r\n"
    assert refused(field("option") + end, tmp_path) == "'option': is no field of this request; did you mean options?"
    assert refused(field("options") * 2 + end, tmp_path) == "options: is there twice"
    both = field("source") + HEAD + b"video\r\n" + end
    assert refused(both, tmp_path) == "file, source: both are there; send one of them"


def test_drips_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_PATIENCE", 1e-9)
    assert left_of(1 << 20, [], tmp_path) >= CHUNKS - 1
