"""Workers on GPUs: the output of one is that of several, on any number of GPUs, and whoever is killed."""

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from native_nvdec import nvdec
from pieced import Made, at_work, files, made
from program import cli, report

from segmentation import Workers, segment

pytestmark = pytest.mark.gpu

OPTIONS: dict[str, Any] = {"mode": "optimized", "preset": "ultrafast"}


@pytest.fixture(scope="module")
def one(long_people: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """What one worker makes, and its folder."""
    folder = tmp_path_factory.mktemp("one")
    with Workers("local:1", **OPTIONS) as workers:
        told = workers.run(long_people, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    assert told.frames == 1200 and told.plan["decode"] == nvdec() and told.redone == 0
    return folder, made(folder)


def test_the_number_of_workers_does_not_show(long_people: Path, one: tuple[Path, Made], tmp_path: Path) -> None:
    """On one GPU both share it; where there are more, each has its own."""
    arguments = ("--optimized", "--preset", "ultrafast", "--workers", "local:2", "--verify", "--json")
    written = ("--results", tmp_path / "out.jsonl", "--save-masks", tmp_path / "out.masks.mkv")
    told = report(cli(long_people, "-o", tmp_path / "out.mp4", *arguments, *written))
    assert told["frames"] == told["verified"]["frames"] == 1200 and told["pieces"] > 1
    assert made(tmp_path) == one[1]


def test_results_and_masks_are_those_of_an_ordinary_run(
    long_people: Path, one: tuple[Path, Made], tmp_path: Path
) -> None:
    segment(long_people, tmp_path / "out.mp4", **files(tmp_path), **OPTIONS)  # type: ignore[arg-type]
    ordinary = made(tmp_path)
    assert (ordinary.results, ordinary.masks) == (one[1].results, one[1].masks)


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_worker_does_not_show(long_people: Path, one: tuple[Path, Made], tmp_path: Path, seed: int) -> None:
    def kill() -> None:
        at_work(os.getpid())
        time.sleep(random.Random(seed).random())
        os.kill(at_work(os.getpid())[0], signal.SIGKILL)

    with Workers("local:2", **OPTIONS) as workers:
        killer = threading.Thread(target=kill)
        killer.start()
        told = workers.run(long_people, tmp_path / "out.mp4", **files(tmp_path))  # type: ignore[arg-type]
        killer.join()
    assert told.frames == 1200 and told.redone > 0 and made(tmp_path) == one[1]
