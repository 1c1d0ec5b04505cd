"""The file of a piece: packets, results and masks as a worker has made them. It appears whole, and shows damage.

First come blobs, as they are made, then their index in JSON, then the length of the index in 8 bytes, then the SHA-256
of all before.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from segmentation.errors import OutputError, one_line
from segmentation.system.atomic_file import PendingFile

_LENGTH = 8  # bytes of the index's length
_DIGEST = hashlib.sha256().digest_size
_BLOCK = 1 << 20  # bytes that are read at a time

Place = tuple[int, int]  # of a blob: offset and size in bytes


@dataclass(slots=True, kw_only=True)
class CodedStream:
    """The packets of one video output, in decoding order."""

    extradata: str = ""  # the codec's parameter sets, in hexadecimal digits
    packets: list[tuple[int, int, int, int, bool]] = field(default_factory=list)  # place, pts, duration, keyframe
    kept: tuple[int, int, Place] | None = None  # of the first frame: height and width of its mask, and its bits


@dataclass(slots=True, kw_only=True)
class PieceIndex:
    """The contents of a piece. Lists have an item for each frame, or none where that was not asked for."""

    work: str  # the digest of the plan
    number: int
    pix_fmt: str
    plan: dict[str, str]  # stage to implementation
    worker: dict[str, str]  # its fingerprint
    classes: tuple[str, ...] = ()
    model: str = ""
    frames: list[tuple[int, int]] = field(default_factory=list)  # pts and duration
    outputs: list[CodedStream] = field(default_factory=list)
    results: list[Place] = field(default_factory=list)
    masks: list[Place] = field(default_factory=list)
    mask_size: tuple[int, int] = (0, 0)  # width and height
    thumbnails: list[Place] = field(default_factory=list)
    damaged: int = 0
    retimed: int = 0
    inferred: int = 0
    found: int = 0
    unknown: int = 0
    cut_short: bool = False
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)


class PieceWriter:
    """Writes one file. `commit` gives the file its name, `discard` removes it. All raise `OutputError`."""

    def __init__(self, target: Path, index: PieceIndex) -> None:
        self.index = index
        self._target = target
        self._pending = PendingFile(target, overwrite=True)
        self._digest = hashlib.sha256()
        self._length = 0
        try:
            self._pending.create()
            self._file: BinaryIO = open(self._pending.address, "wb")  # noqa: SIM115
        except OSError as exc:
            self._pending.discard()
            raise self._error(exc) from exc

    def add(self, data: bytes | memoryview) -> Place:
        """Appends a blob."""
        return self.add_all([data])[0]

    def add_all(self, blobs: Sequence[bytes | memoryview]) -> list[Place]:
        """Appends blobs by one call each of file and checksum, which give up the GIL and wait for it again."""
        data = b"".join(blobs)
        try:
            self._file.write(data)
        except OSError as exc:
            raise self._error(exc) from exc
        self._digest.update(data)
        ends = list(accumulate(map(len, blobs), initial=self._length))
        self._length = ends[-1]
        return [(begin, end - begin) for begin, end in pairwise(ends)]

    def commit(self) -> Path:
        """Completes the file."""
        index = json.dumps(self.index, default=_as_dict).encode()
        self.add(index)
        self.add(len(index).to_bytes(_LENGTH, "little"))
        try:
            self._file.write(self._digest.digest())
            self._file.close()
            return self._pending.commit()
        except OSError as exc:
            raise self._error(exc) from exc

    def discard(self) -> None:
        """Removes what is not complete."""
        self._pending.discard()
        with suppress(OSError):  # of bytes that were still to be written
            self._file.close()

    def _error(self, exc: OSError) -> OutputError:
        return OutputError(f"{self._target}: cannot be written ({one_line(exc)})")


def _as_dict(index: PieceIndex | CodedStream) -> dict[str, object]:
    """Returns the fields without a copy of their rows, which `asdict` would make."""
    return {one.name: getattr(index, one.name) for one in fields(index)}


class DamagedPiece(OutputError):
    """The file of a piece is damaged."""


class PieceFile:
    """Reads the file of a piece, as a context manager.

    Raises `OutputError` if the file can't be read, and `DamagedPiece`.
    """

    def __init__(self, path: Path, work: str, number: int) -> None:
        """`work` is the digest of the plan, of which the file is to hold the piece of this number."""
        self.path = path
        with ExitStack() as opening:
            try:
                self._file = opening.enter_context(path.open("rb", _BLOCK))
                self._check()
                self.index = self._read_index()
                if (self.index.work, self.index.number) != (work, number):
                    other = "" if self.index.work == work else " of other work"
                    raise ValueError(f"it is piece {self.index.number}{other}, not {number}")
            except OSError as exc:
                raise self._unreadable(exc) from exc
            except (ValueError, TypeError, KeyError) as exc:
                raise self._damaged(one_line(exc)) from exc
            opening.pop_all()

    def __enter__(self) -> PieceFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def blob(self, place: Place) -> bytes:
        """Returns a blob."""
        try:
            self._file.seek(place[0])
            data = self._file.read(place[1])
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if len(data) != place[1]:
            raise self._damaged("it is cut off")
        return data

    def _unreadable(self, exc: OSError) -> OutputError:
        return OutputError(f"{self.path}: can't be read ({one_line(exc)}); run the same command again")

    def _damaged(self, how: str) -> DamagedPiece:
        return DamagedPiece(f"{self.path}: is damaged ({how}); remove it, and run the same command again")

    def _check(self) -> None:
        left = os.fstat(self._file.fileno()).st_size - _DIGEST
        digest = hashlib.sha256()
        while left > 0 and (block := self._file.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
        if left or digest.digest() != self._file.read():
            raise ValueError("its checksum is wrong")

    def _read_index(self) -> PieceIndex:
        end = self._file.seek(-(_LENGTH + _DIGEST), os.SEEK_END)
        length = int.from_bytes(self._file.read(_LENGTH), "little")
        self._file.seek(end - length)
        given: dict[str, Any] = json.loads(self._file.read(length))
        given["outputs"] = [CodedStream(**one) for one in given["outputs"]]
        return PieceIndex(**given)
