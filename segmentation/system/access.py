"""Limits within which an input is opened and read, and the event that ends waiting for a stalled one."""

import threading
from dataclasses import dataclass, field
from fractions import Fraction

from segmentation.errors import InputError

MAX_PIXELS = 16384 * 8192  # of a frame; 8K has a quarter of that, so larger claims are damage or an attack
MAX_DELAY = 0.5  # seconds, of a live source's frames
STALL = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Access:
    """Holds the limits of one run. All of its openings of the input share the object."""

    playlists: bool = False  # whether the input may be a playlist that names other files or addresses
    private: bool = False  # whether redirects and playlists may lead to private addresses
    max_pixels: int = MAX_PIXELS  # of a frame
    max_duration: Fraction | None = None  # seconds
    max_delay: float = MAX_DELAY  # seconds that a live source's frame waits before it is dropped
    stall: float = STALL  # seconds of silence after which a live source is lost
    reconnect: tuple[float, float] | None = None  # seconds between attempts, at first and at most; `None`: no attempt
    stop: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)
    # (IP address, port) of the server that the user named: the only private one that may be connected to again.
    named: set[tuple[str, int]] = field(default_factory=set, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:  # for the encoders' process: events can't be pickled
        return Access, (self.playlists, self.private, self.max_pixels, self.max_duration)


def check_size(width: int, height: int, path: str, most: int) -> None:
    """Raises `InputError` for a size (pixels) beyond the limit, before memory is taken for a frame."""
    if width * height > most:
        raise InputError(f"{path}: claims {width}x{height} pixels; {refused_above(most)}")


def refused_above(most: int) -> str:
    """Returns the words for a limit of pixels, with the option that raises it, if one does."""
    return f"more than {most} are refused" + (" (--max-pixels)" if most < MAX_PIXELS else "")
