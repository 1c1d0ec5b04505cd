"""Reads a stream's first bytes, with start codes, for what only some decoders can do, before a frame is decoded."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

_IDR = 5  # nal_unit_type of an IDR picture, H.264 table 7-1
_HEVC_IDR = range(19, 21)  # the same, H.265 table 7-1
_SPS = 7  # nal_unit_type of a sequence parameter set, H.264 table 7-1
_SEI, _RECOVERY_POINT = 6, 6  # nal_unit_type and payloadType, H.264 tables 7-1 and D.1
_HEVC_SPS = 33  # the same, H.265 table 7-1
_PROFILE, _LEVEL = 88, 8  # bits in profile_tier_level, H.265 clause 7.3.3
_WITH_CHROMA = {44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244}  # profile_idc, H.264 clause 7.3.2.1.1
_PACKED = re.compile(rb"DivX\d+(b|Build)\d+p")  # user data of MPEG-4 encoders that pack B-frames
_EXTENDED_SAR = 255  # aspect_ratio_idc, H.264 table E-1
_LOCATIONS = ("left", "center", "topleft", "top", "bottomleft", "bottom")  # by chroma_sample_loc_type, figure E-1
_SEQUENCE = b"\xb3"  # sequence_header_code, MPEG-2 table 6-1
_VIDEO_OBJECT_LAYER = range(0x20, 0x30)  # video_object_layer_start_code, MPEG-4 part 2, table 6-3
_VP9_RGB = 7  # color_space, VP9 bitstream, section 7.2.2
_AV1_SEQUENCE = 1  # obu_type of a sequence header, AV1 bitstream, section 6.2.2
_LEB128 = 8  # bytes of a number at most, AV1 bitstream, section 4.10.5
_KEPT = 64  # parameter sets that were read: they come again with each keyframe, and with clips of one encoder
_GOLOMB = 32  # zeros before a code at most, H.264 clause 7.2
_MOST = 8192  # bytes
_SEQUENCE_DISPLAY = 2  # extension_start_code_identifier, MPEG-2 table 6-2
_DISPLAY_ORIENTATION = 47  # payloadType, H.264 table D.1 and H.265 D.2.1
_SLICES: dict[str, Callable[[int], bool]] = {  # whether a unit with this first byte is a slice
    "h264": lambda first: 1 <= first & 31 <= 5,
    "hevc": lambda first: first >> 1 & 63 < 32,
    "mpeg2video": lambda first: 1 <= first <= 0xAF,
}
_SEQUENCE_EXTENSION = b"\0\0\1\xb5"  # extension_start_code, MPEG-2 table 6-1; 1 follows for sequences


def may_interlace(codec: str, data: bytes) -> bool:
    """Returns whether frames may consist of two fields. `data` begins the stream, with start codes."""
    if codec == "h264":
        return any(not sps.frame_mbs_only for sps in _parameter_sets(data))
    if codec == "mpeg2video":
        at = data.find(_SEQUENCE_EXTENSION)
        return at >= 0 and len(data) > at + 5 and data[at + 4] >> 4 == 1 and not data[at + 5] & 8
    return False


def has_layers(codec: str, data: bytes) -> bool:
    """Returns whether a packet holds several layers, such as the views of MV-HEVC (`nuh_layer_id`, H.265 7.3.1.2)."""
    return codec == "hevc" and any(len(unit) > 1 and (unit[0] & 1 or unit[1] >> 3) for unit in units(data))


def packs_b_frames(codec: str, data: bytes) -> bool:
    """Returns whether a packet may hold a frame and the B-frame before it, as AVI files of old encoders do."""
    return codec == "mpeg4" and _PACKED.search(data) is not None


def begins_inside(codec: str, data: bytes) -> bool:
    """Returns whether the shown picture begins to the right of the coded one's corner, or below it."""
    return codec in ("h264", "hevc") and any(picture.left or picture.top for picture in pictures(codec, data))


