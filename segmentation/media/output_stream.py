"""Outputs that are written from their beginning to their end, and never sought: pipes and file objects."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import BinaryIO, TypeAlias, get_args

import av

from segmentation.errors import ConfigError, hide_secrets
from segmentation.frames.byte_source import is_fifo, name_of, pipe_opener
from segmentation.frames.source import is_device
from segmentation.options.config import Config
from segmentation.options.keywords import Format
from segmentation.system.interrupts import carries_interrupts

Output: TypeAlias = str | Path | BinaryIO

SUFFIXES: dict[Format, str] = dict(zip(get_args(Format), (".mkv", ".ts", ".nut", ".y4m", ".yuv"), strict=True))
# By scheme of an address that is written to, FFmpeg's format.
_SENT = {"rtsp": "rtsp", "rtmp": "flv", "udp": "mpegts", "srt": "mpegts"}
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FORMATS = {suffix: name for name, suffix in SUFFIXES.items()}


class OutputStream:
    """A pipe or a file object, with the format of what is written to it."""

    def __init__(self, name: str, file: BinaryIO | None, format: Format) -> None:
        """Without `file`, `name` is a named pipe."""
        self.name, self.format = name, format
        self.suffix = SUFFIXES[format]  # of files of this format
        self._file = file
        self._own = file is None

    def __str__(self) -> str:
        return self.name

    def open(self) -> None:
        """Opens a named pipe, which waits for its reader. Raises `OSError`."""
        if self._own:
            self._file = open(self.name, "wb", opener=pipe_opener)  # noqa: SIM115

    @carries_interrupts
    def write(self, data: bytes) -> int:
        """Writes all of `data` at once. PyAV calls it."""
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            written = self._file.write(rest)
            rest = rest[len(rest) if written is None else written :]  # raw files may take a part
        if (flush := getattr(self._file, "flush", None)) is not None:
            flush()
        return len(data)

    def close(self) -> None:
        """Closes a named pipe. The caller's file object stays open. Raises `OSError`."""
        if self._own and self._file is not None:
            self._file.close()


class OutputAddress(OutputStream):
    """An address that the video is sent to as it is made."""

    def __init__(self, address: str) -> None:
        super().__init__(hide_secrets(address), None, "mpegts")  # the codecs of MPEG-TS are those that RTSP takes
        self.scheme = address.partition("://")[0].lower()
        self.address = self.scheme + address[len(self.scheme) :]  # FFmpeg knows schemes in lower case alone
        self.container = _SENT[self.scheme]  # FFmpeg's name of the format

    def open(self) -> None:
        """Opens nothing: FFmpeg connects."""


class OutputDevice(OutputStream):
    """A video device, such as one of v4l2loopback, which gets the frames as they come: YUV 4:2:0 in 8 bits."""

    container = "v4l2"  # FFmpeg's name of the format

    def __init__(self, path: str) -> None:
        """Raises `ConfigError` where FFmpeg can't write to devices."""
        super().__init__(path, None, "rawvideo")
        try:
            av.ContainerFormat(self.container, "w")
        except ValueError:
            pipe = f"segmentation INPUT -o - --format y4m | ffmpeg -i - -f v4l2 {path}"
            raise ConfigError(f"output {path}: is a video device, which a pipe writes to: {pipe}") from None

    def open(self) -> None:
        """Opens nothing: FFmpeg does."""


def is_output_address(output: object) -> bool:
    """Returns whether an output is an address. Raises `ConfigError` for one that video can't be sent to."""
    found = _ADDRESS.match(output) if isinstance(output, str) else None
    if found is not None and found[1].lower() not in _SENT:
        known = ", ".join(f"{scheme}://" for scheme in _SENT)
        raise ConfigError(f"output {hide_secrets(found.string)}: can't be sent to; addresses begin with {known}")
    return found is not None


Target: TypeAlias = Path | OutputStream


def as_target(output: Output | OutputStream, config: Config) -> Target:
    """Returns the file or stream that `output` stands for. Raises `ConfigError` if it can be neither."""
    if isinstance(output, OutputStream):
        return output
    if isinstance(output, str) and is_output_address(output):
        if config.format is not None:
            raise ConfigError(
                f"format {config.format!r}: is for pipes; that of {hide_secrets(output)} follows from its scheme"
            )
        return OutputAddress(output)
    if isinstance(output, str | Path):
        path = Path(output)
        if is_device(path) and config.format is None:
            return OutputDevice(str(path))
        if is_fifo(path):
            return OutputStream(str(output), None, config.format or _FORMATS.get(path.suffix.lower(), "matroska"))
        if config.format is not None:
            raise ConfigError(f"format {config.format!r}: is for pipes; the format of {path} follows from its suffix")
        return path
    if isinstance(output, io.TextIOBase) or not callable(getattr(output, "write", None)):
        kind = type(output).__name__
        raise ConfigError(f"output: is of type {kind}; give a file's name, or a file object opened with 'wb'")
    return OutputStream(name_of(output), output, config.format or "matroska")
