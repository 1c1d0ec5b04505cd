"""Messages between `segments.SegmentEncoder` and the process with its encoders.

Each message is small and pickled, and goes through a socket that preserves message boundaries. Frames and packets lie
in memory that both processes map: a message carries the descriptor of that memory, or an offset in it.

A process serves one file after the other. To it go `FrameMemory` once, then for each file `EncoderSetup`, any number of
`Frames`, and `EndOfFile`. From it come `Released` and `EncodedSegment`, and at last `Idle`; at any moment `Failed`.
"""

from __future__ import annotations

import errno
import os
import pickle
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from segmentation.media.cuts import Cuts
from segmentation.stages.encode.codec_settings import CodecSettings
from segmentation.system.shared_memory import PlaneLocation

_LONGEST = 1 << 18  # bytes
_DESCRIPTOR = struct.Struct("i")  # a file descriptor in a socket's control message


class FrameMemory(NamedTuple):
    """To the process, with a file descriptor: the memory that holds all frames."""

    size: int  # bytes
    file: int  # a descriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSetup:
    """To the process: the settings of the next file."""

    settings: CodecSettings
    flags: int  # FFmpeg's, of the codec context
    extradata: bytes | None  # parameter sets, the same for all segments
    encoders: int
    cuts: Cuts  # at which segments begin


class Prefault(NamedTuple):
    """To the process: frames will soon fill the first `size` bytes of the memory."""

    size: int


class Frames(NamedTuple):
    """To the process: the next batch of frames. Batches of a file are counted from 0."""

    planes: tuple[PlaneLocation, ...]
    times: tuple[tuple[int, int], ...]  # (pts, duration) of each frame


class EndOfFile(NamedTuple):
    """To the process: the file has no more frames."""


class Released(NamedTuple):
    """From the process: no encoder reads the frames of this batch any more."""

    batch: int


class EncodedSegment(NamedTuple):
    """From the process, with a file descriptor: packets, and then a pickled list of `PacketEntry`."""

    segment: int
    entries: int  # offset of the list in bytes
    file: int  # a descriptor


class Idle(NamedTuple):
    """From the process: all of the file is encoded and sent, and its threads have ended."""


class Failed(NamedTuple):
    """From the process: an exception of one of its threads."""

    error: BaseException


class PacketEntry(NamedTuple):
    """A packet in the file of its segment, from byte `begin` to before `end`."""

    begin: int
    end: int
    pts: int | None
    duration: int
    is_keyframe: bool


Request: TypeAlias = FrameMemory | EncoderSetup | Prefault | Frames | EndOfFile
Reply: TypeAlias = Released | EncodedSegment | Idle | Failed


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two connected sockets that preserve message boundaries."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(link: socket.socket, message: Request | Reply) -> None:
    """Sends a message with its file descriptor, if it has one, and blocks while the socket's buffer is full.

    Raises `OSError` when the other end is closed.
    """
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if isinstance(message, FrameMemory | EncodedSegment):
        socket.send_fds(link, [data], [message.file])
    else:
        link.send(data)


def receive(link: socket.socket, *, wait: bool = True) -> Request | Reply:
    """Returns the next message. If it has a file descriptor, that one is this process's own.

    Raises `EOFError` when the other end is closed, and without `wait` `BlockingIOError` when there is no message.
    """
    flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
    try:
        # `socket.recv_fds` ignores the flags.
        data, extras, _, _ = link.recvmsg(_LONGEST, socket.CMSG_SPACE(_DESCRIPTOR.size), flags)
    except ConnectionError as exc:
        raise EOFError from exc
    if not data:
        raise EOFError
    message: Request | Reply = pickle.loads(data)
    if isinstance(message, FrameMemory | EncodedSegment):
        if not extras:  # the kernel had none to give
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        (descriptor,) = _DESCRIPTOR.unpack(extras[0][2])
        return message._replace(file=descriptor)
    return message
