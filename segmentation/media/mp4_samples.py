"""Finds the pictures of an MP4 by its sample table, where the file is of the usual kind. See ISO/IEC 14496-12, 8.6.

FFmpeg reads all else: fragments, edit lists that cut, encryption, tables that disagree with each other or with FFmpeg.
"""

from __future__ import annotations

import os
import struct
from fractions import Fraction
from io import RawIOBase
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import VideoInfo
from segmentation.media.mp4_boxes import UNKNOWN, boxes, numbers
from segmentation.media.source_packets import MOST_REORDERED

_INSIDE = {b"moov", b"trak", b"edts", b"mdia", b"minf", b"stbl"}
_NUMBERED = {b"mvhd": 0, b"tkhd": 4, b"mdhd": 0}  # bytes between a header's number and its duration
_TABLES = {b"elst", b"stsd", b"stts", b"ctts", b"stss", b"stsc", b"stsz", b"stco", b"co64"}
_FRAGMENTS = {b"moof", b"mvex"}
_UNUSUAL = {b"stz2", b"stps", b"senc", b"saiz"}  # other sizes, keyframes of another kind, encryption
_GROUPS, _KEYFRAMES = {b"sgpd", b"sbgp"}, {b"sync", b"rap "}  # of samples, which may make further ones keyframes
_ENTRIES = {"h264": (b"avc1", b"avc3"), "hevc": (b"hvc1", b"hev1")}  # ISO/IEC 14496-15
_LARGEST_OFFSET = 1 << 28  # ticks: FFmpeg takes larger ones for damage
_WHOLE_SPEED = 1 << 16  # media_rate of an edit, 8.6.6

_File: TypeAlias = "BinaryIO | RawIOBase"


class Samples(NamedTuple):
    """Coded pictures in decoding order, arrays (samples,). Times are ticks of `VideoInfo.time_base`."""

    offsets: NDArray[np.int64]  # bytes from the file's beginning
    sizes: NDArray[np.uint32]  # bytes
    pts: NDArray[np.int64]
    durations: NDArray[np.int64]
    keys: NDArray[np.bool_]


class Mp4Video(NamedTuple):
    """A video in an MP4, by what its sample table is checked against."""

    path: str
    stream_index: int
    codec: str  # FFmpeg's name of the decoder
    time_base: Fraction
    frames: int  # in FFmpeg's index
    first_pts: int


class _Unusual(Exception):
    """The file is one for FFmpeg."""


class _TrackBoxes(NamedTuple):
    tables: dict[bytes, bytes]  # content behind version and flags
    headers: dict[bytes, tuple[int, int]]  # number and duration


def mp4_samples(info: VideoInfo) -> Samples | None:
    """Returns the packets that FFmpeg makes of a video, as `SourcePackets` has them; `None` if that is not certain."""
    if info.source.kind != "file" or not info.frames_exact:
        return None
    return samples_in(Mp4Video(info.path, info.stream_index, info.codec, info.time_base, info.frames, info.first_pts))


def samples_in(video: Mp4Video) -> Samples | None:
    """Returns what `mp4_samples` does, for a file whose number of frames is exact."""
    if video.codec not in _ENTRIES:
        return None
    try:
        with open(video.path, "rb") as file:
            movie, track = _track(file, video.stream_index)
            found = _samples(video, movie, track)
            if (found.offsets + found.sizes > os.fstat(file.fileno()).st_size).any():
                return None
            return found
    except (OSError, struct.error, ValueError, IndexError, KeyError, _Unusual):
        return None


def _track(file: _File, number: int) -> tuple[int, _TrackBoxes]:
    """Returns the movie's ticks a second, and one of its tracks, counted from 0."""
    movie, tracks = 0, list[_TrackBoxes]()
    for kind, begin, end in boxes(file, _INSIDE):
        if kind in _FRAGMENTS:
            raise _Unusual
        if kind == b"trak":
            tracks.append(_TrackBoxes({}, {}))
        elif kind == b"mvhd":
            movie, _ = numbers(file, begin, between=0)
        elif kind in _NUMBERED:
            tracks[-1].headers[kind] = numbers(file, begin, between=_NUMBERED[kind])
        elif len(tracks) == number + 1 and kind in _TABLES | _GROUPS | _UNUSUAL:
            file.seek(begin)
            table = file.read(end - begin) or b""
            if kind in _UNUSUAL or kind in tracks[-1].tables or (kind in _GROUPS and table[4:8] in _KEYFRAMES):
                raise _Unusual
            if kind in _TABLES:
                tracks[-1].tables[kind] = table
    return movie, tracks[number]


