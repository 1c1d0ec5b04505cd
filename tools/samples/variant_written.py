"""The videos of make_variants.py that no encoder here makes: field pictures and long-term references.

Those in H.264 are written by h264_writer.py. They consist of groups of 20 frames. The first one is the sample's, others
are the one before moved, and a few show a frame from long before again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.packet import Packet
from h264_writer import Picture, Planes, Writer
from hevc_long_term import PARAMETERS, repeated
from variant_clip import EXACT, RATE, pictures
from variant_edits import beside
from variant_facts import Facts
from variant_forms import COUNT, Variant, hevc, whole

SIZE = (160, 128)
GROUP = 20  # frames
PAN = (2, 0)  # luma samples
SHORT, LONG = 8, 15  # frames of a group of HEVC, and with all but the first one shown again
AGAIN = {7: 0, 12: 3, 17: 0}  # frames of a group, and the frame that each of them shows again

_FRAMES = Writer(size=SIZE, references=3, rate=RATE)
_FIELDS = Writer(size=SIZE, references=3, rate=RATE, fields=True)
_TICKS = 2 * RATE  # a second: fields have times of their own


def long_term(number: int) -> list[Picture]:
    """Returns a frame. Two frames of a group are kept: the IDR picture at once, the fourth when the fifth has come."""
    place, frame = _moved(number)
    if place == 0:
        return [replace(frame, planes=_sample(number), idr=True, long_term=True)]
    if place == 4:  # two indices from now on; the frame before gets the second, and the one before that is not kept
        return [replace(frame, marks=[(4, 2), (3, 0, 1), (1, 1)])]
    if place in AGAIN:
        return [replace(frame, motion=(0, 0), lists=[(2, 0 if AGAIN[place] == 0 else 1)])]
    return [frame]


def field_pictures(number: int) -> list[Picture]:
    """Returns the fields of a frame, of every third frame one picture.

    Second fields refer to the first one of their frame and to the one before of their parity, in turn.
    """
    place, frame = _moved(number)
    if place % 3 == 2:
        return [frame]
    top, bottom = _pair(frame, number)
    return [top, bottom] if place % 2 or place == 0 else [top, replace(bottom, motion=(0, 0), lists=[(0, 0)])]


def long_term_field_pictures(number: int) -> list[Picture]:
    """Returns the fields of a frame. The first pair is kept when the third field comes, and shown again exchanged."""
    place, frame = _moved(number)
    top, bottom = _pair(frame, number)
    if place == 1:  # one index from now on, for both fields; the second one shows that of its parity
        return [replace(top, marks=[(4, 1), (3, 1, 0), (3, 2, 0)]), replace(bottom, lists=[(2, 1)])]
    if place in AGAIN:
        return [replace(field, motion=(0, 0), lists=[(2, 0)]) for field in (top, bottom)]
    return [top, bottom]


def _moved(number: int) -> tuple[int, Picture]:
    """Returns a frame's place in its group, and the frame as the one before, moved."""
    place = number % GROUP
    return place, Picture(number=place % 16, order=2 * place, motion=PAN)


def _pair(frame: Picture, number: int) -> tuple[Picture, Picture]:
    top, bottom = replace(frame, parity=0), replace(frame, parity=1, order=frame.order + 1)
    if number % GROUP:
        return top, bottom
    y, u, v = _sample(number)
    return replace(top, planes=(y[::2], u[::2], v[::2]), idr=True), replace(bottom, planes=(y[1::2], u[1::2], v[1::2]))


def _sample(number: int) -> Planes:
    picture = pictures(SIZE, "yuv420p")[number]
    y, u, v = (np.frombuffer(p, np.uint8).reshape(p.height, p.line_size)[:, : p.width] for p in picture.planes)
    return y, u, v


