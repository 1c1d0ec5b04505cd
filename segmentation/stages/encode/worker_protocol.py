"""What `segments.SegmentEncoder` and the process with its encoders send each other.

Each message is pickled, small, and goes through a socket that keeps messages apart; pictures and packets do not: they
are in memory that both see, and a message brings the file that this memory is.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from segmentation.shared_memory import PlaneLocation
from segmentation.stages.encode.codec_settings import Coding

_LONGEST = 1 << 18  # bytes
_FILE = struct.Struct("i")  # a file's number, as it is sent beside a message


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSetup:
    """To the encoders, first, with the frames' memory."""

    coding: Coding
    flags: int  # FFmpeg's, of the codec context
    extradata: bytes | None  # what a decoder is told once, for all segments
    encoders: int
    frames: int  # of a segment
    memory: int  # bytes


class Prefault(NamedTuple):
    """To the encoders' process: frames will soon fill this much of their memory, from its beginning on."""

    size: int  # bytes


class Pictures(NamedTuple):
    """To the encoders: the next frames, counted as batch 0, 1, 2..."""

    spots: tuple[PlaneLocation, ...]  # of each plane
    times: tuple[tuple[int, int], ...]  # pts, duration: of as many frames as there are


class End(NamedTuple):
    """To the encoders: no frame comes any more."""


class Released(NamedTuple):
    """From the encoders: the frames of this batch are not read any more."""

    batch: int


class Encoded(NamedTuple):
    """From the encoders, with a file of the packets' bytes and then, from `table` on, a pickled list of `PacketEntry`s."""

    segment: int
    table: int


class Failed(NamedTuple):
    """From the encoders: what one of them has raised."""

    error: Exception


class PacketEntry(NamedTuple):
    """A packet in the file of its segment."""

    begin: int
    end: int
    pts: int | None
    duration: int
    is_keyframe: bool


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends that send each other messages."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Any, *files: int) -> None:
    """Sends a message; waits while too many are on their way. Raises `OSError` when the other end is gone."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if files:
        socket.send_fds(end, [data], files)
    else:
        end.send(data)


def receive(end: socket.socket, *, wait: bool = True) -> tuple[Any, int | None]:
    """The next message and the file that it brings, if it does. Raises `EOFError` when the other end is gone, and
    `BlockingIOError` when there is no message, unless it may wait."""
    flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
    try:
        # `socket.recv_fds` would forget the flags.
        data, extras, _, _ = end.recvmsg(_LONGEST, socket.CMSG_SPACE(_FILE.size), flags)
    except ConnectionError as exc:
        raise EOFError from exc
    if not data:
        raise EOFError
    file: int | None = _FILE.unpack(extras[0][2])[0] if extras else None
    return pickle.loads(data), file


def portable(exc: Exception) -> Exception:
    """The exception, as far as it can be pickled."""
    try:
        copy = pickle.loads(pickle.dumps(exc))
    except Exception:
        copy = None
    return exc if type(copy) is type(exc) else RuntimeError(f"{type(exc).__name__}: {exc}")
