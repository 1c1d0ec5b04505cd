"""Reads from a packet's first slice whether other pictures may refer to its picture."""

import re
from typing import NamedTuple

_START = re.compile(rb"\x00\x00\x01(..)", re.DOTALL)
_H264_SLICES, _H264_BARE = {1, 5}, {6, 9, 12}  # nal_unit_type, H.264 table 7-1: slices; SEI, delimiters, filler
_HEVC_SLICES, _HEVC_BARE = set(range(32)), {35, 38, 39, 40}  # the same, H.265 table 7-1
_HEVC_UNREFERENCED = range(0, 16, 2)  # sub-layer non-reference pictures


class Reference(NamedTuple):
    """A picture's role in the decoding of others."""

    referred: bool  # whether pictures of its temporal layer or of lower ones may refer to it
    layer: int  # TemporalId, H.265 clause 7.4.2.2: pictures of higher layers may refer to it in any case


def reference(codec: str, data: bytes) -> Reference:
    """Returns what the picture in a packet with start codes is to others, for H.264 and HEVC.

    Referred to is also a picture with parameter sets before its first slice, since later ones need these, and any
    picture of other codecs.
    """
    if codec not in ("h264", "hevc"):
        return Reference(True, 0)
    for found in _START.finditer(data):
        first, second = found[1]
        if codec == "h264":  # clause 7.4.1: nal_ref_idc is 0 in all slices of a picture or in none
            kind, referred, layer = first & 31, first >> 5 & 3 > 0, 0
            slices, bare = _H264_SLICES, _H264_BARE
        else:
            kind, layer = first >> 1 & 63, max(0, (second & 7) - 1)
            referred = kind not in _HEVC_UNREFERENCED
            slices, bare = _HEVC_SLICES, _HEVC_BARE
        if kind in slices:
            return Reference(referred, layer)
        if kind not in bare:
            break
    return Reference(True, 0)