def _samples(info: Mp4Video, movie: int, track: _TrackBoxes) -> Samples:
    tables = track.tables
    entries, entry = struct.unpack_from(">I4x4s", tables[b"stsd"], 4)
    ticks, _ = track.headers[b"mdhd"]
    if entries != 1 or entry not in _ENTRIES[info.codec] or info.time_base * ticks != 1:
        raise _Unusual
    constant, count = struct.unpack_from(">II", tables[b"stsz"], 4)
    sizes = np.frombuffer(tables[b"stsz"], ">u4", count, 12).astype(np.uint32)
    if constant or count != info.frames or not count or not sizes.all():
        raise _Unusual
    steps = _runs(tables[b"stts"], ">u4", count)
    decoded = np.cumsum(steps) - steps
    offsets = _runs(tables[b"ctts"], ">i4", count) if b"ctts" in tables else np.zeros(count, np.int64)
    if steps.min() <= 0 or steps.max() >= 1 << 31 or np.abs(offsets).max() >= _LARGEST_OFFSET:
        raise _Unusual
    keys = np.full(count, b"stss" not in tables)
    if b"stss" in tables:
        numbered = _column(tables[b"stss"], 1)[:, 0]
        keys[numbered[numbered > 0] - 1] = True
    shown = decoded + offsets
    pts = shown + _shift(tables.get(b"elst"), shown, shown + steps, keys, ticks, movie)
    if not keys[0] or pts.min() != info.first_pts:
        raise _Unusual
    _, length = track.headers[b"tkhd"]
    end = round(Fraction(length * ticks, movie)) if movie and length not in UNKNOWN else None
    return Samples(_places(tables, sizes), sizes, pts, _until_next(pts, steps, end), keys)


def _column(table: bytes, width: int, kind: str = ">u4") -> NDArray[np.int64]:
    """Returns a table of rows (rows, width) whose number stands before them."""
    (rows,) = struct.unpack_from(">I", table, 4)
    return np.frombuffer(table, kind, rows * width, 8).astype(np.int64).reshape(rows, width)


def _runs(table: bytes, kind: str, count: int) -> NDArray[np.int64]:
    """Returns a value for each of `count` samples, of a table that states how many have the same."""
    rows = _column(table, 2, kind)
    if (rows[:, 0] < 0).any() or rows[:, 0].sum() != count:
        raise _Unusual
    return np.repeat(rows[:, 1], rows[:, 0])


def _places(tables: dict[bytes, bytes], sizes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Returns where the samples begin, which lie one behind the other within chunks."""
    places = _column(tables[b"co64"], 1, ">u8") if b"co64" in tables else _column(tables[b"stco"], 1)
    firsts, per_chunk, kinds = _column(tables[b"stsc"], 3).T
    each = np.repeat(per_chunk, np.diff(np.append(firsts, len(places) + 1)))
    if firsts[0] != 1 or (kinds != 1).any() or len(each) != len(places) or each.sum() != len(sizes):
        raise _Unusual
    ends = np.cumsum(sizes, dtype=np.int64)
    before = ends - sizes
    firsts_of_chunks = np.cumsum(each) - each
    found: NDArray[np.int64] = before + np.repeat(places[:, 0] - before[firsts_of_chunks], each)
    return found


def _shift(
    edits: bytes | None,
    shown: NDArray[np.int64],
    ends: NDArray[np.int64],
    keys: NDArray[np.bool_],
    ticks: int,
    movie: int,
) -> int:
    """Returns what an edit list adds to all times: one that shows everything, after a pause or at once."""
    if edits is None:
        return 0
    version, number = edits[0], struct.unpack_from(">I", edits, 4)[0]
    *pauses, edit = struct.iter_unpack(">Qqi" if version else ">Iii", edits[8 : 8 + number * (20 if version else 12)])
    if len(pauses) > 1 or any(begin != -1 for _, begin, _ in pauses) or edit[2] != _WHOLE_SPEED:
        raise _Unusual
    begin, end = edit[1], edit[1] + _rescaled(edit[0], ticks, movie)
    if not 0 <= begin == shown[0] == shown.min() or shown.max() >= end or (keys & (ends >= end))[:-1].any():
        raise _Unusual
    return sum(_rescaled(length, ticks, movie) for length, _, _ in pauses) - int(begin)


def _rescaled(length: int, ticks: int, movie: int) -> int:
    """Returns a length in a track's ticks, rounded as FFmpeg does."""
    return (length * ticks + movie // 2) // movie


def _until_next(pts: NDArray[np.int64], steps: NDArray[np.int64], end: int | None) -> NDArray[np.int64]:
    """Returns how long each picture is shown, as `SourcePackets` has it: `steps` or less."""
    order = np.argsort(pts)
    ahead = np.diff(order)
    gaps = np.diff(pts[order])
    if (gaps <= 0).any() or np.abs(ahead).max(initial=0) >= MOST_REORDERED or order[-1] < len(pts) - MOST_REORDERED:
        raise _Unusual
    lengths = steps.copy()
    lengths[order[:-1]] = np.minimum(steps[order[:-1]], gaps)
    last = order[-1]
    remains = steps[-1] if end is None else end - pts[last]
    if 0 < remains < lengths[last]:
        lengths[last] = remains
    return lengths
