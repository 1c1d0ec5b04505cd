"""Times of a live source's frames on the clock of this machine."""

# Seconds between a frame's arrival and its own time from which on that is not believed. Many servers begin with the
# group of pictures that they have, all at once: its frames are early.
_LATE, _EARLY = 2.0, 10.0
_STEP = 0.001  # seconds: the tick of Matroska


class ArrivalClock:
    """Gives frames strictly rising times in seconds on the monotonic clock.

    The first frame of a connection is shown when it arrives, and those after it as long after it as their pts say. So
    their distance is free of the network's jitter, and a gap between two connections stays a gap.
    """

    def __init__(self) -> None:
        self._offset: float | None = None  # seconds from the source's clock to this machine's
        self._last: float | None = None

    def restart(self) -> None:
        """Begins a new connection, whose pts have nothing to do with those before."""
        self._offset = None

    def place(self, pts: float | None, arrival: float) -> float:
        """Returns when the next frame is shown. `pts` in seconds; `None`, as of RTSP's first frame, is its arrival."""
        shown = arrival
        if pts is not None:
            if self._offset is None or not -_LATE <= pts + self._offset - arrival <= _EARLY:
                self._offset = arrival - pts
            shown = pts + self._offset
        if self._last is not None:
            shown = max(shown, self._last + _STEP)
        self._last = shown
        return shown

    def beside(self, pts: float) -> float | None:
        """Returns when sound of this time is heard; `None` before the connection's first frame with a time."""
        return None if self._offset is None else pts + self._offset
