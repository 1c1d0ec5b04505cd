"""Recognizes encrypted streams, which FFmpeg decodes to garbage without an error."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import struct
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from segmentation.byte_source import ByteSource, source_name
from segmentation.errors import InputError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

_MOST_BOXES = 100_000  # a file of nothing but empty boxes would take minutes
_AROUND = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd"}  # boxes on the way to the sample entries
_ENCRYPTED = {b"encv", b"enca"}  # ISO/IEC 14496-12, 8.12: sample entries of protected video and audio


def refuse_encrypted(packet: Packet[VideoStream], path: str) -> None:
    """Raises `InputError` if FFmpeg marks this packet as encrypted."""
    if packet.has_sidedata("encryption_info"):
        raise _error(path)


def refuse_encrypted_mp4(source: str | ByteSource) -> None:
    """Raises `InputError` if an MP4 has encrypted streams. Its first packets may be clear all the same.

    A pipe is not searched: its packets alone are looked at.
    """
    name = source_name(source)
    if isinstance(source, ByteSource) and not source.seekable:
        return
    try:
        with Path(source).open("rb") if isinstance(source, str) else source.open() as file:
            if any(kind in _ENCRYPTED for kind in _sample_entries(file)):
                raise _error(name)
    except (OSError, struct.error):
        return  # FFmpeg has opened the file, and says what is wrong with it


def _sample_entries(file: BinaryIO | RawIOBase) -> Iterator[bytes]:
    """Yields the types of the sample entries and of all boxes on the way to them."""
    file.seek(0, 2)
    open_boxes = [(0, file.tell())]  # (position of the next box, end of the box around it)
    for _ in range(_MOST_BOXES):
        while open_boxes and open_boxes[-1][0] + 8 > open_boxes[-1][1]:
            open_boxes.pop()
        if not open_boxes:
            return
        begin, limit = open_boxes.pop()
        file.seek(begin)
        size, kind = struct.unpack(">I4s", file.read(8) or b"")
        header = 8
        if size == 1:  # the size follows, in 64 bits
            header, size = 16, struct.unpack(">Q", file.read(8) or b"")[0]
        end = min(begin + size, limit) if size >= header else limit  # 0: up to the end
        yield kind
        open_boxes.append((end, limit))
        if kind in _AROUND:
            open_boxes.append((begin + header + (8 if kind == b"stsd" else 0), end))


def _error(path: str) -> InputError:
    return InputError(f"{path}: is encrypted (DRM), and can't be decoded without its key")
