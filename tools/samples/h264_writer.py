"""Writes H.264 whose pictures are samples as they are (I_PCM) or other pictures moved, without residual.

So it is known what a decoder has to show. Pictures may be frames or fields, and say what they refer to and what is kept
for how long, which encoders decide by themselves. Main profile, CAVLC, 4:2:0. Clauses and tables below are H.264's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from nal_units import as_bits, as_bytes, se, ue, with_start_code
from numpy.typing import NDArray

Planes = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]

_FRAME_NUM_BITS, _ORDER_BITS = 4, 8  # log2_max_frame_num, log2_max_pic_order_cnt_lsb
_MACROBLOCK = 16
_I, _P = 7, 5  # slice_type of pictures with such slices alone, table 7-6
_I_PCM = 25  # mb_type, table 7-11
_P_L0_16X16 = 0  # mb_type, table 7-13
_WITHOUT_RESIDUAL = 0  # the code for coded_block_pattern 0 in Inter macroblocks, table 9-4


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A frame or a field. With `planes` it shows those, of its own size; else it is its first reference, moved."""

    number: int  # frame_num
    order: int  # pic_order_cnt_lsb
    planes: Planes | None = None
    motion: tuple[int, int] = (0, 0)  # luma samples to the right and down at which each sample is found
    parity: int | None = None  # 0 for a top field, 1 for a bottom field
    idr: bool = False
    long_term: bool = False  # long_term_reference_flag, of IDR pictures alone
    lists: Sequence[tuple[int, int]] = ()  # modification_of_pic_nums_idc and its operand, clause 7.3.3.1
    marks: Sequence[tuple[int, ...]] = ()  # memory_management_control_operation and its operands, clause 7.3.3.3


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Writes the pictures of one stream."""

    size: tuple[int, int]  # luma samples: a multiple of 16, with fields the height one of 32
    references: int  # frames that are kept at most
    rate: int  # frames a second
    fields: bool = False  # whether pictures may be fields

    def parameters(self) -> bytes:
        """Returns the parameter sets, clauses 7.3.2.1.1 and 7.3.2.2."""
        width, height = (length // _MACROBLOCK for length in self.size)
        rows = height // 2 if self.fields else height
        sequence = f"{77:08b}{0:08b}{30:08b}"  # Main profile, level 3
        sequence += ue(0, _FRAME_NUM_BITS - 4, 0, _ORDER_BITS - 4, self.references) + "0"
        sequence += ue(width - 1, rows - 1) + ("00" if self.fields else "1")  # no macroblock-adaptive ones
        sequence += "1" + "0"  # direct_8x8_inference_flag, not cropped
        rate = f"1{1:032b}{2 * self.rate:032b}1"  # num_units_in_tick, time_scale, fixed_frame_rate_flag
        sequence += "1" + "0000" + rate + "0000"  # vui_parameters, clause E.1.1
        picture = ue(0, 0) + "00" + ue(0, 0, 0) + "000" + ue(0, 0, 0) + "100"  # deblocking is controlled
        return _unit(0x67, sequence) + _unit(0x68, picture)

    def coded(self, picture: Picture) -> bytes:
        """Returns the one slice of a picture, with the parameter sets before an IDR picture."""
        bits = self._header(picture)
        if picture.planes is not None:
            data = _samples(bits, picture.planes)
        else:
            across, down = picture.motion
            width, height = (length // _MACROBLOCK for length in self.size)
            count = width * height // (1 if picture.parity is None else 2)
            for number in range(count):  # motion is predicted from the macroblocks before, and so stated once
                bits += ue(0, _P_L0_16X16) + (se(4 * across, 4 * down) if number == 0 else se(0, 0))
                bits += ue(_WITHOUT_RESIDUAL)
            data = bits
        return self.parameters() + _unit(0x65, data) if picture.idr else _unit(0x61, data)

    def _header(self, picture: Picture) -> str:
        """Returns the slice's header, clause 7.3.3."""
        bits = ue(0, _P if picture.planes is None else _I, 0) + f"{picture.number:0{_FRAME_NUM_BITS}b}"
        if self.fields:
            bits += "0" if picture.parity is None else f"1{picture.parity}"
        bits += ue(0) if picture.idr else ""  # idr_pic_id
        bits += f"{picture.order:0{_ORDER_BITS}b}"
        if picture.planes is None:
            bits += "0" + _commands(picture.lists, 3)
        bits += f"0{picture.long_term:d}" if picture.idr else _commands(picture.marks, 0)
        return bits + se(0) + ue(1)  # no deblocking


def _samples(bits: str, planes: Planes) -> str:
    """Returns a slice of I_PCM macroblocks, clause 7.3.5, behind its header."""
    height, width = planes[0].shape
    for y in range(0, height, _MACROBLOCK):
        for x in range(0, width, _MACROBLOCK):
            bits += ue(_I_PCM)
            bits += "0" * (-len(bits) % 8)
            luma = planes[0][y : y + 16, x : x + 16]
            chroma = [plane[y // 2 : y // 2 + 8, x // 2 : x // 2 + 8] for plane in planes[1:]]
            data = b"".join(part.tobytes() for part in (luma, *chroma))
            bits += as_bits(data)
    return bits


def _commands(commands: Sequence[Sequence[int]], end: int) -> str:
    """Returns whether there are commands, and these with the number that ends them."""
    return "1" + "".join(ue(*command) for command in commands) + ue(end) if commands else "0"


def _unit(head: int, bits: str) -> bytes:
    """Returns a unit whose header is the byte `head`, with its start code."""
    return with_start_code(bytes([head]) + as_bytes(bits))
