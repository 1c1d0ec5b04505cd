"""Packs the B-frames of an MPEG-4 stream, as encoders for AVI did: a B-frame shares the packet of the frame after it.

The packet of its own is then an empty frame, whose only use is to keep the count (ISO/IEC 14496-2, `vop_coded` 0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from av.packet import Packet
from variant_clip import RATE, remuxed

_VOP = b"\0\0\1\xb6"
_USER_DATA = b"\0\0\1\xb2DivX503b1393p\0"
_TIME_BITS = (RATE - 1).bit_length()  # of vop_time_increment, with a clock of RATE ticks a second


def packed(source: Path, target: Path) -> Path:
    """Writes an AVI of the packets of `source`, an MPEG-4 stream with one B-frame at a time and `RATE` as its clock."""
    waiting: list[Packet[Any]] = []

    def change(number: int, packet: Packet[Any]) -> list[Packet[Any]]:
        data = bytes(packet)
        if number == 0:
            head = data.index(_VOP)
            return [_again(packet, data[:head] + _USER_DATA + data[head:], number)]
        if not _is_b(data):
            made = [_again(one, bytes(one), number - 1) for one in waiting]
            waiting[:] = [packet]
            return made
        if not waiting:
            return [_again(packet, data, number)]
        ahead = waiting.pop()
        return [_again(ahead, bytes(ahead) + data, number - 1), _again(packet, _empty(bytes(ahead)), number)]

    return remuxed(source, target, change)


def _is_b(data: bytes) -> bool:
    at = data.find(_VOP)
    return at >= 0 and data[at + 4] >> 6 == 2  # vop_coding_type


def _again(packet: Packet[Any], data: bytes, number: int) -> Packet[Any]:
    made: Packet[Any] = Packet(data)
    made.pts = made.dts = number
    made.time_base, made.duration, made.is_keyframe = packet.time_base, packet.duration, packet.is_keyframe
    return made


def _empty(data: bytes) -> bytes:
    """Returns a frame that is not coded, with the time of the frame in `data`."""
    at = data.index(_VOP) + 4
    bits = f"{int.from_bytes(data[at : at + 4], 'big'):032b}"
    end = bits.index("0", 2) + 2 + _TIME_BITS  # behind modulo_time_base, a marker and vop_time_increment
    coded = "01" + bits[2:end] + "1" + "0"  # a P-frame, a marker, vop_coded
    padded = coded + "0" + "1" * (-(len(coded) + 1) % 8)  # stuffing, clause 5.2.4
    return _VOP + int(padded, 2).to_bytes(len(padded) // 8, "big")
