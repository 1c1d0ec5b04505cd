"""How late frames are."""

import math
from collections import Counter
from typing import NamedTuple

_LEAST = 0.001  # seconds: what is shorter counts as that
_STEP = 1.05  # from one bucket of the histogram to the next


BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)  # seconds, of `Histogram`


class Histogram(NamedTuple):
    """How many latencies there are up to each of `BOUNDS`, how many in all, and their sum in seconds."""

    up_to: tuple[int, ...]
    number: int
    total: float


class Latencies:
    """A histogram of seconds. It does not grow with their number; percentiles are up to 5 % too high."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._most = self._total = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[max(0, math.ceil(math.log(max(seconds, _LEAST) / _LEAST, _STEP)))] += 1
        self._most = max(self._most, seconds)
        self._total += seconds

    def percentile(self, share: float) -> float:
        """Returns the seconds that so large a share of all do not exceed. Raises `ValueError` if there are none."""
        wanted, count = share * self._buckets.total(), 0
        for bucket in sorted(self._buckets):
            count += self._buckets[bucket]
            if count >= wanted:
                return float(min(_LEAST * _STEP**bucket, max(self._most, _LEAST)))
        raise ValueError("nothing was added")

    def summary(self) -> dict[str, float]:
        """Returns `p50`, `p95`, `p99` and `max` in seconds; nothing if nothing was added."""
        if not self._buckets:
            return {}
        found = {f"p{share}": self.percentile(share / 100) for share in (50, 95, 99)} | {"max": self._most}
        return {name: round(seconds, 4) for name, seconds in found.items()}

    def histogram(self) -> Histogram:
        """Returns the buckets gathered up to each of `BOUNDS`; a bucket at a bound counts as above it."""
        reach = [(_LEAST * _STEP**bucket, count) for bucket, count in self._buckets.items()]
        up_to = (sum(count for seconds, count in reach if seconds <= bound) for bound in BOUNDS)
        return Histogram(tuple(up_to), self._buckets.total(), self._total)
