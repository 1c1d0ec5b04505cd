"""Keeps NVDEC sessions from one file to the next, and shares them out. Needs none of the GPU's libraries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec_session import NvdecSession

_MOST_IDLE = 14  # two files' sessions, so that portrait and landscape clips may alternate; seven for 4K take gigabytes


class StreamFormat(NamedTuple):
    """Properties that two streams must share for one NVDEC session to decode both.

    A session keeps the number of surfaces that its first stream needs. Another stream of the same size may refer to
    more frames, and would come out damaged. So the extradata, which hold the parameter sets, must be the same too.
    """

    device: int
    codec: str  # FFmpeg's name of the decoder
    width: int  # pixels
    height: int
    pix_fmt: str
    extradata: bytes | None  # None: the container has none, and the codec needs none


class NvdecSessionPool:
    """Lends NVDEC sessions to the threads that decode. Any thread may call.

    Creating a session takes longer than decoding a short clip. To a session, another file of the same `StreamFormat` is
    one more chunk of the file before. All sessions copy their surfaces on one stream.
    """

    def __init__(self) -> None:
        self.files = 0  # that are being decoded
        self.changed = threading.Condition(threading.RLock())  # how many files share the engines
        self._idle: list[NvdecSession] = []  # the least recently used one first
        self._gpu: Gpu | None = None

    def gpu(self, stages: Gpu) -> Gpu:
        """Returns the device of the stages with the stream of the sessions.

        A session waits for the copy of each picture, and so for all earlier work on its stream. On the stages' stream
        the decoders would wait for the stages.
        """
        with self.changed:
            if self._gpu is None:
                self._gpu = stages.with_own_stream()
            return self._gpu

    def take(self, stream_format: StreamFormat) -> NvdecSession | None:
        """Returns an idle session for streams of this format; `None` if the caller must make one."""
        with self.changed:
            for session in reversed(self._idle):
                if session.format == stream_format:
                    self._idle.remove(session)
                    return session
        return None

    def give_back(self, session: NvdecSession) -> None:
        """Keeps an emptied session, taken from the pool or not. Destroys the one that is idle longest, if too many."""
        with self.changed:
            self._idle.append(session)
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for old in surplus:
            old.close()

    def close(self) -> None:
        """Destroys all idle sessions, which frees their device memory. The pool may be used again."""
        with self.changed:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()


class Share:
    """A file's part of NVDEC's engines, which all files in a pool share evenly.

    Each of the file's threads decodes between `begin` and `end`, and looks after each chunk whether the share has
    become smaller. More sessions at a time than engines would make no file faster, and creating them takes longer than
    decoding short files.
    """

    def __init__(self, pool: NvdecSessionPool, engines: int) -> None:
        """`engines` is how many threads may decode at once while there is no other file."""
        self._pool, self._engines = pool, engines
        self._working = 0
        self._left = False
        with pool.changed:
            pool.files += 1
            pool.changed.notify_all()

    @property
    def size(self) -> int:
        """How many of the file's threads may decode at once."""
        return max(1, -(-self._engines // max(1, self._pool.files)))

    def begin(self) -> bool:
        """Waits until one more thread may decode. Returns `False` if the file has left."""
        with self._pool.changed:
            self._pool.changed.wait_for(lambda: self._left or self._working < self.size)
            self._working += 1
            return not self._left

    def end(self) -> None:
        """Says that a thread does not decode for now."""
        with self._pool.changed:
            self._working -= 1
            self._pool.changed.notify_all()

    @property
    def exceeded(self) -> bool:
        """Whether more threads decode than may."""
        return self._working > self.size

    def leave(self) -> None:
        """Leaves the engines to the other files."""
        with self._pool.changed:
            if not self._left:
                self._left = True
                self._pool.files -= 1
                self._pool.changed.notify_all()
