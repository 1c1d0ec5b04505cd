"""Makes VP9 with 10 or 12 bits of VP9 with 8, for libraries whose encoder has 8 only.

Decoding is the same for all depths but for the steps of quantization and the rounding, which follow the depth, and for
the largest coefficients, which have more bits. So without such coefficients a stream is one of another depth as soon as
its headers say so, and shows the same pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from av.packet import Packet
from header_trace import places, traced
from nal_units import as_bits
from variant_clip import remuxed

COARSE = {"qmin": "44"}  # so libvpx writes no coefficient of the largest kind
_SIZE_BITS = 16  # of header_size_in_bytes, which ends a header


def deeper(source: Path, target: Path, depth: int, **muxing: str) -> Path:
    """Writes the frames of `source`, 4:2:0 with 8 bits and each in a packet of its own, with 10 or 12 bits."""
    found = [places(elements)[0] for data, elements in traced(source) if data]

    def change(number: int, packet: Packet[Any]) -> list[Packet[Any]]:
        made: Packet[Any] = Packet(_deeper(bytes(packet), found[number], depth))
        made.pts, made.dts, made.time_base = packet.pts, packet.dts, packet.time_base
        made.is_keyframe = packet.is_keyframe
        return [made]

    return remuxed(source, target, change, **muxing)


def _deeper(frame: bytes, at: dict[str, int], depth: int) -> bytes:
    data = bytes([frame[0] | 128 >> at["profile_high_bit"]]) + frame[1:]
    if "color_space" not in at:  # only keyframes state the depth, right before that
        return data
    length = at["header_size_in_bytes"] + _SIZE_BITS
    end = -(-length // 8)
    bits = as_bits(data[:end])[:length]
    bits = bits[: at["color_space"]] + str((depth - 10) // 2) + bits[at["color_space"] :]
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big") + data[end:]