def _written(
    writer: Writer, pictures_of: Callable[[int], list[Picture]], *, apart: bool = False
) -> Callable[[Path], object]:
    """Writes the pictures of all frames: those of a frame in one packet, or `apart`."""

    def make(path: Path) -> None:
        packets = []
        for number in range(COUNT):
            shown = pictures_of(number)
            parts = [[picture] for picture in shown] if apart else [shown]
            for place, part in enumerate(parts):
                packet = _packet(b"".join(map(writer.coded, part)), 2 * number + place, key=part[0].idr)
                packet.duration = 2 // len(parts)
                packets.append(packet)
        _mux(packets, path, ".h264")

    return make


def _hevc_long_term(path: Path) -> None:
    parameters = f"keyint={SHORT}:min-keyint={SHORT}:{PARAMETERS}"
    groups = COUNT // LONG
    source = hevc(parameters, count=groups * SHORT, first=SHORT).write(beside(path, 1, ".hevc"))  # nothing moves before
    packets = repeated(source, SHORT)
    keys = range(0, COUNT, LONG)
    _mux([_packet(data, 2 * number, key=number in keys) for number, data in enumerate(packets)], path, ".hevc")


def _packet(data: bytes, time: int, *, key: bool) -> Packet[Any]:
    packet: Packet[Any] = Packet(data)
    packet.pts = packet.dts = time
    packet.duration = 2
    packet.time_base = Fraction(1, _TICKS)
    packet.is_keyframe = key
    return packet


def _mux(packets: list[Packet[Any]], path: Path, raw: str) -> None:
    """Writes packets with start codes. FFmpeg finds the parameters in a `raw` stream of them."""
    stream = beside(path, suffix=raw)
    stream.write_bytes(b"".join(map(bytes, packets)))
    with av.open(str(stream)) as given, av.open(str(path), "w", container_options=dict(EXACT)) as container:
        copy = container.add_stream_from_template(given.streams.video[0])
        for packet in packets:
            packet.stream = copy
            container.mux(packet)


def _in_fields(facts: Facts, packets: int) -> bool:
    pairs = sum(len(field_pictures(number)) == 2 for number in range(COUNT))
    return (
        whole(facts, "h264")
        and facts.packets == packets
        and facts.interlaced == facts.syntax["field_pic_flag = 1"] // 2 == pairs
    )


_APART = sum(len(field_pictures(number)) for number in range(COUNT))

WRITTEN = [
    Variant(
        "h264-long-term.mp4",
        _written(_FRAMES, long_term),
        lambda f: (
            whole(f, "h264", exact=3)
            and f.syntax["long_term_reference_flag = 1"] == f.syntax["memory_management_control_operation = 3"] == 3
            and f.syntax["modification_of_pic_nums_idc = 2"] == 9
        ),
    ),
    Variant(
        "hevc-long-term.mkv",
        _hevc_long_term,
        lambda f: whole(f, "hevc", exact=4) and f.syntax["used_by_curr_pic_lt_flag = 1"] == 4,
    ),
    Variant("h264-field-pictures.mp4", _written(_FIELDS, field_pictures), lambda f: _in_fields(f, COUNT)),
    Variant("h264-field-pictures.ts", _written(_FIELDS, field_pictures), lambda f: _in_fields(f, _APART)),
    Variant("h264-field-pictures.h264", _written(_FIELDS, field_pictures), lambda f: _in_fields(f, _APART)),
    Variant(
        "h264-field-pictures-apart.ts",
        _written(_FIELDS, field_pictures, apart=True),
        lambda f: _in_fields(f, _APART) and not f.timeless,
    ),
    Variant(
        "h264-field-pictures-long-term.ts",
        _written(_FIELDS, long_term_field_pictures),
        lambda f: (
            whole(f, "h264", exact=3)
            and f.interlaced == COUNT
            and f.syntax["memory_management_control_operation = 3"] == 6
            and f.syntax["modification_of_pic_nums_idc = 2"] == 21
        ),
    ),
]
