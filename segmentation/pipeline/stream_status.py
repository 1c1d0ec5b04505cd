"""Reports the live runs of a session while they are under way: figures and small pictures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

import cv2
import numpy as np

from segmentation.errors import hide_secrets, one_line
from segmentation.frames import FORMATS, Planes, VideoInfo
from segmentation.frames.latency import Histogram, Latencies
from segmentation.frames.live_frames import FrameCounts
from segmentation.frames.source import Source
from segmentation.media.planes import rgb_of
from segmentation.pipeline.report import Report

State: TypeAlias = Literal["connecting", "up", "lost", "ended", "failed"]

_WIDTH = 640  # pixels of a small picture, at most
_QUALITY = 70  # of its JPEG
_PAUSE = 0.4  # seconds from one small picture to the next, at least
_KEPT = 100  # runs that have ended and are still told of


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus(FrameCounts):
    """One live source at this moment, with the counts of its frames."""

    name: str
    address: str  # without user and password
    state: State  # `lost` while it is connected to again
    error: str = ""  # one line, of a run that has failed
    width: int = 0  # pixels, as stored; 0 before the first frame
    height: int = 0
    seconds: float = 0.0  # since the run began


class StreamMonitor:
    """Holds the figures of one run. The run's threads write them, and others read."""

    def __init__(self, source: Source) -> None:
        self.name = source.label
        self.ended = False
        self._status = StreamStatus(name=self.name, address=hide_secrets(source.address), state="connecting")
        self._begin = time.monotonic()
        self._info: VideoInfo | None = None
        self._video = True  # whether there is an output to look at
        self._wanted = 0.0  # until when somebody looks at small pictures
        self._made = 0.0  # when the last one was made
        self._planes: tuple[Planes, str] | None = None  # of the last one, with their layout
        self._changed = threading.Condition()

    def opened(self, info: VideoInfo, *, video: bool) -> None:
        """The source has sent its first frame. Without a `video` nothing is shown: the input has what effects hide."""
        self._info, self._video = info, video

    def finished(self, report: Report) -> None:
        """The run has ended."""
        counts = {"received": report.received, "shown": report.frames, "dropped": report.dropped, "waiting": 0}
        counts |= {
            "reconnects": report.reconnects,
            "repeated": report.repeated,
            "unsent": report.unsent,
            "latency": report.latency,
        }
        self._end(state="ended", **counts)

    def failed(self, error: BaseException) -> None:
        """The run has failed."""
        self._end(state="failed", error=hide_secrets(one_line(error)))

    def _end(self, **last: object) -> None:
        self._status = replace(self.status(), fps=0.0, **last)  # type: ignore[arg-type]
        self.ended = True
        with self._changed:
            self._changed.notify_all()

    def status(self) -> StreamStatus:
        """Returns the figures of this moment."""
        info = self._info
        if self.ended:
            return self._status
        seconds = round(time.monotonic() - self._begin, 1)
        if info is None or info.live is None:
            return replace(self._status, seconds=seconds)
        counts = info.live.counts()
        return replace(
            self._status,
            state="up" if counts.up else "lost",
            width=info.width,
            height=info.height,
            seconds=seconds,
            **{each.name: getattr(counts, each.name) for each in fields(FrameCounts)},
        )

    @property
    def late(self) -> Histogram:
        """How late frames were."""
        live = None if self._info is None else self._info.live
        return Latencies().histogram() if live is None else live.counts().late

    @property
    def wants_picture(self) -> bool:
        """Whether somebody looks, and the last small picture is old: making one takes the run some time."""
        now = time.monotonic()
        return now < self._wanted and now - self._made >= _PAUSE

    def show(self, planes: Planes, pix_fmt: str) -> None:
        """Takes a frame of the first output, on the host."""
        y, u, v = planes[:3]  # without the alpha of a cut-out
        small = (_small((y, u, v), pix_fmt), pix_fmt)
        with self._changed:
            self._planes, self._made = small, time.monotonic()
            self._changed.notify_all()

    def jpeg(self, patience: float) -> bytes | None:
        """Returns the output as a small JPEG, no older than a moment if one comes within `patience` seconds.

        Returns the last one, or `None` if there was none, if the source is silent. Without a video there is none.
        """
        if not self._video:
            return None
        begin = time.monotonic()
        with self._changed:
            self._wanted = begin + 2 * patience
            self._changed.wait_for(lambda: self.ended or begin - self._made < _PAUSE, patience)
            found = self._planes
        if found is None or self._info is None:
            return None
        (y, u, v), pix_fmt = found
        info = replace(self._info, width=y.shape[1], height=y.shape[0])
        rgb = rgb_of((y, u, v), pix_fmt, info)
        done, data = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), (cv2.IMWRITE_JPEG_QUALITY, _QUALITY))
        return data.tobytes() if done else None


def _small(planes: Planes, pix_fmt: str) -> Planes:
    """Returns copies of planes of the same layout, at most `_WIDTH` wide."""
    height, width = planes[0].shape
    scale = min(1.0, _WIDTH / width)
    shapes = FORMATS[pix_fmt].shapes(max(1, round(width * scale)), max(1, round(height * scale)))

    y, u, v = (
        np.asarray(cv2.resize(plane, shape[::-1], interpolation=cv2.INTER_AREA))
        for plane, shape in zip(planes, shapes, strict=True)
    )
    return y, u, v


class StreamBoard:
    """The monitors of a session's live runs, each under the name of its source."""

    def __init__(self, monitor: Callable[[Source], StreamMonitor] = StreamMonitor) -> None:
        """`monitor` makes the monitor of a run from its source."""
        self._monitor = monitor
        self._monitors: dict[str, StreamMonitor] = {}
        self._lock = threading.Lock()

    def begin(self, source: Source) -> StreamMonitor:
        """Returns the monitor of a new run, in the place of an earlier one of this name."""
        monitor = self._monitor(source)
        with self._lock:
            self._monitors.pop(monitor.name, None)
            self._monitors[monitor.name] = monitor
            ended = [name for name, other in self._monitors.items() if other.ended]
            for name in ended[:-_KEPT]:
                del self._monitors[name]
        return monitor

    @contextmanager
    def watch(self, source: Source) -> Iterator[StreamMonitor]:
        """Yields the monitor of a new run, which fails if the context does."""
        monitor = self.begin(source)
        try:
            yield monitor
        except BaseException as exc:
            monitor.failed(exc)
            raise

    def forget_failed(self, name: str) -> bool:
        """Removes the monitor of this name if its run has failed. Returns whether there was one."""
        with self._lock:
            monitor = self._monitors.get(name)
            failed = monitor is not None and monitor.status().state == "failed"
            if failed:
                del self._monitors[name]
        return failed

    def get(self, name: str) -> StreamMonitor | None:
        """Returns the monitor of this name, if there is one."""
        return self._monitors.get(name)

    @property
    def monitors(self) -> list[StreamMonitor]:
        """Returns all monitors, the oldest first."""
        with self._lock:
            return list(self._monitors.values())
