"""MPEG-TS joined from recordings, read as if all had the PIDs of the first one (ISO/IEC 13818-1, 2.4.4).

FFmpeg takes each PID for a stream of its own. With its `merge_pmt_versions` the last picture of a recording comes at
the file's end, and streams in another order get each other's packets.
"""

from __future__ import annotations

import io
import re
import zlib
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from segmentation.system.interrupts import carries_interrupts

_PACKET, _SYNC = 188, b"\x47"
_NULL = 0x1FFF  # the PID of packets without content
_PACKETS = re.compile(rb"G.{187}G.{187}G", re.DOTALL)
BEGINNING = 1024  # bytes of a file that show what it is
_READ = 1 << 16  # bytes at a time
_PRIVATE = 6  # the stream type of all codecs that descriptors name
_HEADER, _ENTRY, _CRC = 12, 5, 4  # bytes of a program map
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def is_ts(beginning: bytes) -> bool:
    """Returns whether a file is MPEG-TS that begins so, in up to `BEGINNING` bytes. Its first packet may be cut."""
    return _PACKETS.search(beginning) is not None


class _File(Protocol):
    def read(self, size: int, /) -> bytes | None: ...

    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def seekable(self) -> bool: ...

    def close(self) -> None: ...


class _MapEntry(NamedTuple):
    """A stream in a program map."""

    pid: int
    kind: bytes  # type, and descriptors where these name the codec
    at: int  # in the section, in bytes


class JoinedTs(io.RawIOBase):
    """Reads a file as it is, but for MPEG-TS of one program: streams of later program maps get the first one's PIDs.

    Lengths and places stay. A stream that the first map has none for keeps its PID, unless that is taken: FFmpeg would
    take one of another codec for the first one, damaged. Maps that go on in a second packet are left as they are.
    """

    def __init__(self, file: _File) -> None:
        self._file = file
        self._is_ts: bool | None = None
        self._at = 0
        self._ready, self._rest = bytearray(), b""
        self._association = b""  # the first one of programs
        self._map_pid = 0
        self._map = b""  # the first of the program
        self._pids = np.arange(_NULL + 1, dtype=np.uint16)  # those that are read, by those in the file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Returns the new position, or FFmpeg's number of an error."""
        if whence == io.SEEK_CUR:
            offset, whence = self._at + offset, io.SEEK_SET
        found = self._file.seek(offset, whence)
        if found >= 0:
            self._at, self._rest = found, b""
            self._ready.clear()
        return found

    def close(self) -> None:
        self._file.close()
        super().close()

    @carries_interrupts
    def read(self, size: int = -1) -> bytes:
        """Returns some bytes, none at the end."""
        size = _READ if size < 0 else size
        if self._is_ts is None:
            self._begin()
        while self._is_ts and not self._ready and (more := self._file.read(_READ)):
            self._take(self._rest + more)
        if not self._ready:
            self._ready, self._rest = bytearray(self._rest), b""
        data = bytes(self._ready[:size]) or self._file.read(size) or b""
        del self._ready[:size]
        self._at += len(data)
        return data

    def _begin(self) -> None:
        while len(self._rest) < BEGINNING and (more := self._file.read(BEGINNING - len(self._rest))):
            self._rest += more
        self._is_ts = is_ts(self._rest)

    def _take(self, data: bytes) -> None:
        """Makes bytes ready, but for a packet of which there is only the beginning."""
        at = 0
        while (begin := _next_packet(data, at)) >= 0:
            count = _packets(data, begin)
            end = begin + count * _PACKET
            packets = np.frombuffer(data[begin:end], np.uint8).reshape(count, _PACKET).copy()
            self._translate(packets)
            self._ready += data[at:begin] + packets.tobytes()
            at = end
        kept = min(len(data) - at, _PACKET)
        self._ready += data[at : len(data) - kept]
        self._rest = data[len(data) - kept :]

    def _translate(self, packets: NDArray[np.uint8]) -> None:
        """Sets the PIDs of packets, (n, 188), in place."""
        pids = (packets[:, 1] & 0x1F).astype(np.uint16) << 8 | packets[:, 2]
        at = 0
        while at < len(pids):
            tables = np.flatnonzero((pids[at:] == 0) | (pids[at:] == self._map_pid))
            end = at + int(tables[0]) if tables.size else len(pids)
            _set_pids(packets[at:end], self._pids[pids[at:end]])
            if end < len(pids):
                self._take_table(packets[end : end + 1], is_map=bool(pids[end]))
            at = end + 1

    def _take_table(self, packet: NDArray[np.uint8], *, is_map: bool) -> None:
        """Notes the association of programs and the program's map. Later ones are made the first's in place."""
        begin, section = _section(packet[0].tobytes(), 2 if is_map else 0)
        if is_map:
            changed = self._changed(section) if section else b""
            packet[0, begin : begin + len(changed)] = np.frombuffer(changed, np.uint8)
            _set_pids(packet, np.array([_only_program(self._association)], np.uint16))
        elif (program := _only_program(section)) is not None:
            self._map_pid = program
            self._association = self._association or section
            if section != self._association:
                _set_pids(packet, np.array([_NULL], np.uint16))

    def _changed(self, section: bytes) -> bytes:
        """Returns a program map with the PIDs that are read, which it sets, and the first one's number of program."""
        if not self._map:
            self._map = section
        first, streams = {stream.pid: stream.kind for stream in _streams(self._map)}, _streams(section)
        read = {stream.pid: stream.pid for stream in streams if first.get(stream.pid) == stream.kind}
        left = {pid: kind for pid, kind in first.items() if pid not in read}
        others = [stream for stream in streams if stream.pid not in read]
        for stream in others:
            if (pid := next((pid for pid, kind in left.items() if kind == stream.kind), None)) is not None:
                read[stream.pid] = pid
                del left[pid]
        used = {_only_program(self._association), *first}
        free = (pid for pid in range(_NULL - 1, 0, -1) if pid not in used.union(stream.pid for stream in streams))
        changed = bytearray(section)
        changed[3:5] = self._map[3:5]
        for stream in streams:
            if stream.pid not in read:
                kept = stream.pid not in used or left.get(stream.pid, b"")[:1] == stream.kind[:1]  # other descriptors
                read[stream.pid] = stream.pid if kept else next(free)
            pid = self._pids[stream.pid] = read[stream.pid]
            changed[stream.at + 1 : stream.at + 3] = (0xE000 | pid).to_bytes(2, "big")
        changed[-_CRC:] = _crc(bytes(changed[:-_CRC]))
        return bytes(changed)


