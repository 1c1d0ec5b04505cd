"""The limits within which an input is read, as the options state them."""

import threading

from segmentation.options.config import Config
from segmentation.options.times import exact
from segmentation.system.access import Access


def access_of(config: Config, stop: threading.Event | None = None) -> Access:
    """Returns the limits that `config` states. Setting `stop` ends reads that wait for data."""
    return Access(
        playlists="playlists" in config.allow,
        private="private" in config.allow,
        max_pixels=config.max_pixels,
        max_duration=None if config.max_duration is None else exact(config.max_duration),
        max_delay=config.max_delay,
        stall=config.stall,
        reconnect=config.pauses,
        stop=stop or threading.Event(),
    )
