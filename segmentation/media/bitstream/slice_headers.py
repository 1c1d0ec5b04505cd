"""Cuts a picture off behind its headers, for a decoder that is asked what the frame is like, and not what it shows."""

_ALONE = {"h264": {5}, "hevc": set(range(16, 22))}  # nal_unit_type of IDR and IRAP, H.264 and H.265 tables 7-1
_KEPT = 1024  # bytes of a slice: its header has some 10, and in HEVC up to 4 more for each row of blocks


def without_pixels(codec: str, packet: bytes) -> bytes:
    """Returns a picture that refers to no other, up to the beginning of its first slice; nothing of others.

    `packet` is of H.264 or HEVC, whose NAL units begin with their length in four bytes; nothing is returned of others.
    """
    at = 0
    while at + 5 < len(packet):
        size, first = int.from_bytes(packet[at : at + 4]), packet[at + 4]
        kind = first & 31 if codec == "h264" else first >> 1 & 63
        end = at + 4 + size
        if size == 1 or end > len(packet):  # a start code, or cut off
            break
        if kind in _ALONE.get(codec, ()):
            unit = packet[at + 4 : min(end, at + 4 + _KEPT)]
            return packet[:at] + len(unit).to_bytes(4) + unit
        at = end
    return b""
