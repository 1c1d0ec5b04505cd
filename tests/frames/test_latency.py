"""Percentiles from a histogram are those of all numbers, but for the width of a bucket."""

import random

import pytest

from segmentation.frames.latency import BOUNDS, Latencies


def test_percentiles_are_at_most_a_bucket_too_high() -> None:
    latencies, random_ = Latencies(), random.Random(1)
    seconds = [random_.lognormvariate(-3, 1) for _ in range(5000)]
    for one in seconds:
        latencies.add(one)
    seconds.sort()
    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = seconds[max(0, round(share * len(seconds)) - 1)]
        assert exact <= latencies.percentile(share) <= exact * 1.051
    assert latencies.summary()["max"] == round(seconds[-1], 4)
    assert list(latencies.summary()) == ["p50", "p95", "p99", "max"]


def test_one_number_is_every_percentile() -> None:
    latencies = Latencies()
    latencies.add(0.25)
    assert set(latencies.summary().values()) == {0.25}


def test_what_is_short_or_early_counts_as_a_millisecond() -> None:
    latencies = Latencies()
    latencies.add(0.0)
    latencies.add(-1.0)
    assert latencies.percentile(0.99) == 0.001 and latencies.summary()["max"] == 0.0


def test_nothing_has_no_percentiles() -> None:
    assert Latencies().summary() == {}
    with pytest.raises(ValueError, match="nothing"):
        Latencies().percentile(0.5)


def test_a_histogram_counts_up_to_each_bound() -> None:
    latencies = Latencies()
    for seconds in (0.002, 0.004, 0.03, 0.15, 0.15, 7.0):
        latencies.add(seconds)
    found = latencies.histogram()
    assert dict(zip(BOUNDS, found.up_to, strict=True)) == {
        0.01: 2, 0.025: 2, 0.05: 3, 0.1: 3, 0.15: 3, 0.2: 5, 0.3: 5, 0.5: 5, 1.0: 5, 2.0: 5, 5.0: 5
    }  # fmt: skip
    assert found.number == 6 and found.total == pytest.approx(7.336)
