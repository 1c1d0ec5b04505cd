"""Server-sent events: what changes is sent when it changes, a few times a second at most."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

_PAUSE = 0.2  # seconds between two events of a stream
_ALIVE = 15.0  # seconds after which a comment shows proxies that the stream is alive


class Changes:
    """Wakes all streams of events. Threads announce."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next = asyncio.Event()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Names the loop on which the streams run."""
        self._loop = loop

    def announce(self) -> None:
        """Says that something has changed."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the server ends
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        before, self._next = self._next, asyncio.Event()
        before.set()

    async def follow(self, now: Callable[[], tuple[object, bool]]) -> AsyncIterator[str]:
        """Yields events with what `now` returns: a value for JSON, and whether it is the last."""
        sent = None
        while True:
            changed = self._next
            value, last = now()
            if value != sent:
                yield f"data: {json.dumps(value)}\n\n"
                sent = value
            if last:
                return
            await asyncio.sleep(_PAUSE)
            while not changed.is_set():
                try:
                    async with asyncio.timeout(_ALIVE):
                        await changed.wait()
                except TimeoutError:
                    yield ": alive\n\n"
