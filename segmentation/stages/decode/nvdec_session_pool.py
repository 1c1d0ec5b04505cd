"""Keeps NVDEC sessions from one stream to the next, and shares them out. Needs none of the GPU's libraries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, cast

from segmentation.stages.decode.stream_format import StreamFormat

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec_session import NvdecSession

_MOST_IDLE = 14  # two files' sessions, so that portrait and landscape clips may alternate; seven for 4K take gigabytes


class PooledSession(Protocol):
    """A session, as far as the pool goes."""

    format: StreamFormat

    def close(self) -> None: ...


class NvdecSessionPool:
    """Lends NVDEC sessions to the threads that decode. Any thread may call.

    Creating a session takes longer than decoding a short clip, and live sources wait meanwhile. To a session, another
    file or connection of the same `StreamFormat` is one more chunk of the file before. All sessions copy their surfaces
    on one stream.
    """

    def __init__(self) -> None:
        self.files = 0  # that are being decoded
        self.working = 0  # threads that decode, of all files
        self.lock = threading.Lock()
        self._idle: list[PooledSession] = []  # the least recently used one first
        self._gpu: Gpu | None = None

    def gpu(self, stages: Gpu) -> Gpu:
        """Returns the device of the stages with the stream of the sessions.

        A session waits for the copy of each picture, and so for all earlier work on its stream. On the stages' stream
        the decoders would wait for the stages.
        """
        with self.lock:
            if self._gpu is None:
                self._gpu = stages.with_own_stream()
            return self._gpu

    def take(self, stream_format: StreamFormat) -> NvdecSession | None:
        """Returns an idle session for streams of this format; `None` if the caller must make one."""
        with self.lock:
            for session in reversed(self._idle):
                if session.format == stream_format:
                    self._idle.remove(session)
                    return cast("NvdecSession", session)
        return None

    def give_back(self, session: PooledSession) -> None:
        """Keeps an emptied session, taken from the pool or not. Destroys the one that is idle longest, if too many."""
        with self.lock:
            self._idle.append(session)
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for old in surplus:
            old.close()

    def close(self) -> None:
        """Destroys all idle sessions, which frees their device memory. The pool may be used again."""
        with self.lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()


class SessionQuota:
    """A file's part of NVDEC's engines, which all files in a pool share evenly.

    A file's threads decode between `begin` and `end`, and ask after each chunk whether they are one too many. Of all
    files together there are no more threads than engines, but at least one for each file: more would make no file
    faster, and creating their sessions takes longer than decoding short files.
    """

    def __init__(self, pool: NvdecSessionPool, engines: int) -> None:
        """`engines` is how many threads may decode at once while there is no other file."""
        self._pool, self._engines = pool, engines
        self._working = 0
        self._left = False
        with pool.lock:
            pool.files += 1

    @property
    def size(self) -> int:
        """How many of the file's threads may decode at once."""
        return max(1, -(-self._engines // max(1, self._pool.files)))

    def begin(self) -> bool:
        """Returns whether one more thread may decode. It has begun then."""
        with self._pool.lock:
            free = self._working < self.size and (self._working == 0 or self._pool.working < self._engines)
            begun = free and not self._left
            self._count(int(begun))
            return begun

    def end(self) -> None:
        """Says that a thread decodes no longer."""
        with self._pool.lock:
            self._count(-1)

    def end_surplus(self) -> bool:
        """Returns whether the calling thread is one more than may decode. It has ended then."""
        with self._pool.lock:
            surplus = self._working > self.size
            self._count(-int(surplus))
            return surplus

    def leave(self) -> None:
        """Leaves the engines to the other files."""
        with self._pool.lock:
            self._pool.files -= not self._left
            self._left = True

    def _count(self, threads: int) -> None:
        self._working += threads
        self._pool.working += threads
