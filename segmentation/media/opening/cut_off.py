"""Finds files that are shorter than they state. Their streams end early, and FFmpeg reports no error."""

import os
from typing import BinaryIO

from segmentation.frames.source import Source
from segmentation.media.opening.stream_facts import number

_HEADER, _SEGMENT = 0x1A45DFA3, 0x18538067  # Matroska's elements, RFC 8794, section 11.2.1, and RFC 9559, section 5.1
_HEAD = 4096  # bytes, in which the segment begins
_TAG = 11  # bytes of a tag's header, Adobe Flash Video File Format 10.1, E.4.1


def is_cut_off(source: Source, format_name: str) -> bool:
    """Returns whether a file ends before its Matroska segment does, or in the middle of a tag of FLV.

    Addresses, pipes and file objects are not looked at.
    """
    if not os.path.isfile(source.text):
        return False
    with open(source.text, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if format_name == "flv":
            return not _ends_with_a_tag(file, size)
        return "matroska" in format_name and _segment_end(file.read(_HEAD)) > size


def _segment_end(head: bytes) -> int:
    """Returns the place behind a Matroska file's segment, 0 where that is not stated."""
    place = 0
    for element in (_HEADER, _SEGMENT):
        if place + 16 > len(head):
            return 0
        key, begin = number(head, place, marked=True)
        length, place = number(head, begin, marked=False)
        unknown = length == (1 << 7 * (place - begin)) - 1  # of streams that were written as they came
        if key != element or unknown:
            return 0
        place += length
    return place


def _ends_with_a_tag(file: BinaryIO, size: int) -> bool:
    """Returns whether an FLV's last four bytes are the length of the tag before them."""
    file.seek(max(0, size - 4))
    length = int.from_bytes(file.read(4))
    if not _TAG <= length <= size - 4:
        return False
    file.seek(size - 4 - length)
    return int.from_bytes(file.read(4)[1:]) == length - _TAG
