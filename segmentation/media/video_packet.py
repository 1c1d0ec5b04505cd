"""The types of coded pictures, and when they are shown."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar

if TYPE_CHECKING:  # the encoders' own process imports this
    from av.packet import Packet
    from av.stream import Stream
    from av.video.stream import VideoStream

VideoPacket: TypeAlias = "Packet[VideoStream]"  # generic for type checkers only


@dataclass(frozen=True, slots=True)
class Sample:
    """A picture of an MP4 with start codes, which was read with others at once. It is used like a `VideoPacket`."""

    pts: int  # ticks
    duration: int
    is_keyframe: bool
    buffer_ptr: int
    buffer_size: int
    head_size: int  # bytes before the first slice
    unit_kinds: frozenset[int]  # nal_unit_type of all in the packet
    buffer: object  # has the bytes

    dts: ClassVar[int | None] = None
    is_discard: ClassVar[bool] = False

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.buffer_ptr, self.buffer_size)


ChunkPacket: TypeAlias = "VideoPacket | Sample"
PacketT = TypeVar("PacketT", bound=ChunkPacket)


def head(packet: ChunkPacket) -> bytes:
    """Returns a packet's bytes up to its first slice, or more of them."""
    if isinstance(packet, Sample):
        return ctypes.string_at(packet.buffer_ptr, packet.head_size)
    return bytes(packet)


def pts_of(packet: VideoPacket | Packet[Stream]) -> int:
    """Returns when a packet of an encoder is shown, in ticks of its time base. Raises `ValueError` if it has no pts."""
    if packet.pts is None:
        raise ValueError("a packet of an encoder has no pts")
    return packet.pts


def base_of(timed: VideoPacket | Packet[Stream] | Stream) -> Fraction:
    """Returns the time base of an encoder's packet or stream, in seconds a tick. Raises `ValueError` if it has none."""
    if timed.time_base is None:
        raise ValueError("an encoder's stream has no time base")
    return timed.time_base
