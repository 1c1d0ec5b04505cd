"""What a video is, seen by FFmpeg: what make_variants.py checks each of its files by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import av
import av.error
from av.packet import Packet
from av.video.frame import PictureType
from header_trace import traced

from segmentation.errors import InputError
from segmentation.frames import VideoInfo
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import exact_keyframe, is_hidden, read


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Figures of a file. Lists and counts are of its video alone."""

    path: Path
    format: str = ""
    info: VideoInfo | None = None
    refused: str = ""  # why the program does not open it
    packets: int = 0
    keyframes: int = 0
    exact: int = 0  # keyframes at which decoding may begin: IDR in H.264, IRAP in HEVC
    leading: int = 0  # packets whose frames are shown before the keyframe that they follow, as in open groups
    hidden: int = 0  # packets whose frame is never shown
    superframes: int = 0  # packets of VP9 that may hold hidden frames besides one that is shown
    timeless: int = 0  # packets without pts
    pts: list[int] = field(default_factory=list)  # of packets, as they are stored
    discarded: int = 0  # packets that an edit list leaves out
    frames: int = 0
    b_frames: int = 0
    interlaced: int = 0  # frames
    sizes: set[tuple[int, int]] = field(default_factory=set)  # of frames
    errors: int = 0  # packets that can't be decoded, and frames that are known to be broken

    @cached_property
    def syntax(self) -> Counter[str]:
        """How often its headers say what, in the standard's words: "field_pic_flag = 1"."""
        return Counter(f"{one.name} = {one.value}" for _, elements in traced(self.path) for one in elements)

    @property
    def codec(self) -> str:
        return self.info.codec if self.info is not None else ""

    @property
    def pix_fmt(self) -> str:
        return self.info.pix_fmt if self.info is not None else ""


def facts(path: Path) -> Facts:
    """Looks at a file."""
    try:
        info = probe(str(path))
        packets = list(read(info, None))
    except InputError as exc:
        return Facts(path=path, refused=str(exc), **_decoded(path))
    cuttable = exact_keyframe(info.codec)
    return Facts(
        path=path,
        info=info,
        packets=len(packets),
        keyframes=sum(packet.is_keyframe for packet in packets),
        exact=sum(cuttable(packet) for packet in packets),
        leading=_leading(packets),
        hidden=sum(is_hidden(info.codec, packet) for packet in packets if packet.size),
        superframes=sum(info.codec == "vp9" and bytes(packet)[-1] & 0xE0 == 0xC0 for packet in packets if packet.size),
        discarded=sum(packet.is_discard for packet in packets),
        **_decoded(path),
    )


def _leading(packets: list[Packet[Any]]) -> int:
    count, key = 0, None
    for packet in packets:
        key = packet.pts if packet.is_keyframe else key
        count += key is not None and packet.pts is not None and packet.pts < key
    return count


def _decoded(path: Path) -> dict[str, Any]:
    """Decodes a file packet by packet, its clock as it is stored."""
    found: dict[str, Any] = dict(frames=0, b_frames=0, interlaced=0, errors=0, timeless=0, pts=[], sizes=set())
    try:
        with av.open(str(path), container_options={"correct_ts_overflow": "0"}) as container:
            stream = container.streams.video[0]
            for packet in container.demux(stream):
                if packet.size:
                    found["timeless"] += packet.pts is None
                    found["pts"] += [] if packet.pts is None else [packet.pts]
                try:
                    frames = packet.decode()
                except av.error.FFmpegError:
                    found["errors"] += 1
                    continue
                for frame in frames:
                    found["frames"] += 1
                    found["b_frames"] += int(frame.pict_type) == PictureType.B
                    found["interlaced"] += bool(frame.interlaced_frame)
                    found["errors"] += bool(frame.is_corrupt)
                    found["sizes"].add((frame.width, frame.height))
            return {"format": container.format.name, **found}
    except (av.error.FFmpegError, IndexError):
        return found
