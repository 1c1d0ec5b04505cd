"""The type of coded pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # the encoders' own process imports this
    from av.packet import Packet
    from av.video.stream import VideoStream

VideoPacket: TypeAlias = "Packet[VideoStream]"  # generic for type checkers only
