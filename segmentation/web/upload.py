"""Reads multipart bodies (RFC 7578): a file goes straight to the disk, the other fields are short."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from segmentation.errors import ConfigError, OutputError, SegmentationError, did_you_mean, one_line, printable
from segmentation.web.problems import TooMuch
from segmentation.web.store import StoredInput

_PATIENCE = 60.0  # seconds in which `_LEAST` bytes have to come
_LEAST = 1 << 16
_LONGEST_FIELD = 1 << 16  # bytes
_LONGEST_PROJECT = 8 << 20  # likewise of the field `project`
_MOST_FIELDS = 16


class _TooSlow(TooMuch):
    """A body that drips."""


class Upload:
    """The fields of a request, and its file at `path` if it has one."""

    def __init__(self, folder: Path, most: int, known: Collection[str]) -> None:
        """Files may have `most` bytes, and are written in `folder`. `known` are the names of the other fields."""
        self._folder, self._most, self._known = folder, most, known
        self.fields: dict[str, str] = {}
        self.path: Path | None = None
        self.name = ""  # of the file, as the client calls it
        self._file: BinaryIO | None = None
        self._header: list[bytes] = [b"", b""]
        self._disposition = b""
        self._field, self._value = "", b""
        self._whole = False

    def stored(self) -> StoredInput:
        """Returns the file as an input, whose id is the folder's name. Raises `ConfigError` without a file."""
        if self.path is None:
            raise ConfigError("file: is missing")
        return StoredInput(self._folder.name, printable(self.name), str(self.path))

    async def read(self, request: Request) -> Upload:
        """Takes in the whole body. Raises `ConfigError`, `TooMuch`, or `OutputError` where the disk is full."""
        try:
            return await self._read(request)
        except _TooSlow:
            raise
        except SegmentationError:
            await leave_out_rest(request)
            raise

    async def _read(self, request: Request) -> Upload:
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise ConfigError("the body: must be multipart/form-data, as of curl -F")
        others = _LONGEST_FIELD * _MOST_FIELDS + _LONGEST_PROJECT
        if int(request.headers.get("content-length", 0)) > self._most + others:
            raise self._too_long()
        parser = MultipartParser(
            options[b"boundary"],
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._add(0, data[start:end]),
                "on_header_value": lambda data, start, end: self._add(1, data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._open,
                "on_part_data": self._take,
                "on_part_end": self._end,
                "on_end": self._finish,
            },
        )
        try:
            async for chunk in _in_time(request):
                parser.write(chunk)
            parser.finalize()
            if not self._whole:
                raise ConfigError("the body: ends before its last boundary")
            if self.path is not None and self.fields.get("source"):
                raise ConfigError("file, source: both are there; send one of them")
        except (MultipartParseError, UnicodeDecodeError) as exc:
            raise ConfigError(f"the body: is no multipart/form-data ({one_line(exc)})") from exc
        except OSError as exc:
            raise OutputError(f"the upload can't be written ({one_line(exc)})") from exc
        finally:
            if self._file is not None:
                self._file.close()
        return self

    def _begin(self) -> None:
        self._disposition, self._value = b"", b""

    def _add(self, index: int, data: bytes) -> None:
        self._header[index] += data
        if len(self._header[index]) > _LONGEST_FIELD:
            raise TooMuch("the body: a header is too long")

    def _end_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = value
        self._header = [b"", b""]

    def _open(self) -> None:
        options = parse_options_header(self._disposition)[1]
        self._field = options.get(b"name", b"").decode()
        if self._field == "file":
            if self.path is not None:
                raise ConfigError("file: is there twice; send one request for each")
            self.name = options.get(b"filename", b"").decode().replace("\\", "/").rpartition("/")[2] or "input"
            self.path = self._folder / "input"
            self._file = open(self.path, "xb")  # noqa: SIM115  # `read` closes it
        elif self._field not in self._known:
            near = did_you_mean(self._field, {"file", *self._known})
            raise ConfigError(f"{printable(self._field)!r}: is no field of this request{near}")
        elif self._field in self.fields:
            raise ConfigError(f"{self._field}: is there twice")

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file" and self._file is not None:
            self._file.write(data[start:end])
            if self._file.tell() > self._most:
                raise self._too_long()
            return
        self._value += data[start:end]
        most = _LONGEST_PROJECT if self._field == "project" else _LONGEST_FIELD
        if len(self._value) > most:
            raise TooMuch(f"{self._field}: is longer than {most} bytes")

    def _end(self) -> None:
        if self._field == "file":
            return
        try:
            self.fields[self._field] = self._value.decode()
        except UnicodeDecodeError as exc:
            raise ConfigError(f"{self._field}: is no UTF-8 text; send a file as file=@NAME") from exc

    def _finish(self) -> None:
        self._whole = True

    def _too_long(self) -> TooMuch:
        return TooMuch(f"file: is longer than {self._most} bytes (--max-upload)")


async def leave_out_rest(request: Request) -> None:
    """Takes in the rest of a body that is refused.

    A connection that ends with its request would be reset before a client that still sends has read the answer.
    """
    if "expect" in request.headers:  # the client waits to be asked for the body, or reads while it sends
        return
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # the last if there is no rest
        async with asyncio.timeout(_PATIENCE):
            async for _ in request.stream():
                pass


async def _in_time(request: Request) -> AsyncIterator[bytes]:
    """Yields the body's chunks. Raises `_TooSlow` for a client that drips."""
    chunks = request.stream().__aiter__()
    since, size = time.monotonic(), 0
    while True:
        try:
            async with asyncio.timeout(_PATIENCE):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise _TooSlow(f"the body: no byte came for {_PATIENCE:g} s") from None
        except ClientDisconnect:
            raise ConfigError("the body: the client has gone") from None
        size += len(chunk)
        if time.monotonic() - since > _PATIENCE:
            if size < _LEAST:
                raise _TooSlow(f"the body: comes more slowly than {_LEAST} bytes in {_PATIENCE:g} s")
            since, size = time.monotonic(), 0
        yield chunk
