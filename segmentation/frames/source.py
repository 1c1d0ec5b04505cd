"""Inputs by what they are: files, numbered pictures, addresses, cameras and streams, bytes. Each is parsed once."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from segmentation.errors import ConfigError, InputError, hide_secrets
from segmentation.frames.byte_source import ByteSource, FileSource, PipeSource, is_fifo, name_of, waitless_pipe
from segmentation.frames.picture_names import is_sequence

Input: TypeAlias = str | Path | bytes | BinaryIO
Kind: TypeAlias = Literal["file", "pictures", "url", "live", "bytes"]

_NAMED = re.compile(r"(\w[\w.-]*)=(.+)", re.DOTALL)
_DEVICE = re.compile(r"/dev/video\d+")
_FILE = "file"  # the scheme of files that are played at their own speed
_LIVE = ("rtsp", "rtsps", "rtmp", "srt", "udp", "rtp", _FILE)  # schemes


@dataclass(frozen=True, slots=True)
class Source:
    """An input. Numbered pictures are one by their pattern, and a video on the web by its http(s) address.

    Live are cameras and streams, by their scheme or as /dev/videoN. A name may stand before it, as in
    `hall=rtsp://...`. HLS is live with a name alone, and else a video that is read from its beginning to its end.
    `file:///...` is played at its own speed.
    """

    text: str  # as it was given; of bytes a name for messages
    kind: Kind
    address: str  # without the name of a live source
    name: str = ""  # of a live source, if it has one
    stream: ByteSource | None = None  # the bytes

    @classmethod
    def parse(cls, given: str | Path | Source) -> Source:
        """Returns the source that a name stands for, and one that is parsed already as it is.

        A file whose name could be a pattern of pictures is a file.
        """
        if isinstance(given, Source):
            return given
        text = str(given)
        if (found := _NAMED.fullmatch(text)) is not None and (_is_live(found[2]) or _is_hls(found[2])):
            return cls(text, "live", found[2], found[1])
        kind: Kind = "url" if is_url(text) else "live" if _is_live(text) else "file"
        return cls(text, "pictures" if kind == "file" and is_sequence(text) else kind, text)

    @classmethod
    def of_bytes(cls, stream: ByteSource) -> Source:
        """Returns bytes as an input."""
        return cls(stream.name, "bytes", stream.name, stream=stream)

    @property
    def label(self) -> str:
        """The input's name in messages, reports and traces, without secrets."""
        return self.name or hide_secrets(self.address)

    @property
    def scheme(self) -> str:
        """The address's scheme in lower case, empty for a file or a device."""
        return _scheme(self.address)

    @property
    def is_live(self) -> bool:
        """Whether it is a camera or a stream, which never comes again."""
        return self.kind == "live"

    @property
    def is_url(self) -> bool:
        """Whether it is a video at an http(s) address."""
        return self.kind == "url"

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for numbered pictures."""
        return self.kind == "pictures"

    @property
    def is_paced(self) -> bool:
        """Whether a live source sends faster than its frames are shown, so that their reader has to wait."""
        return is_url(self.address) or self.scheme == _FILE

    @property
    def is_read_once(self) -> bool:
        """Whether it is bytes that can't be read a second time."""
        return self.stream is not None and not self.stream.seekable

    @property
    def size(self) -> int:
        """The size of a file in bytes, 0 of whatever else."""
        return os.path.getsize(self.text) if os.path.isfile(self.text) else 0

    def open(self) -> BinaryIO | io.RawIOBase:
        """Returns a reader at the beginning of a file or of bytes. Raises `OSError`."""
        return Path(self.text).open("rb") if self.stream is None else self.stream.open()


def named(name: str, address: str) -> Source:
    """Returns a live source with a name. Raises `ConfigError` for one that is none, and for another kind of address."""
    source = Source.parse(f"{name}={address}")
    if not (name and Source.parse(address).is_live and (source.name, source.address) == (name, address)):
        text = "is no live source with a name; write such as hall and rtsp://camera/stream"
        raise ConfigError(f"{hide_secrets(source.text)}: {text}")
    return source


def source_of(given: Input | Source, stop: threading.Event) -> Source:
    """Returns the source that a caller's input stands for. Raises `ConfigError` for something else.

    Setting `stop` ends the reading of a file object that can't be sought.
    """
    if isinstance(given, str | Path | Source):
        return Source.parse(given)
    if isinstance(given, bytes | bytearray | memoryview):
        return Source.of_bytes(FileSource("<bytes>", io.BytesIO(given)))
    if isinstance(given, io.TextIOBase) or not callable(getattr(given, "read", None)):
        kind = type(given).__name__
        raise ConfigError(f"input: is of type {kind}; give a file's name, bytes, or a file object opened with 'rb'")
    seekable = getattr(given, "seekable", None)
    if seekable is not None and seekable():
        return Source.of_bytes(FileSource(name_of(given), given))
    return Source.of_bytes(PipeSource(name_of(given), given, stop))


@contextmanager
def opened(source: Source, stop: threading.Event) -> Iterator[Source]:
    """Yields a named pipe as the bytes that come out of it, and any other source as it is.

    Raises `InputError` where the pipe can't be opened.
    """
    if source.kind != "file" or not is_fifo(source.text):
        yield source
        return
    try:
        file = open(source.text, "rb", buffering=0, opener=waitless_pipe)  # noqa: SIM115
    except OSError as exc:
        raise InputError(f"{source.text}: cannot be opened ({exc.strerror})") from exc
    with file:
        yield Source.of_bytes(PipeSource(source.text, file, stop))


def is_url(text: str) -> bool:
    """Returns whether `text` is an http(s) address rather than a file's name."""
    return text.startswith(("http://", "https://"))


def is_device(path: str | Path) -> bool:
    """Returns whether `path` is a video device of Video4Linux."""
    return _DEVICE.fullmatch(str(path)) is not None


def file_address(path: str | Path) -> str:
    """Returns the address of a file that is to be played at its own speed."""
    return f"{_FILE}://{quote(str(Path(path).absolute()))}"


def _is_live(address: str) -> bool:
    return _scheme(address) in _LIVE or is_device(address)


def _is_hls(address: str) -> bool:
    return is_url(address) and urlsplit(address).path.endswith(".m3u8")


def _scheme(address: str) -> str:
    scheme, separator, _ = address.partition("://")
    return scheme.lower() if separator else ""
