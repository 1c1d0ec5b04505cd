"""Reads the packets of a clip by an MP4's sample table: one call of the native library, and no container is opened."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from ctypes import CDLL, byref
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.index import VideoIndex
from segmentation.media.bitstream.start_codes import parameter_sets
from segmentation.media.mp4_samples import Mp4Video, Samples, samples_in
from segmentation.stages.decode.native.library import SampleRows
from segmentation.stages.decode.native.session import Packets
from segmentation.system.file_state import FileState, file_state

_MOST_KEPT = 64  # videos
_RASL = 1 << 8 | 1 << 9  # bits of nal_unit_type, H.265 table 7-1


class ClipSamples:
    """The packets of one file."""

    @classmethod
    def of(cls, index: VideoIndex, library: CDLL) -> ClipSamples | None:
        """Returns the packets of a file; `None` where FFmpeg has to read it, or it is not as the index has it."""
        if not index.timed:
            return None
        codec, first = index.coding.codec, int(index.pts[0])
        samples = samples_in(Mp4Video(index.path, index.stream, codec, index.time_base, len(index), first))
        if samples is None:
            return None
        order = np.argsort(samples.pts)
        if not np.array_equal(samples.pts[order], index.pts):
            return None
        try:
            return cls(index, samples, order, parameter_sets(codec, index.coding.extradata), library)
        except (ValueError, IndexError, OSError):
            return None

    def __init__(
        self, index: VideoIndex, samples: Samples, order: NDArray[np.int64], header: bytes, library: CDLL
    ) -> None:
        """`order` are the numbers of the samples as they are shown. `header` goes before each keyframe."""
        self._samples, self._order, self._header, self._library = samples, order, header, library
        self._hevc = index.coding.codec == "hevc"
        self._spare = np.empty(len(order), np.bool_)
        self._spare[order] = index.spare
        self._file = open(index.path, "rb", buffering=0)  # noqa: SIM115  # it ends with the last thread that reads

    def read(self, index: VideoIndex, numbers: Sequence[int]) -> tuple[Packets, NDArray[np.int64]] | None:
        """Returns the packets from the keyframe before frame `numbers[0]` on that these need, and their pts.

        Returns `None` where one is damaged, which FFmpeg finds out more about.
        """
        samples, wanted = self._samples, self._order[list(numbers)]
        first = self._order[np.searchsorted(index.pts, index.keys[numbers[0]])]
        rows = np.arange(first, wanted.max() + 1)
        needed = ~self._spare[rows]
        needed[wanted - first] = True
        rows = rows[needed]
        offsets, sizes, keys = samples.offsets[rows], samples.sizes[rows], samples.keys[rows]
        whole = sizes + np.where(keys, np.uint32(len(self._header)), np.uint32(0))
        ends = np.cumsum(whole, dtype=np.int64)
        buffer = np.empty(ends[-1], np.uint8)
        kinds, heads = np.empty(len(rows), np.uint64), np.empty(len(rows), np.uint32)
        arrays = offsets, sizes, keys, kinds, heads
        table = SampleRows(*(array.ctypes.data for array in arrays))
        given = self._hevc, self._header, len(self._header), 0, buffer.ctypes.data
        if self._library.nd_read(self._file.fileno(), byref(table), len(rows), *given) < len(rows):
            return None
        pts, places = samples.pts[rows], ends - whole + buffer.ctypes.data
        kept = np.zeros(len(rows), np.bool_)
        kept[np.searchsorted(rows, wanted)] = True
        if self._hevc:  # pictures that refer to some before the first keyframe are shown by no decoder
            shown = (np.cumsum(keys) > 1) | (kinds & np.uint64(_RASL) == 0)
            places, whole, pts, kept = places[shown], whole[shown], pts[shown], kept[shown]
        return Packets(places, whole, pts, np.arange(len(pts)), kept, buffer), pts


class ClipSampleCache:
    """Keeps the sample tables of the videos that were read last. Any thread may call."""

    def __init__(self, library: CDLL) -> None:
        self._library, self._lock = library, Lock()
        self._kept: OrderedDict[FileState, ClipSamples | None] = OrderedDict()

    def read(self, index: VideoIndex, numbers: Sequence[int]) -> tuple[Packets, NDArray[np.int64]] | None:
        """Returns `ClipSamples.read` of a file as it is now; `None` where FFmpeg has to read. Raises `InputError`."""
        state = file_state(index.path)
        with self._lock:
            known, found = state in self._kept, self._kept.get(state)
        if not known:
            found = ClipSamples.of(index, self._library)
        with self._lock:
            self._kept[state] = found
            self._kept.move_to_end(state)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return None if found is None else found.read(index, numbers)
