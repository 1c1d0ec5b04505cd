"""Recognizes encrypted streams, which FFmpeg decodes to garbage without an error."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import struct
from typing import TYPE_CHECKING

from segmentation.errors import InputError
from segmentation.frames.source import Source
from segmentation.media.mp4_boxes import boxes

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

_AROUND = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd"}  # boxes on the way to the sample entries
_ENCRYPTED = {b"encv", b"enca"}  # ISO/IEC 14496-12, 8.12: sample entries of protected video and audio


def refuse_encrypted(packet: Packet[VideoStream], path: str) -> None:
    """Raises `InputError` if FFmpeg marks this packet as encrypted."""
    if packet.has_sidedata("encryption_info"):
        raise _error(path)


def refuse_encrypted_mp4(source: Source) -> None:
    """Raises `InputError` if an MP4 has encrypted streams. Its first packets may be clear all the same.

    A pipe is not searched: its packets alone are looked at.
    """
    if source.is_read_once:
        return
    try:
        with source.open() as file:
            if any(kind in _ENCRYPTED for kind, _, _ in boxes(file, _AROUND)):
                raise _error(source.text)
    except (OSError, struct.error):
        return  # FFmpeg has opened the file, and says what is wrong with it


def _error(path: str) -> InputError:
    return InputError(f"{path}: is encrypted (DRM), and can't be decoded without its key")
