"""Makes VP9 with 10 or 12 bits of VP9 with 8, for libraries whose encoder has 8 only.

Decoding is the same for all depths but for the steps of quantization and the rounding, which follow the depth, and for
the largest coefficients, which have more bits. So without such coefficients a stream is one of another depth as soon as
its headers say so, and shows the same pictures. Clauses below are the VP9 bitstream's (version 0.6).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from av.packet import Packet
from variant_clip import remuxed

from segmentation.media.bitstream import Bits

COARSE = {"qmin": "44", "aq-mode": "0"}  # with these options libvpx writes no coefficient of the largest kind
_DEPTH_AT = 32  # the bit of a keyframe's header that states 10 or 12 bits (`color_config`, 7.2.2)


def deeper(source: Path, target: Path, depth: int, **muxing: str) -> Path:
    """Writes the frames of `source`, profile 0 without segments, as profile 2 with 10 or 12 bits."""

    def change(_: int, packet: Packet[Any]) -> list[Packet[Any]]:
        made: Packet[Any] = Packet(_deeper(bytes(packet), depth))
        made.pts, made.dts, made.time_base = packet.pts, packet.dts, packet.time_base
        made.is_keyframe = packet.is_keyframe
        return [made]

    return remuxed(source, target, change, filters="vp9_superframe_split", **muxing)


def _deeper(frame: bytes, depth: int) -> bytes:
    data = bytes([frame[0] | 16]) + frame[1:]  # profile_high_bit
    if data[0] & 12:  # show_existing_frame, or no keyframe: these don't state the depth
        return data
    length = _header_bits(data)
    end = -(-length // 8)
    bits = f"{int.from_bytes(data[:end], 'big'):0{8 * end}b}"[:length]
    bits = bits[:_DEPTH_AT] + str((depth - 10) // 2) + bits[_DEPTH_AT:]
    bits += "0" * (-len(bits) % 8)  # trailing_bits, clause 6.1.1
    return int(bits, 2).to_bytes(len(bits) // 8, "big") + data[end:]


def _header_bits(frame: bytes) -> int:
    """Returns the length of a keyframe's `uncompressed_header`, clause 6.2."""
    bits = Bits(frame)
    bits.read(_DEPTH_AT + 36)  # ... color_space, color_range, the size
    bits.read(32 * bits.read(1))  # render_size
    bits.read(2 if frame[0] & 1 else 4)  # contexts, with error_resilient_mode fewer
    bits.read(9)  # loop_filter_level, loop_filter_sharpness
    if bits.read(1) and bits.read(1):
        for _ in range(6):
            bits.read(7 * bits.read(1))
    bits.read(8)  # base_q_idx
    for _ in range(3):
        bits.read(5 * bits.read(1))
    bits.read(1)  # segmentation_enabled: not
    bits.read(bits.read(1))  # tile_rows_log2
    bits.read(16)  # header_size_in_bytes
    return 8 * len(frame) - bits.left
