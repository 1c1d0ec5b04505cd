"""Reads the packets of an MP4 by its sample table: a call of the native library brings many. See samples.cpp."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ctypes import CDLL, byref
from functools import cache
from typing import TYPE_CHECKING, cast

import numpy as np
from av.packet import Packet
from av.video.stream import VideoStream

from segmentation.frames import VideoInfo
from segmentation.media.bitstream.start_codes import PacketFilter, parameter_sets
from segmentation.media.mp4_samples import Samples, mp4_samples
from segmentation.media.opening.open_input import open_input
from segmentation.media.video_packet import Sample
from segmentation.stages.decode.chunks import exact_keyframe, unit_kinds
from segmentation.stages.decode.native.library import SampleRows

if TYPE_CHECKING:
    from segmentation.media.video_packet import ChunkPacket, VideoPacket

log = logging.getLogger(__name__)

_MOST, _BYTES = 64, 8 << 20  # samples of a call, and their bytes where there are several


class SampleReader:
    """The packets of one file with start codes, in decoding order, as `chunks.read` has them."""

    @classmethod
    def of(cls, info: VideoInfo, library: CDLL, first: int | None = None) -> SampleReader | None:
        """Returns a reader from the keyframe before the pts `first` on; `None` where FFmpeg has to read."""
        samples = mp4_samples(info)
        try:
            made = samples and cls(info, samples, parameter_sets(info.codec, info.extradata), library)
        except (ValueError, IndexError):
            return None
        return made if made and made._goes_to(first) else None

    def __init__(self, info: VideoInfo, samples: Samples, header: bytes, library: CDLL) -> None:
        """`header` goes before each keyframe."""
        self._info, self._samples, self._header, self._library = info, samples, header, library
        self._header_kinds = sum(1 << kind for kind in unit_kinds(info.codec, header))
        self._ends = np.cumsum(samples.sizes + np.where(samples.keys, len(header), 0), dtype=np.int64)
        self._first = 0  # number of the sample at which reading begins

    def read(self, cut_short: Callable[[], None], damaged: Callable[[], None]) -> Iterator[ChunkPacket]:
        """Yields the packets. Calls `cut_short` and `damaged` as `chunks.read` does."""
        with open(self._info.path, "rb", buffering=0) as file, ExitStack() as exits:
            filters: PacketFilter | None = None
            at = self._first
            while at < len(self._ends):
                end = self._end(at)
                found = self._block(file.fileno(), at, end)
                yield from found
                at += len(found)
                if at == end:
                    continue
                packet = self._packet(file.fileno(), at)
                if packet is None:
                    log.warning("%s: reading ended early: the file has become shorter", self._info.path)
                    cut_short()
                    return
                filters = filters or self._filters(exits)
                made = filters(packet)
                if not made:
                    damaged()
                yield from made
                at += 1

    def _goes_to(self, first: int | None) -> bool:
        """Goes to the keyframe before the pts `first`. Returns whether pictures are exact from there on."""
        if first is None:
            return True
        samples = self._samples
        self._first = int(np.flatnonzero(samples.keys & (samples.pts <= first))[-1:].sum())
        with open(self._info.path, "rb", buffering=0) as file:
            return any(map(exact_keyframe(self._info.codec), self._block(file.fileno(), self._first, self._first + 1)))

    def _end(self, at: int) -> int:
        """Returns where the samples end that are read at once from number `at` on."""
        begin = self._ends[at - 1] if at else 0
        fitting = int(np.searchsorted(self._ends, begin + _BYTES, side="right"))
        return min(max(fitting, at + 1), at + _MOST, len(self._ends))

    def _block(self, file: int, at: int, end: int) -> list[Sample]:
        """Reads samples; those from a damaged one on are left out."""
        samples, header = self._samples, self._header
        begin = self._ends[at - 1] if at else 0
        sizes, keys = samples.sizes[at:end], samples.keys[at:end]
        buffer = np.empty(self._ends[end - 1] - begin, np.uint8)
        kinds, heads = np.empty(end - at, np.uint64), np.empty(end - at, np.uint32)
        arrays = samples.offsets[at:end], sizes, keys, kinds, heads
        got = self._library.nd_read(
            *(file, byref(SampleRows(*(array.ctypes.data for array in arrays))), end - at),
            *(self._info.codec == "hevc", header, len(header), self._header_kinds, buffer.ctypes.data),
        )
        whole = sizes + np.where(keys, np.uint32(len(header)), np.uint32(0))
        places = self._ends[at:end] - whole - begin + buffer.ctypes.data
        columns = (samples.pts[at:end], samples.durations[at:end], keys, places, whole, heads, kinds)
        rows = zip(*(column[:got].tolist() for column in columns), strict=True)
        return [
            Sample(pts, duration, key, place, size, head_size, _kinds(bits), buffer)
            for pts, duration, key, place, size, head_size, bits in rows
        ]

    def _packet(self, file: int, at: int) -> VideoPacket | None:
        """Returns a sample as FFmpeg's demuxer does; `None` where the file lacks it."""
        samples = self._samples
        data = os.pread(file, int(samples.sizes[at]), int(samples.offsets[at]))
        if len(data) < samples.sizes[at]:
            return None
        packet = cast("VideoPacket", Packet(data))
        packet.pts, packet.duration = int(samples.pts[at]), int(samples.durations[at])
        packet.is_keyframe = bool(samples.keys[at])
        return packet

    def _filters(self, exits: ExitStack) -> PacketFilter:
        container = exits.enter_context(open_input(self._info.path, self._info.access))
        stream = container.streams[self._info.stream_index]
        assert isinstance(stream, VideoStream)
        return PacketFilter(stream, self._info.path)


@cache
def _kinds(bits: int) -> frozenset[int]:
    return frozenset(kind for kind in range(64) if bits >> kind & 1)
