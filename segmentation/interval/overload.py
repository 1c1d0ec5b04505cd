"""Lets the network see fewer frames of a live source while the stages are too slow, before any frame is dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from segmentation.frames import Array, Memory
from segmentation.frames.live_frames import LiveFrames
from segmentation.interval.propagation import FrameBetween, HostPropagation
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult
from segmentation.stages.inference.shared_network import SharedNetwork

log = logging.getLogger(__name__)

T = TypeVar("T")

GAIN = 0.6  # of the network's time: propagation must take less, as the rest of a frame's work stays
_RAISE, _LOWER = 0.4, 0.1  # of `max_delay`: how long the oldest frame waits where the interval is changed
_CALM = (5.0, 60.0)  # seconds without waiting after which a lower interval is tried, at first and at most
_CALLS = 3  # of which the shortest is the time


class IntervalGovernor:
    """Chooses the interval of one live run. It rises to the longest at once, since frames wait, and falls step by step.

    A fall that brings the overload back makes the pause before the next one twice as long.
    """

    def __init__(self, live: LiveFrames, asked: int, most: int) -> None:
        """`asked` frames lie between two that the network sees while there is time, and `most` at the worst."""
        self._live, self._asked, self._most = live, asked, most
        self.interval = asked
        self._changed = self._calm_since = time.monotonic()
        self._calm = _CALM[0]
        self._fell = False  # the last change

    def gap(self) -> int:
        """Returns how many frames there are from one key to the next, by how long frames wait at the moment."""
        now, waits = time.monotonic(), self._live.waits
        if waits > _LOWER:
            self._calm_since = now
        if waits > _RAISE and self.interval < self._most:
            if self._fell:
                self._calm = min(2 * self._calm, _CALM[1])
            self._change(self._most, now)
        elif self.interval > self._asked and now - max(self._calm_since, self._changed) >= self._calm:
            self._change(max((self.interval - 1) // 2, self._asked), now)
        return self.interval + 1

    def _change(self, interval: int, now: float) -> None:
        self._fell = interval < self.interval
        self.interval, self._changed = interval, now
        log.info("the network sees one frame of %d, by how long frames wait", interval + 1)


def governor(live: LiveFrames | None, infer: SharedNetwork, model: Model, config: Config) -> IntervalGovernor | None:
    """Returns what chooses the interval of a run; `None` where `config.interval` stays as it is.

    That is so for files, on a GPU, for networks with states or of single things, and where propagation gains too
    little. Likewise where the effect hides the kept classes: somebody who appears between two keys would be seen.
    """
    if live is None or not may_rise(infer.memory, model, config) or not propagation_gains(infer, model):
        return None
    assert isinstance(config.interval, int)
    return IntervalGovernor(live, config.interval, config.max_interval)


def may_rise(memory: Memory, model: Model, config: Config) -> bool:
    """Returns whether a live run may change its interval, if propagation gains. The network infers in `memory`."""
    if memory != "host" or model.form.recurrent or model.detection is not None or model.batch not in (None, 1):
        return False
    return isinstance(config.interval, int) and not config.invert and config.max_interval > config.interval


def propagation_gains(infer: SharedNetwork, model: Model) -> bool:
    """Returns whether propagating a mask takes much less time than finding one does, as measured here and now."""
    picture = np.zeros((1, 3, model.height, model.width), np.float32)
    propagation = HostPropagation(model)

    def find() -> InferenceResult:
        return infer(picture, 1, _call)

    def propagate() -> None:
        _, (luma,) = propagation.keep(picture, 1)
        propagation.propagate([FrameBetween(luma, (luma, luma), (known, known), 0.5)], doubt=False)

    found = find()
    assert isinstance(found.masks, np.ndarray)
    known = propagation.split(found.masks, found.class_map, 1)[0]
    network, propagated = _shortest(find), _shortest(propagate)
    gains = propagated < GAIN * network
    way = "raises the interval" if gains else "drops frames"
    log.info("the network takes %.1f ms a frame, propagation %.1f: overload %s", 1e3 * network, 1e3 * propagated, way)
    return gains


def _call(infer: Inference, tensor: Array) -> InferenceResult:
    return infer(tensor)


def _shortest(function: Callable[[], T]) -> float:
    """Returns the seconds of the shortest of several calls."""
    times = []
    for _ in range(_CALLS):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)
