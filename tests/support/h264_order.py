"""H.264 that does not state in which order its frames are shown, as many cameras send it."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.video.frame import PictureType
from barcode import drawn

_SPS = re.compile(rb"(?<=\x00\x00\x01)\x67.*?(?=\x00\x00\x00?\x01)", re.DOTALL)


def unstated(path: Path, count: int, size: tuple[int, int]) -> Path:
    """Makes an MPEG-TS of `count` frames with their numbers: all in order, which neither VUI nor POC type say."""
    encoder: Any = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height = size
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, 30), Fraction(30)
    # Where B-frames are off, x264 takes the POC type 2, by which the order is known.
    encoder.options = {"profile": "main", "x264-params": "keyint=20:scenecut=0:bframes=1:rc-lookahead=0"}
    with av.open(str(path), "w") as target:
        stream: Any = target.add_stream("h264", rate=30)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        packets: list[bytes] = []
        for number in range(count):
            frame = drawn(number, size)
            frame.pts, frame.time_base = number, Fraction(1, 30)
            frame.pict_type = PictureType.P if number % 20 else PictureType.I
            packets += map(bytes, encoder.encode(frame))
        packets += map(bytes, encoder.encode(None))
        assert len(packets) == count
        for number, data in enumerate(packets):
            packet: Any = av.Packet(_SPS.sub(_without_vui, data))
            packet.stream, packet.time_base = stream, Fraction(1, 30)
            packet.pts = packet.dts = number
            packet.is_keyframe = number % 20 == 0
            target.mux(packet)
    return path


def _without_vui(match: "re.Match[bytes]") -> bytes:
    """Returns a sequence parameter set of the main profile without its VUI (H.264, 7.3.2.1.1)."""
    unit = match[0]
    bits = "".join(f"{byte:08b}" for byte in unit[4:].replace(b"\0\0\3", b"\0\0"))
    at = 0

    def golomb() -> int:
        nonlocal at
        zeros = bits.index("1", at) - at
        value = int(bits[at + zeros : at + 2 * zeros + 1], 2) - 1
        at += 2 * zeros + 1
        return value

    golomb()  # its number
    golomb()  # log2_max_frame_num_minus4
    assert golomb() == 0, "the POC type tells the order"
    golomb()  # log2_max_pic_order_cnt_lsb_minus4
    golomb()  # max_num_ref_frames
    at += 1
    golomb()  # width and height
    golomb()
    at += 2  # frame_mbs_only_flag, direct_8x8_inference_flag
    at += 1
    if bits[at - 1] == "1":
        for _ in range(4):
            golomb()
    whole = bits[:at] + "01"  # no VUI, and the end
    whole += "0" * (-len(whole) % 8)
    return unit[:4] + bytes(int(whole[i : i + 8], 2) for i in range(0, len(whole), 8))
