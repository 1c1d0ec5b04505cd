"""Gives HEVC long-term references: a group whose pictures have all been shown goes on from its first one once more.

The pictures are those of an encoder, only their headers are written anew where they are about order and references. So
it is known what a decoder has to show. Clauses are H.265's.
"""

from __future__ import annotations

from pathlib import Path

from header_trace import places, traced
from nal_units import as_bits, as_bytes, ue, units, with_start_code

# For x265: a picture refers to the one before alone, and takes nothing from the motion of others.
PARAMETERS = "scenecut=0:open-gop=0:bframes=0:ref=1:weightp=0:no-temporal-mvp=1:no-wpp=1"
_ORDER_BITS = 8  # log2_max_pic_order_cnt_lsb of x265


def repeated(source: Path, length: int) -> list[bytes]:
    """Returns the packets of `source`, each group of `length` followed by all of its packets but the first."""
    packets = [list(zip(units(data), places(elements), strict=True)) for data, elements in traced(source) if data]
    made = []
    for begin in range(0, len(packets), length):
        first, *others = packets[begin : begin + length]
        made.append(b"".join(with_start_code(_with_long_term(*unit)) for unit in first))
        for order, packet in enumerate(others * 2, 1):
            made.append(b"".join(with_start_code(_moved(*unit, order, length)) for unit in packet))
    return made


def _with_long_term(unit: bytes, at: dict[str, int]) -> bytes:
    """Returns a sequence parameter set that allows them, clause 7.3.2.2, and other units as they are."""
    if "long_term_ref_pics_present_flag" not in at:
        return unit
    bits, place = as_bits(unit), at["long_term_ref_pics_present_flag"]
    return as_bytes(bits[:place] + "1" + ue(0) + bits[place + 1 : at["rbsp_stop_one_bit"]])


def _moved(unit: bytes, at: dict[str, int], order: int, length: int) -> bytes:
    """Returns a slice of the picture with this order in its group, clause 7.3.6.1, and other units as they are."""
    if "slice_pic_order_cnt_lsb" not in at:
        return unit
    goes_on = order != length  # from the picture before, not from the first one of the group
    references = ue(1, 0, 0) + "1" if goes_on else ue(0, 0)
    if order == 1:  # the picture before is the first one
        references += ue(0)
    else:  # poc_lsb_lt, used_by_curr_pic_lt_flag, delta_poc_msb_present_flag
        references += ue(1) + "0" * _ORDER_BITS + ("0" if goes_on else "1") + "0"
    end = at["alignment_bit_equal_to_one"]
    bits = as_bits(unit[: end // 8 + 1])
    head, tail = bits[: at["slice_pic_order_cnt_lsb"]], bits[at["slice_sao_luma_flag"] : end]
    return as_bytes(f"{head}{order:0{_ORDER_BITS}b}0{references}{tail}") + unit[end // 8 + 1 :]
