"""The simulation of many GPUs, against what can be calculated."""

import sys
from itertools import pairwise
from typing import Any

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "support"))

from scale_model import Design, Simulation, bounds, with_deaths

# A video of 60 s is three pieces; a GPU takes a second for 30 s of video.
BASE: dict[str, Any] = {"speed": 30.0}


def test_one_gpu_takes_as_long_as_its_work() -> None:
    found = Simulation(Design(gpus=1, start=2.0, begin=0.5, **BASE), [60.0, 20.0, 7.0]).run()
    assert found.seconds == pytest.approx(2.0 + 87 / 30 + 3 * 0.5) and found.pieces == 5
    assert found.gpu_seconds == pytest.approx(87 / 30 + 1.5) and found.limit == "GPUs"


@pytest.mark.parametrize("gpus", [1, 4, 12, 24])
def test_equal_pieces_are_shared_equally(gpus: int) -> None:
    found = Simulation(Design(gpus=gpus, **BASE), [60.0] * 16).run()
    assert found.seconds == pytest.approx(48 / gpus * (2 / 3)) and found.use["GPUs"] == pytest.approx(1)


def test_more_gpus_than_pieces_help_no_further() -> None:
    found = Simulation(Design(gpus=1000, **BASE), [60.0] * 16).run()
    assert found.seconds == pytest.approx(20 / 30)


@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("driver", {"check": 0.01, "plan": 0.02, "plan_second": 0.001}),
        ("storage", {"bytes_in": 10.0, "bytes_out": 5.0, "storage": 2000.0}),
        ("joiners", {"bytes_out": 5.0, "join": 300.0, "joiners": 2}),
        ("GPUs", {"start": 1.0, "begin": 0.1}),
    ],
)
def test_the_slowest_part_decides(part: str, options: dict[str, Any]) -> None:
    design = Design(gpus=100 if part != "GPUs" else 3, **BASE, **options)
    lengths = [60.0] * 1500
    least = bounds(design, lengths)
    found = Simulation(design, lengths).run()
    assert found.limit == part == max(least, key=lambda name: least[name])
    assert least[part] <= found.seconds * 1.0001 and found.seconds == pytest.approx(least[part], rel=0.03)
    assert found.steady == pytest.approx(90_000 / least[part], rel=0.1) or part == "joiners"


def test_all_bytes_are_counted() -> None:
    """Read once by workers; written by these, read and written by the joiner."""
    design = Design(gpus=2, bytes_in=10.0, bytes_out=4.0, **BASE)
    assert Simulation(design, [60.0, 33.0]).run().bytes_moved == pytest.approx(93 * (10 + 3 * 4))


def test_a_worker_waits_for_its_network() -> None:
    found = Simulation(Design(gpus=1, bytes_in=100.0, network=50.0, **BASE), [20.0]).run()
    assert found.seconds == pytest.approx(2000 / 50)


@pytest.mark.parametrize(("between", "restart"), [(10.0, 0.0), (2.0, 5.0)])
def test_deaths_cost_what_they_cost_on_average(between: float, restart: float) -> None:
    lengths = [20.0] * 20_000
    found = Simulation(Design(gpus=1, between_deaths=between, restart=restart, **BASE), lengths).run()
    assert found.seconds / len(lengths) == pytest.approx(with_deaths(20 / 30, between, restart), rel=0.05)
    assert found.deaths > 500


def test_each_gpu_more_is_no_loss() -> None:
    lengths = [float(10 + number % 97) for number in range(500)]
    options: dict[str, Any] = {"check": 0.002, "plan": 0.001, "bytes_in": 1.0, "bytes_out": 1.0, "storage": 1e5}
    seconds = [Simulation(Design(gpus=gpus, **options, **BASE), lengths).run().seconds for gpus in (1, 2, 5, 20, 100)]
    assert all(b <= a * 1.01 for a, b in pairwise(seconds))
