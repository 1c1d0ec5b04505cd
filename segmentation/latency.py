"""How late frames are."""

import math
from collections import Counter

_LEAST = 0.001  # seconds: what is shorter counts as that
_STEP = 1.05  # from one bucket of the histogram to the next


class Latencies:
    """A histogram of seconds. It does not grow with their number; percentiles are up to 5 % too high."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._most = 0.0

    def add(self, seconds: float) -> None:
        self._buckets[max(0, math.ceil(math.log(max(seconds, _LEAST) / _LEAST, _STEP)))] += 1
        self._most = max(self._most, seconds)

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
