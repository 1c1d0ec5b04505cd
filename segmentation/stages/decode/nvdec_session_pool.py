"""Keeps NVDEC sessions from one file to the next. Needs none of the GPU's libraries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from segmentation.stages.decode.nvdec_session import NvdecSessions

_MOST_IDLE = 2  # sets, so that portrait and landscape clips may alternate; a set for 4K takes gigabytes


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
    """Lends sets of NVDEC sessions to decoders, a set to one file at a time. Any thread may call.

    Creating the sessions takes longer than decoding a short clip. To a session, another file of the same `StreamFormat`
    is one more chunk of the file before.
    """

    def __init__(self) -> None:
        self._idle: list[NvdecSessions] = []  # the least recently used set first
        self._lock = threading.Lock()

    def take(self, stream_format: StreamFormat) -> NvdecSessions | None:
        """Returns an idle set for streams of this format; `None` if the caller must make one."""
        with self._lock:
            for sessions in reversed(self._idle):
                if sessions.format == stream_format:
                    self._idle.remove(sessions)
                    return sessions
        return None

    def give_back(self, sessions: NvdecSessions) -> None:
        """Keeps a set that no file uses any more, taken from the pool or not. Destroys the set that is idle longest."""
        with self._lock:
            self._idle.append(sessions)
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for old in surplus:
            old.close()

    def close(self) -> None:
        """Destroys all idle sessions, which frees their device memory. The pool may be used again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for sessions in idle:
            sessions.close()
