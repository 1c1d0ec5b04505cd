"""Times of a live source's frames on the clock of this machine."""

# Seconds between a frame's arrival and its own time from which on that is not believed. Many servers begin with the
# group of pictures that they have, all at once: its frames are early.
_LATE, _EARLY = 2.0, 10.0
_PATIENCE = 5.0  # seconds for which frames may be that late: after a stall the connection brings them all at once
_STEP = 0.001  # seconds: the tick of Matroska


class ArrivalClock:
    """Gives frames strictly rising times in seconds on the monotonic clock.

    The first frame of a connection is shown when it arrives, and those after it as long after it as their pts say. So
    their distance is free of the network's jitter, and a gap between two connections stays a gap.
    """

    def __init__(self) -> None:
        self._offset: float | None = None  # seconds from the source's clock to this machine's
        self._late_since: float | None = None  # arrival from which on all frames have come late
        self._pts: float | None = None  # of the last frame that had one
        self._last: float | None = None

    def restart(self) -> None:
        """Begins a new connection, whose pts have nothing to do with those before."""
        self._offset = self._pts = None

    def place(self, pts: float | None, arrival: float) -> float:
        """Returns when the next frame is shown. `pts` in seconds; `None`, as of RTSP's first frame, is its arrival."""
        shown = arrival
        if pts is not None:
            if self._offset is None or not self._believed(pts, arrival - pts - self._offset, arrival):
                self._offset, self._late_since = arrival - pts, None
            self._pts = pts
            shown = pts + self._offset
        if self._last is not None:
            shown = max(shown, self._last + _STEP)
        self._last = shown
        return shown

    def beside(self, pts: float) -> float | None:
        """Returns when sound of this time is heard; `None` before the connection's first frame with a time."""
        return None if self._offset is None else pts + self._offset

    def _believed(self, pts: float, late: float, arrival: float) -> bool:
        """Returns whether the source's clock goes with this one: it has not jumped, nor fallen behind for long."""
        if late <= _LATE:
            self._late_since = None
            return late >= -_EARLY
        if self._late_since is None:
            self._late_since = arrival
        jumped = self._pts is not None and pts < self._pts
        return not jumped and arrival - self._late_since < _PATIENCE