def _set_pids(packets: NDArray[np.uint8], pids: NDArray[np.uint16]) -> None:
    packets[:, 1] = packets[:, 1] & 0xE0 | pids >> 8
    packets[:, 2] = pids & 0xFF


def _next_packet(data: bytes, at: int) -> int:
    """Returns where a packet begins that is there as a whole, before another one or the end; -1 for nowhere."""
    while (at := data.find(_SYNC, at)) >= 0 and at + _PACKET <= len(data):
        if data[at + _PACKET : at + _PACKET + 1] in (_SYNC, b""):
            return at
        at += 1
    return -1


def _packets(data: bytes, begin: int) -> int:
    """Returns how many packets follow each other from the first one on, each there as a whole."""
    marks = np.frombuffer(data, np.uint8)[begin::_PACKET]
    wrong = np.flatnonzero(marks != _SYNC[0])
    return min(int(wrong[0]) if wrong.size else len(marks), (len(data) - begin) // _PACKET)


def _section(packet: bytes, table: int) -> tuple[int, bytes]:
    """Returns where a section of a table begins in a packet, and the section; none that is damaged, goes on in another
    packet, or is not valid yet."""
    begin = 4 + (1 + packet[4] if packet[3] & 0x20 else 0)
    if not packet[1] & 0x40 or begin >= _PACKET:
        return 0, b""
    begin += 1 + packet[begin]
    length = 3 + (int.from_bytes(packet[begin + 1 : begin + 3], "big") & 0xFFF)
    section = packet[begin : begin + length]
    valid = (
        length > _HEADER
        and len(section) == length
        and section[0] == table
        and section[5] & 1
        and not any(_crc(section))
    )
    return (begin, section) if valid else (0, b"")


def _only_program(association: bytes) -> int | None:
    """Returns the PID of the map of the only program; `None` where there are several."""
    entries = [association[at : at + 4] for at in range(8, len(association) - _CRC, 4)]
    programs = [int.from_bytes(entry[2:], "big") & 0x1FFF for entry in entries if any(entry[:2])]
    return programs[0] if len(programs) == 1 else None


def _streams(section: bytes) -> list[_MapEntry]:
    """Returns the streams of a program map."""
    found = []
    at = _HEADER + (int.from_bytes(section[10:12], "big") & 0xFFF)
    while at + _ENTRY <= len(section) - _CRC:
        pid, length = (int.from_bytes(section[at + first : at + first + 2], "big") for first in (1, 3))
        end = at + _ENTRY + (length & 0xFFF)
        named = section[at + _ENTRY : end] if section[at] == _PRIVATE else b""
        found.append(_MapEntry(pid & 0x1FFF, section[at : at + 1] + named, at))
        at = end
    return found


def _crc(data: bytes) -> bytes:
    """Returns the CRC of annex A, which is that of `zlib` with each byte's bits in the other order."""
    return (zlib.crc32(data.translate(_REVERSED)) ^ 0xFFFFFFFF).to_bytes(4, "little").translate(_REVERSED)
