"""The rule of `auto`: how many inputs are under way at a time, and how many processes share them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from videos import Synthetic

from segmentation import Config
from segmentation.cli.arguments import parse
from segmentation.cli.inputs.find_inputs import FoundInput
from segmentation.cli.inputs.jobs import make_jobs
from segmentation.cli.main import main
from segmentation.cli.plan import parallelism_of
from segmentation.frames.source import Source
from segmentation.gpu.discovery import find_gpu
from segmentation.pipeline.planning import parallelism
from segmentation.pipeline.planning.parallelism import Workload, choose_parallelism

GIB = 1 << 30
ONE = {"gpus": 1, "cores": 16, "memory": 80 * GIB, "encoded": False}
TWO = ONE | {"gpus": 2, "cores": 32}


@pytest.mark.parametrize(
    ("load", "processes"),
    [
        # as measured: short videos, long ones, two GPUs
        (ONE | {"videos": 2_000, "frames": 30_000}, 3),
        (ONE | {"videos": 25, "frames": 60_000}, 2),
        (TWO | {"videos": 2_000, "frames": 30_000}, 6),
        (TWO | {"videos": 40, "frames": 120_000, "encoded": True}, 2),
        # less work than the start of a process would be worth
        (ONE | {"videos": 1, "frames": 1_000_000}, 1),
        (ONE | {"videos": 4, "frames": 9_600}, 1),
        (ONE | {"videos": 60, "frames": 5_400}, 1),
        (ONE | {"videos": 300, "frames": 9_000}, 3),
        (ONE | {"videos": 4, "frames": 60_000}, 2),
        # no room for another one
        (ONE | {"videos": 25, "frames": 60_000, "encoded": True}, 1),
        (ONE | {"videos": 25, "frames": 60_000, "cores": 8}, 1),
        (ONE | {"videos": 25, "frames": 60_000, "memory": 8 * GIB}, 1),
        ({"gpus": 0, "cores": 64, "memory": 0, "videos": 2_000, "frames": 30_000}, 1),
        # cameras
        (ONE | {"live": 8}, 1),
        (ONE | {"live": 16}, 4),
        ({"gpus": 0, "cores": 64, "memory": 0, "live": 16}, 1),
    ],
)
def test_processes_by_load_and_machine(load: dict[str, Any], processes: int) -> None:
    number, reason = Workload(**load).processes()
    assert number == processes and reason


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"mode": "baseline"}, {"device": "cuda:99"}])
def test_without_a_gpu_inputs_take_turns(options: dict[str, Any]) -> None:
    chosen = choose_parallelism(Config(**options), [Source.parse(f"{number}.mp4") for number in range(1000)])
    assert (chosen.jobs, chosen.processes) == (1, 1)
    assert str(chosen) == "1 at a time in one process: without a GPU one input fills the cores"


def test_live_sources_are_all_under_way() -> None:
    sources = [Source.parse(f"rtsp://camera/{number}") for number in range(7)]
    assert choose_parallelism(Config(device="cpu"), sources).jobs == 7


def test_given_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 2)
    for jobs, processes, chosen in [(25, "auto", (25, 1)), (25, 3, (25, 3)), ("auto", 3, (12, 3)), ("auto", 1, (5, 1))]:
        found = choose_parallelism(Config(), (), jobs, processes)  # type: ignore[arg-type]
        assert (found.jobs, found.processes, found.reason) == (*chosen, "as given")


def test_lengths_are_those_of_the_video_of_middle_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 1)
    seen: list[Workload] = []
    monkeypatch.setattr(Workload, "processes", lambda load: (seen.append(load), (1, ""))[1])
    video = Synthetic(size=(64, 48), pts=range(30)).write(tmp_path / "0.mkv")
    for number in range(1, 5):
        (tmp_path / f"{number}.mkv").write_bytes(video.read_bytes())
    (tmp_path / "still.png").write_bytes(bytes(9))  # takes no time of a process of its own
    sources = [Source.parse(path) for path in sorted(tmp_path.iterdir())]
    choose_parallelism(Config(), sources)
    choose_parallelism(Config(video=False, results="x.jsonl"), sources[:4])
    choose_parallelism(Config(max_frames=3), sources)
    choose_parallelism(Config(), [*sources, Source.parse("-")])
    assert [(load.videos, load.frames, load.encoded) for load in seen] == [
        *((5, 150, True), (4, 120, False), (5, 0, True)),
        (0, 0, True),  # a pipe can't go to another process
    ]


def test_the_plan_says_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", "--device", "cpu", "--jobs", "3"]) == 0
    assert "inputs       3 at a time in one process: as given" in capfd.readouterr().out
    for options, said in [((), {"jobs": 1, "processes": 1}), (("--workers", "local:2"), {"workers": "local:2"})]:
        assert main(["--plan", "--json", "--device", "cpu", *options]) == 0
        assert json.loads(capfd.readouterr().out).items() >= said.items()
    assert main(["--plan", "--device", "cpu", "--workers", "local:2"]) == 0
    assert "two at a time for each of the workers local:2" in capfd.readouterr().out


def test_pipes_stay_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _gpus(monkeypatch, 1)
    cameras, config, options = [f"rtsp://camera/{number}" for number in range(9)], Config(), parse(["--quiet"])
    for extra, target, processes in [(cameras[0], "{name}.mkv", 2), ("-", "{name}.mkv", 1), (cameras[0], "{name}", 1)]:
        os.mkfifo(tmp_path / "camera-0") if target == "{name}" else None
        inputs = [FoundInput(Source.parse(text)) for text in [*cameras[1:], extra]]
        jobs = make_jobs(inputs, f"{tmp_path}/{target}", config)
        assert parallelism_of(options, config, jobs).processes == processes


@pytest.mark.skipif(find_gpu() is None, reason="no NVIDIA GPU")
def test_a_gpu_gets_five_inputs() -> None:
    assert choose_parallelism(Config()).jobs == 5


@pytest.mark.parametrize(
    ("live", "processes", "gpus", "given", "frames"),
    [
        (8, 1, 1, None, None),
        (9, 1, 1, None, 16),
        (9, 2, 1, None, None),
        (17, 2, 1, None, 16),
        (32, "auto", 1, None, None),
        (32, 1, 1, 4, 4),
        (32, 1, 0, None, None),
    ],
)
def test_many_live_sources_in_a_process_have_larger_batches(
    live: int, processes: Any, gpus: int, given: int | None, frames: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _gpus(monkeypatch, gpus)
    sources, config = [Source.parse(f"rtsp://camera/{number}") for number in range(live)], Config(batch_size=given)
    assert choose_parallelism(config, sources, "auto", processes).applied(config).batch_size == frames


def _gpus(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(parallelism, "may_use_gpu", lambda config: True)
    monkeypatch.setattr(parallelism, "visible_gpus", lambda config: [str(gpu) for gpu in range(number)])
