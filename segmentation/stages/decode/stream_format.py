"""The properties of a stream by which NVDEC sessions are used again."""

from __future__ import annotations

from typing import Literal, NamedTuple

# How long a session holds frames back. "native": a frame and four surfaces more than the stream needs, so that its
# engine has pictures queued; sessions of PyNvVideoCodec. "calls": the same, by sessions of the native library, as are
# the next ones, to which each packet is one whole frame. "low": those frames alone before which others may be shown, as
# far as the stream tells. "zero": none, so that frames come as they are decoded.
Latency = Literal["native", "calls", "low", "zero"]


class StreamFormat(NamedTuple):
    """Properties that two streams must share for one NVDEC session to decode both.

    A session keeps the number of surfaces that its first stream needs. Another stream of the same size may refer to
    more frames, and would come out damaged. So the extradata, which hold the parameter sets, must be the same too.
    """

    device: int
    codec: str  # FFmpeg's name of the decoder
    width: int  # pixels
    height: int
    pix_fmt: str
    extradata: bytes | None  # None: the container has none, and the codec needs none
    latency: Latency = "native"  # of the session, which can't change it
