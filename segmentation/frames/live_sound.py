"""Sound of a live source on its way to the outputs, which copy its packets as they are."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from av.stream import Stream

_MOST = 1 << 14  # packets that wait for a picture: five minutes of AAC
_START = 30.0  # seconds from the first frame on within which all outputs are open


@dataclass(frozen=True, slots=True)
class SoundPacket:
    """A packet with the time at which it is heard and its length, in seconds on the monotonic clock."""

    data: bytes
    heard: float
    length: float


class LiveSound:
    """Hands the packets of one source to each output. One thread puts them in, others take them."""

    def __init__(self, template: Stream) -> None:
        """`template` describes the codec. It is no stream of the connection, which may be lost."""
        self.template = template
        self.begin: float | None = None  # when the outputs' first frame is shown
        self._waiting: list[deque[SoundPacket]] = []
        self._early: deque[SoundPacket] = deque(maxlen=_MOST)  # for outputs that open while the source sends already
        self._last = float("-inf")
        self._lock = threading.Lock()

    def put(self, packet: SoundPacket) -> None:
        """Adds the newest packet, unless its time is over: after a loss a source may send some a second time."""
        with self._lock:
            if packet.heard <= self._last:
                return
            self._last = packet.heard
            for waiting in self._waiting:
                waiting.append(packet)
            if self.begin is None or packet.heard < self.begin + _START:
                self._early.append(packet)
            else:
                self._early.clear()

    def subscribe(self) -> deque[SoundPacket]:
        """Returns where the packets of one more output wait: from the first on, if it opens at the start."""
        with self._lock:
            waiting = self._early.copy()
            self._waiting.append(waiting)
        return waiting

    def until(self, waiting: deque[SoundPacket], seconds: float) -> Iterator[tuple[float, SoundPacket]]:
        """Yields and removes the packets that are heard before `seconds` of the output, each with its time there.

        Those before the first frame are left out.
        """
        if self.begin is None:
            return
        while waiting and waiting[0].heard - self.begin < seconds:
            packet = waiting.popleft()
            if packet.heard >= self.begin:
                yield packet.heard - self.begin, packet
