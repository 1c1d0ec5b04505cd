"""Makes videos with SEI messages, such as closed captions."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from segmentation.frames import Message
from segmentation.media.bitstream.sei import REGISTERED, sei_unit

CAPTIONS = [bytes([0xFC, 0x94, number]) for number in range(32, 41)]


def carrying(path: Path, messages: dict[int, list[Message]], codec: str = "h264", **options: str) -> Path:
    """Writes 9 frames, out of order in the file, with SEI messages before the slices of some of them."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            f"libx26{'4' if codec == 'h264' else '5'}", rate=25, options={"bf": "2", **options}
        )
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 96, 80, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 25)
        packets = []
        for number in range(9):
            frame = av.VideoFrame.from_ndarray(np.full((80, 96, 3), 20 * number + 30, np.uint8), "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            packets += stream.encode(frame)
        for packet in [*packets, *stream.encode()]:
            data = bytes(packet)
            at = next(place for place in range(len(data)) if is_slice(codec, data[place : place + 4]))
            unit = sei_unit(codec, messages.get(packet.pts or 0, []))
            made = av.Packet(data[:at] + unit + data[at:] if messages.get(packet.pts or 0) else data)
            made.stream, made.time_base, made.is_keyframe = stream, packet.time_base, packet.is_keyframe
            made.pts, made.dts, made.duration = packet.pts, packet.dts, packet.duration
            container.mux(made)
    return path


def is_slice(codec: str, data: bytes) -> bool:
    return data[:3] == b"\0\0\1" and (1 <= data[3] & 31 <= 5 if codec == "h264" else data[3] >> 1 & 63 < 32)


def with_captions(path: Path, codec: str = "h264") -> Path:
    head = b"\xb5\x00\x31GA94\x03\x41\xff"
    return carrying(path, {n: [(REGISTERED, head + part + b"\xff")] for n, part in enumerate(CAPTIONS)}, codec)