def pictures(codec: str, data: bytes) -> "set[Shown]":
    """Returns the pictures that a packet's headers state. None for a packet without such headers.

    For AV1 and MPEG-4 the headers themselves separate pictures; all its sides are 0.
    """
    match codec:
        case "h264":
            return {parsed.picture for parsed in _parameter_sets(data)}
        case "hevc":
            sets = (unit for unit in units(data) if len(unit) > 1 and unit[0] >> 1 & 63 == _HEVC_SPS)
            return {_hevc_picture(unit) for unit in sets if not unit[1] >> 3}  # those of the first layer
        case "mpeg2video":
            sizes = (int.from_bytes(unit[1:4], "big") for unit in units(data) if unit[:1] == _SEQUENCE and unit[3:])
            return {Shown(width=size >> 12, height=size & 0xFFF) for size in sizes}
        case "mpeg4":
            headers = (unit.rstrip(b"\0") for unit in units(data))
            return {Shown(header=unit) for unit in headers if unit and unit[0] in _VIDEO_OBJECT_LAYER}
        case "vp8":
            return _vp8_picture(data)
        case "vp9":
            return _vp9_picture(data)
        case "av1" | "libdav1d":
            return {Shown(header=unit) for unit in _av1_sequences(data)}
    return set()


def stated_chroma_location(codec: str, data: bytes) -> str:
    """Returns FFmpeg's name of the place of chroma samples that a packet's H.264 parameter sets state, or nothing."""
    if codec != "h264":
        return ""
    places = (parsed.chroma_location for parsed in _parameter_sets(data))
    return next((_LOCATIONS[place] for place in places if place is not None and place < len(_LOCATIONS)), "")


def sequence_sets(codec: str, data: bytes) -> frozenset[bytes]:
    """Returns the sequence parameter sets of H.264 or HEVC between start codes."""
    return frozenset(
        unit.rstrip(b"\0")
        for unit in units(data)
        if unit and (unit[0] & 31 == _SPS if codec == "h264" else unit[0] >> 1 & 63 == _HEVC_SPS)
    )


def stated_shape(codec: str, data: bytes) -> frozenset[bytes]:
    """Returns the parts of a packet with start codes that state the shape of pixels, a turn, or colors."""
    match codec:
        case "h264" | "hevc":
            sei, skipped = (b"\x06", 1) if codec == "h264" else (b"\x4e", 2)
            messages = payloads(unit[skipped:] for unit in units(data) if unit[:1] == sei)
            turns = (payload for kind, payload in messages if kind == _DISPLAY_ORIENTATION)
            return sequence_sets(codec, data).union(turns)
        case "mpeg2video":  # of a sequence header the size and the shape; of a display extension all
            found = (unit for unit in units(data) if unit[:1] in (_SEQUENCE, b"\xb5"))
            return frozenset(unit[:5] if unit[:1] == _SEQUENCE else unit for unit in found if _states(unit))
    return frozenset()


def _states(unit: bytes) -> bool:
    return unit[:1] == _SEQUENCE or (len(unit) > 1 and unit[1] >> 4 == _SEQUENCE_DISPLAY)


def is_idr(codec: str, data: bytes) -> bool:
    """Returns whether H.264 or HEVC between start codes has an IDR picture: no later one refers to earlier ones."""
    if codec == "h264":
        return any(unit and unit[0] & 31 == _IDR for unit in units(data))
    return codec == "hevc" and any(unit and unit[0] >> 1 & 63 in _HEVC_IDR for unit in units(data))


def begins_stream(codec: str, data: bytes) -> bool:
    """Returns whether a decoder may begin here: H.264 and HEVC need a sequence parameter set first."""
    data = data[: first_slice(codec, data)]
    if codec == "h264":
        return any(unit and unit[0] & 31 == _SPS for unit in units(data))
    return codec != "hevc" or any(unit and unit[0] >> 1 & 63 == _HEVC_SPS for unit in units(data))


def refreshes_gradually(codec: str, data: bytes) -> bool:
    """Returns whether pictures are exact only some frames after this H.264 keyframe (recovery point SEI, D.1.8)."""
    before = data[: first_slice(codec, data)] if codec == "h264" else b""
    messages = (unit[1:] for unit in units(before) if unit and unit[0] & 31 == _SEI)
    return any(_Bits(payload).golomb() > 0 for kind, payload in payloads(messages) if kind == _RECOVERY_POINT)


def first_slice(codec: str, data: bytes) -> int:
    """Returns where the first slice of a packet begins, with its start code; the packet's length without any."""
    slices = _SLICES.get(codec)
    at = -1 if slices is None else data.find(b"\0\0\1")
    while slices is not None and 0 <= at < len(data) - 3:
        if slices(data[at + 3]):
            return at - 1 if at and not data[at - 1] else at
        at = data.find(b"\0\0\1", at + 3)
    return len(data)


