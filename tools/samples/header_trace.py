"""What a stream's headers say, read by FFmpeg's filter `trace_headers`, in the standards' words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import av
import av.logging
from av.bitstream import BitStreamFilterContext

_LINE = re.compile(r"(\d+) +([a-z]\w*)(?:\[.*\])? +[01]+ = (-?\d+)\s*")


class Element(NamedTuple):
    """A syntax element."""

    at: int  # bits before it in its NAL unit or frame, without emulation prevention bytes
    name: str
    value: int


def traced(path: Path) -> Iterator[tuple[bytes, list[Element]]]:
    """Yields the video's packets and what their headers say."""
    level = av.logging.get_level()
    av.logging.set_level(av.logging.INFO)
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            trace = BitStreamFilterContext("trace_headers", stream)
            for packet in container.demux(stream):
                data = bytes(packet)
                with av.logging.Capture() as lines:
                    trace.filter(packet)
                found = (_LINE.fullmatch(text) for _, name, text in lines if name == "trace_headers")
                yield data, [Element(int(match[1]), match[2], int(match[3])) for match in found if match]
    finally:
        av.logging.set_level(level)


def places(elements: list[Element]) -> list[dict[str, int]]:
    """Returns where the elements of each NAL unit or frame begin: of those that come several times, the first."""
    found: list[dict[str, int]] = []
    for element in elements:
        if element.at == 0:
            found.append({})
        found[-1].setdefault(element.name, element.at)
    return found
