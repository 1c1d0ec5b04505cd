"""Messages between `sender` and `sender_process`."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

WHOLE = 8.0  # seconds for all that a connection takes to begin, and for a packet
HEADER = "nut"  # FFmpeg's format in which the process gets the streams' parameters


class Rest(NamedTuple):
    """Parameters of a stream that NUT does not hold. Some muxers state them, and FLV's aborts without the layout."""

    bit_rate: int
    frame_rate: Fraction | None
    layout: str | None  # of sound
