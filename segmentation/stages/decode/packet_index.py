"""The frames of a video, and the keyframes at which their decoding begins, as its packets tell them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import VideoInfo
from segmentation.stages.decode.chunks import exact_keyframe, is_hidden, read

# Codecs with one packet for each frame, whose keyframes are known to be exact.
_BY_PACKETS = ("h264", "hevc", "vp8", "vp9", "libdav1d", "mjpeg", "png", "ffv1", "prores")


class _Packet(NamedTuple):
    pts: int
    dts: int
    key: bool  # whether frames are exact from here on


def by_packets(info: VideoInfo) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Returns the pts of all frames, and for each the dts of the keyframe at which its decoding begins.

    Both are (frames,), in ticks of `info.time_base`, and the pts rise. Returns `None` where the packets don't tell
    them for certain. Raises `InputError`.
    """
    if info.codec not in _BY_PACKETS or info.decoding_times or info.packed or info.gradual or info.layered:
        return None
    faults: list[None] = []
    shown: list[_Packet] = []
    keys: list[_Packet] = []
    exact = exact_keyframe(info.codec)

    def fault() -> None:
        faults.append(None)

    for packet in read(info, None, fault, fault):
        if packet.pts is None or packet.dts is None:
            return None
        made = _Packet(packet.pts, packet.dts, exact(packet))
        if made.key:
            keys.append(made)
        if not (packet.is_discard or is_hidden(info.codec, packet)):
            shown.append(made)
    if faults or not shown or not keys or not shown[0].key:
        return None
    times = np.array(sorted(packet.pts for packet in shown), np.int64)
    begins = np.array([key.pts for key in keys], np.int64)
    if (np.diff(times) <= 0).any() or (np.diff(begins) <= 0).any() or times[0] < begins[0]:
        return None
    latest = np.searchsorted(begins, times, side="right") - 1
    return times, np.array([key.dts for key in keys], np.int64)[latest]
