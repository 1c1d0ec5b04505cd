"""NAL units of H.264 and HEVC, and their bits as strings of 0 and 1."""

from __future__ import annotations

import re

_START = re.compile(rb"\x00?\x00\x00\x01")


def units(data: bytes) -> list[bytes]:
    """Returns the units between start codes, with their headers, without emulation prevention bytes."""
    return [unit.replace(b"\0\0\3", b"\0\0") for unit in _START.split(data)[1:]]


def with_start_code(unit: bytes) -> bytes:
    """Returns a unit as `units` finds it (H.264 and H.265 clauses 7.3.1 and B.1)."""
    data, zeros = bytearray(b"\0\0\0\1"), 0
    for byte in unit:
        if zeros == 2 and byte <= 3:
            data.append(3)  # emulation_prevention_three_byte
            zeros = 0
        data.append(byte)
        zeros = 0 if byte else zeros + 1
    return bytes(data)


def as_bits(data: bytes) -> str:
    return f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}"


def as_bytes(bits: str) -> bytes:
    """Returns the bytes of a stretch that ends with its bits and a stop bit, filled with zeros (clause 7.3.2.11)."""
    bits += "1"
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def ue(*values: int) -> str:
    """Returns unsigned Exp-Golomb codes, H.264 clause 9.1."""
    return "".join(f"{value + 1:b}".rjust(2 * (value + 1).bit_length() - 1, "0") for value in values)


def se(*values: int) -> str:
    """Returns signed ones, H.264 clause 9.1.1."""
    return ue(*(2 * value - 1 if value > 0 else -2 * value for value in values))