def payloads(messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields type and content of each message in SEI units, H.264 clause 7.3.2.3.1."""
    for message in messages:
        rest, at = message.replace(b"\0\0\3", b"\0\0"), 0
        while at < len(rest) - 2:  # the last byte ends the unit
            numbers = []
            for _ in range(2):  # type and size, each in bytes of 255 and a smaller one
                number = 0
                while rest[at : at + 1] == b"\xff":
                    number, at = number + 255, at + 1
                numbers.append(number + sum(rest[at : at + 1]))
                at += 1
            kind, size = numbers
            yield kind, rest[at : at + size]
            at += size


class Shown(NamedTuple):
    """The part of a coded picture that is shown, in pixels, as a header states it."""

    left: int = 0
    top: int = 0
    width: int = 0
    height: int = 0
    header: bytes = b""


class _ParameterSet(NamedTuple):
    """Fields of H.264's sequence parameter sets, clause 7.3.2.1.1."""

    picture: Shown
    frame_mbs_only: bool
    chroma_location: int | None  # chroma_sample_loc_type, clause E.2.1


def _parameter_sets(data: bytes) -> Iterator[_ParameterSet]:
    """Yields H.264's sequence parameter sets before a packet's first slice."""
    return (_parsed(unit) for unit in units(data[: first_slice("h264", data)]) if unit and unit[0] & 31 == _SPS)


def units(data: bytes) -> Iterator[bytes]:
    """Yields the NAL units between start codes."""
    yield from data.split(b"\0\0\1")[1:]


@lru_cache(_KEPT)
def _parsed(unit: bytes) -> _ParameterSet:
    """Reads a sequence parameter set."""
    bits = _Bits(unit[1:].replace(b"\0\0\3", b"\0\0"))  # without emulation prevention bytes
    profile = bits.read(8)
    bits.read(16)  # constraints and level
    bits.golomb()  # its number
    chroma = 1
    if profile in _WITH_CHROMA:
        chroma = bits.golomb()
        bits.read(1 if chroma == 3 else 0)
        bits.golomb(2)  # bit depths
        bits.read(1)
        if bits.read(1):
            for i in range(12 if chroma == 3 else 8):
                if bits.read(1):
                    _skip_scaling_list(bits, 16 if i < 6 else 64)
    bits.golomb()  # log2_max_frame_num_minus4
    order = bits.golomb()
    if order == 0:
        bits.golomb()
    elif order == 1:
        bits.read(1)
        bits.golomb(2)
        bits.golomb(min(bits.golomb(), 255))  # as many as may be, since damage states any number
    bits.golomb()  # max_num_ref_frames
    bits.read(1)
    width, map_units = bits.golomb() + 1, bits.golomb() + 1
    frame_mbs_only = bool(bits.read(1))
    if not frame_mbs_only:
        bits.read(1)
    bits.read(1)
    left, right, top, bottom = _window(bits, chroma, 1 if frame_mbs_only else 2)
    height = 16 * map_units * (1 if frame_mbs_only else 2)
    shown = Shown(left, top, 16 * width - left - right, height - top - bottom)
    return _ParameterSet(shown, frame_mbs_only, _chroma_location(bits))


def _chroma_location(bits: "_Bits") -> int | None:
    """Reads H.264's VUI parameters up to chroma_sample_loc_type_top_field, clause E.1.1; `None` without that."""
    if not bits.read(1):
        return None
    if bits.read(1) and bits.read(8) == _EXTENDED_SAR:
        bits.read(32)
    bits.read(1 if bits.read(1) else 0)  # overscan
    if bits.read(1):
        bits.read(4)
        bits.read(24 if bits.read(1) else 0)
    return bits.golomb() if bits.read(1) else None


def _window(bits: "_Bits", chroma: int, rows: int) -> tuple[int, int, int, int]:
    """Reads how many pixels are cut off at the left, right, top and bottom: H.264 7.4.2.1.1, H.265 7.4.3.2.1.

    `chroma` is chroma_format_idc, `rows` how many rows of a frame one unit stands for at least.
    """
    if not bits.read(1):
        return 0, 0, 0, 0
    across, down = (2 if chroma in (1, 2) else 1), rows * (2 if chroma == 1 else 1)
    return bits.golomb() * across, bits.golomb() * across, bits.golomb() * down, bits.golomb() * down


@lru_cache(_KEPT)
def _hevc_picture(unit: bytes) -> Shown:
    """Reads H.265's sequence parameter set up to its conformance window, clause 7.3.2.2.1."""
    bits = _Bits(unit[2:].replace(b"\0\0\3", b"\0\0"))
    bits.read(4)
    layers = bits.read(3)  # sps_max_sub_layers_minus1
    bits.read(1)
    bits.read(_PROFILE + _LEVEL)
    present = [(bits.read(1), bits.read(1)) for _ in range(layers)]
    bits.read(2 * (8 - layers) if layers else 0)
    for profile, level in present:
        bits.read(profile * _PROFILE + level * _LEVEL)
    bits.golomb()  # its number
    chroma = bits.golomb()
    bits.read(1 if chroma == 3 else 0)
    width, height = bits.golomb(), bits.golomb()
    left, right, top, bottom = _window(bits, chroma, 1)
    return Shown(left, top, width - left - right, height - top - bottom)


def _vp8_picture(data: bytes) -> set[Shown]:
    """Reads a keyframe's header, RFC 6386, section 9.1."""
    if len(data) < 10 or data[0] & 1:
        return set()
    width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return {Shown(width=width, height=height)}


def _vp9_picture(data: bytes) -> set[Shown]:
    """Reads the first frame's header, VP9 bitstream, sections 6.2 and 7.2.

    Frames between keyframes may change the size too. Those of the size of a reference do not state it.
    """
    bits = _Bits(data[:32])
    bits.read(2)
    profile = bits.read(1) + 2 * bits.read(1)
    bits.read(1 if profile == 3 else 0)
    if bits.read(1):  # show_existing_frame
        return set()
    inter, shown, resilient = bits.read(1), bits.read(1), bits.read(1)
    if inter:
        intra_only = 0 if shown else bits.read(1)
        bits.read(0 if resilient else 2)
        if not intra_only:
            bits.read(8 + 3 * 4)  # frames that are refreshed, and references
            if any(bits.read(1) for _ in range(3)):  # of the size of a reference
                return set()
            return {Shown(width=bits.read(16) + 1, height=bits.read(16) + 1)}
        bits.read(24)
        if profile:
            _skip_vp9_color(bits, profile)
        bits.read(8)
    else:
        bits.read(24)
        _skip_vp9_color(bits, profile)
    return {Shown(width=bits.read(16) + 1, height=bits.read(16) + 1)}


def _skip_vp9_color(bits: "_Bits", profile: int) -> None:
    """Reads past color_config, VP9 bitstream, section 6.2.2."""
    bits.read(1 if profile >= 2 else 0)
    if bits.read(3) != _VP9_RGB:
        bits.read(1)
        bits.read(3 if profile in (1, 3) else 0)
    else:
        bits.read(1 if profile in (1, 3) else 0)


def _av1_sequences(data: bytes) -> Iterator[bytes]:
    """Yields the sequence headers of a packet, AV1 bitstream, sections 5.3 and 5.5."""
    at = 0
    while at < len(data):
        kind, extended, sized = data[at] >> 3 & 15, data[at] >> 2 & 1, data[at] >> 1 & 1
        at += 1 + extended
        size = len(data) - at
        if sized:
            size = 0
            for place in range(min(_LEB128, len(data) - at)):
                size |= (data[at] & 127) << 7 * place
                at += 1
                if not data[at - 1] & 128:
                    break
        if kind == _AV1_SEQUENCE:
            yield data[at : at + size]
        at += size


def _skip_scaling_list(bits: "_Bits", size: int) -> None:
    """Reads past a scaling list of `size` entries, H.264 clause 7.3.2.1.1.1."""
    last = following = 8
    for _ in range(size):
        if following:
            code = bits.golomb()
            following = (last + (code + 1) // 2 * (1 if code % 2 else -1)) % 256
        last = following or last


class _Bits:
    """Reads the beginning of a byte string bit by bit, and zeros behind its end. No header is as long as `_MOST`."""

    def __init__(self, data: bytes) -> None:
        data = data[:_MOST]  # else the time would grow with the square of what a damaged header claims
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def read(self, count: int) -> int:
        """Returns the next `count` bits as an unsigned number."""
        self._left -= count
        shifted = self._value >> self._left if self._left >= 0 else 0
        return shifted & ((1 << count) - 1)

    def golomb(self, count: int = 1) -> int:
        """Reads `count` unsigned Exp-Golomb codes, H.264 clause 9.1, and returns the last."""
        code = 0
        for _ in range(count):
            zeros = 0
            while self._left > 0 and zeros < _GOLOMB and not self.read(1):
                zeros += 1
            code = (1 << zeros) - 1 + self.read(zeros)
        return code
