"""Frames of a live source on their way to the pipeline: a bounded ring, which counts whatever it drops."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING

from segmentation.frames.latency import Histogram, Latencies
from segmentation.frames.packet_decoder import DevicePicture, PacketDecoder

if TYPE_CHECKING:  # machines without a GPU may lack PyTorch
    from av.video.frame import VideoFrame

    from segmentation.frames.live_sound import LiveSound

_MEMORY = 512 << 20  # bytes of waiting frames on the host: 5 s of 1080p at 30 frames a second
_DEVICE_MEMORY = 48 << 20  # the same on a GPU, which many sources share: half a second
_POLL = 0.05  # seconds between checks whether the run is to end
_RECENT = 5.0  # seconds whose frames make the rate


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """A decoded picture with two times in seconds on the monotonic clock: when it came, and when it is shown."""

    picture: VideoFrame | DevicePicture
    arrival: float
    shown: float

    @property
    def on_device(self) -> bool:
        """Returns whether the picture is in a GPU's memory."""
        return isinstance(self.picture, DevicePicture)

    @property
    def size(self) -> int:
        """Returns the bytes that the picture takes."""
        picture = self.picture
        if isinstance(picture, DevicePicture):
            return picture.size
        return sum(plane.buffer_size for plane in picture.planes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameCounts:
    """Counts of a live source's frames by now. `received` is always the sum of `shown`, `waiting` and `dropped`."""

    fps: float = 0.0  # frames shown, over the last 5 seconds
    received: int = 0  # frames that arrived
    shown: int = 0  # frames that have gone through all stages
    waiting: int = 0  # frames before and within the stages
    dropped: dict[str, int] = field(default_factory=dict)  # by cause
    reconnects: int = 0
    repeated: int = 0  # frames shown while the source was lost, which did not arrive
    unsent: int = 0  # frames for addresses whose connection was lost
    latency: dict[str, float] = field(default_factory=dict)  # in seconds: p50, p95, p99 and max


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCounts(FrameCounts):
    """See `FrameCounts`."""

    up: bool  # whether the source is connected and sends
    late: Histogram


class LiveFrames:
    """Holds the frames that wait for the pipeline. One thread puts frames in, another takes them.

    `received` is the sum of the frames that were taken, those that were dropped, by cause, and those that wait. Causes:
    `late` waited longer than `max_delay` seconds, `full` found no memory, `undecodable` could not be decoded.
    """

    def __init__(self, max_delay: float) -> None:
        self.received = self.taken = self.reconnects = 0
        self.repeated = 0  # frames shown while the source was lost, which did not arrive
        self.unsent = 0  # frames or results for addresses whose connection was lost, each address counted
        self.damaged = 0  # frames that could not be decoded after the first keyframe, or are known to be broken
        self.dropped: Counter[str] = Counter()
        self.closed = threading.Event()  # by the pipeline, which takes no more
        self.released = threading.Event()  # the source's connection is closed
        self.ended = False  # by the source, which sends no more
        self.complete = False  # it has ended as files do, and not by a loss
        self.failure: Exception | None = None  # a bug that has ended it
        self.up = False  # whether the source's connection has brought a frame
        self.sound: LiveSound | None = None
        self.packet_decoder: PacketDecoder | None = None  # of the pipeline, where it has one; see there
        self.latencies = Latencies()  # of the frames that were written, from their arrival on
        self._shown: deque[float] = deque()  # when the frames of the last seconds were written
        self._begun = time.monotonic()
        self._under_way: deque[float] = deque()  # when the frames arrived that were taken and not written yet
        self._max_delay = max_delay
        self._waiting: deque[LiveFrame] = deque()
        self._blocked = False  # whether frames wait for those that were taken
        self._bytes = {False: 0, True: 0}  # of the frames that wait, by whether they are in a GPU's memory
        self._newest = self._begun  # when the newest frame was put in
        self._changed = threading.Condition()

    def put(self, frame: LiveFrame) -> None:
        """Adds the newest frame. Waits for nothing: old frames are dropped in its place."""
        with self._changed:
            if self.closed.is_set():
                return
            self.received += 1
            self._newest = time.monotonic()
            self._waiting.append(frame)
            self._bytes[frame.on_device] += frame.size
            self._drop_late()
            most = _DEVICE_MEMORY if frame.on_device else _MEMORY
            while self._bytes[frame.on_device] > most and len(self._waiting) > 1:
                self._drop("full")
            self._changed.notify_all()

    def lose(self, count: int, *, damaged: bool = False) -> None:
        """Counts frames that arrived and can't be decoded."""
        with self._changed:
            if count and not self.closed.is_set():
                self.received += count
                self.dropped["undecodable"] += count
                self.damaged += count if damaged else 0

    def end(self) -> None:
        """Says that no frame will follow."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def take(self, most: int, stop: threading.Event, deadline: float | None, held: int = 0) -> list[LiveFrame]:
        """Returns the oldest frames that are not late, up to `most` in one kind of memory; waits for the first.

        While more than `held` frames are under way, and one of them is late, none is taken: the stages are too slow,
        and what waited within them could not be dropped. Returns none once `stop` is set, the source has ended, the
        ring is closed, or, at `deadline`, none is there.
        """
        with self._changed:
            while not (stop.is_set() or self.closed.is_set()):
                self._drop_late()
                if self._waiting and not self._backed_up(held):
                    _, alike = next(groupby(islice(self._waiting, most), lambda frame: type(frame.picture)))
                    return [self._next() for _ in tuple(alike)]
                self._blocked = bool(self._waiting)
                left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
                if left <= 0 or (self.ended and not self._waiting):
                    break
                self._changed.wait(left)
            return []

    def written(self, count: int) -> None:
        """Says that the oldest `count` of the frames that were taken have gone through all stages."""
        now = time.monotonic()
        with self._changed:
            for _ in range(count):
                self.latencies.add(now - self._under_way.popleft())
                self._shown.append(now)
            self._forget(now)
            if self._blocked:  # else a thread that waits for frames would wake up for nothing
                self._changed.notify_all()

    @property
    def waits(self) -> float:
        """Returns how long the oldest frame has waited for the pipeline, 1 for as long as it may."""
        with self._changed:
            return (time.monotonic() - self._waiting[0].arrival) / self._max_delay if self._waiting else 0.0

    @property
    def lost(self) -> bool:
        """Returns whether the source is being connected to again, with no frame left that waits."""
        with self._changed:
            return not (self.up or self.ended or self.closed.is_set() or self._waiting)

    def pausing(self, usual: float) -> bool:
        """Returns whether no frame waits, and the source is lost or silent.

        Silent is one that has sent nothing for `max_delay` seconds, and for `usual` seconds, by which frames are apart.
        """
        with self._changed:
            silence = time.monotonic() - self._newest
            return self.lost or not (self._waiting or silence < max(self._max_delay, usual))

    def counts(self) -> LiveCounts:
        """Returns the figures of this moment."""
        now = time.monotonic()
        with self._changed:
            self._forget(now)
            waiting = len(self._waiting) + len(self._under_way)
            dropped = dict(sorted(self.dropped.items()))
            return LiveCounts(
                up=self.up and not self.ended,
                received=self.received,
                shown=self.received - waiting - sum(dropped.values()),
                waiting=waiting,
                dropped=dropped,
                reconnects=self.reconnects,
                repeated=self.repeated,
                unsent=self.unsent,
                fps=round(len(self._shown) / min(_RECENT, max(now - self._begun, 0.1)), 2),
                latency=self.latencies.summary(),
                late=self.latencies.histogram(),
            )

    def _forget(self, now: float) -> None:
        """Leaves out of the rate what is no longer recent."""
        while self._shown and self._shown[0] < now - _RECENT:
            self._shown.popleft()

    def close(self) -> None:
        """Takes no more frames, and counts those that wait. The source's thread ends with its next packet."""
        with self._changed:
            if self.closed.is_set():
                return
            self.closed.set()
            while self._waiting:
                self._drop("end")
            self._changed.notify_all()
        self.released.wait(_POLL * 4)  # so that a connection that is not silent is closed in the run's time

    def dropped_in(self, written: int) -> dict[str, int]:
        """Returns the frames dropped, by cause, in a run that wrote so many.

        `end` are those that waited, or were on their way through the stages, when the run ended.
        """
        with self._changed:
            causes = self.dropped + Counter(end=self.taken - written)
            return dict(sorted(causes.items()))

    def _backed_up(self, held: int) -> bool:
        under_way = self._under_way
        return len(under_way) > held and under_way[0] < time.monotonic() - self._max_delay

    def _drop_late(self) -> None:
        oldest = time.monotonic() - self._max_delay
        while self._waiting and self._waiting[0].arrival < oldest:
            self._drop("late")

    def _drop(self, cause: str) -> None:
        self._remove()
        self.dropped[cause] += 1

    def _next(self) -> LiveFrame:
        self.taken += 1
        frame = self._remove()
        self._under_way.append(frame.arrival)
        return frame

    def _remove(self) -> LiveFrame:
        frame = self._waiting.popleft()
        self._bytes[frame.on_device] -= frame.size
        return frame
