"""Chunks whose packets are taken in blocks, so that a decoder's thread wakes up once for many."""

from __future__ import annotations

import threading
from types import FunctionType
from typing import Any

from segmentation.stages.decode import chunks as original

BLOCK = 64  # packets that wake a decoder up before the chunk ends


class BlockChunk(original.Chunk[Any]):
    """See `segmentation.stages.decode.chunks.Chunk`."""

    def __init__(self, first: int | None, stop: threading.Event) -> None:
        super().__init__(first, stop)
        self._there: list[Any] = []
        self._changed = threading.Condition()

    def put(self, packet: Any) -> None:
        if self.head is None:
            self.head = packet
        with self._changed:
            if packet is None:
                self.ended = True
            else:
                self.length += 1
                self._there.append(packet)
            if self.ended or len(self._there) >= BLOCK:
                self._changed.notify_all()
            while len(self._there) >= original._MOST_WAITING and not self._stop.is_set():
                self._changed.wait(original._POLL)

    def take(self) -> list[Any]:
        """Returns the packets that are there, at least a block of them or the last ones; none at the end."""
        with self._changed:
            while not (self.ended or len(self._there) >= BLOCK or self._stop.is_set()):
                self._changed.wait(original._POLL)
            if self._stop.is_set():
                return []
            there, self._there = self._there, []
            self._changed.notify_all()
            return there


def _with_blocks(function: Any) -> Any:
    """Returns the same function, which makes a `BlockChunk` where the original makes a `Chunk`."""
    return FunctionType(function.__code__, {**vars(original), "Chunk": BlockChunk}, function.__name__)


chunks, whole = _with_blocks(original.chunks), _with_blocks(original.whole)
