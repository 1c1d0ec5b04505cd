"""A loader in a process of its own brings what one in this process brings, and its process ends."""

import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered import damage, numbered
from paths import ROOT

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

import torch
from host_clips import StandInLabel, stand_in

from segmentation.clips import Batch, ClipDataset, ClipLoader, Output
from segmentation.errors import ConfigError, InputError, SegmentationError

LENGTH = 4
OUTPUTS = {
    "input": Output(size=(48, 48), crop="random", flip=True, dtype="float16"),
    "whole": Output(dtype="uint8", layout="HWCNT"),
}


def label(*about: Any) -> Any:
    return about


@pytest.fixture(params=["cpu", "host", pytest.param("cuda", marks=pytest.mark.gpu)])
def side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "host":
        stand_in(monkeypatch)
    yield str(request.param)
    gc.collect()


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for place in range(3):
        numbered(folder / f"{place}.mp4", 40 + 20 * place, options={"g": "12", "bf": "2"}, size=(192, 160))
    return folder


@pytest.fixture
def dataset(side: str, videos: Path) -> ClipDataset:
    return ClipDataset(videos, length=LENGTH, labels=StandInLabel() if side == "host" else label)


def loader(side: str, dataset: ClipDataset, *, process: bool, **options: Any) -> ClipLoader:
    device = "cpu" if side == "cpu" else "cuda"
    return ClipLoader(
        dataset, **{"batch_size": 6, "outputs": OUTPUTS, "window": 2, **options}, device=device, process=process
    )


def equal(first: list[Batch], second: list[Batch]) -> None:
    assert [batch.clips.tolist() for batch in first] == [batch.clips.tolist() for batch in second] != []
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys() and one.video == other.video and one.first.tolist() == other.first.tolist()
        assert one.windows == other.windows and one.labels == other.labels and np.array_equal(one.pts, other.pts)
        for name, array in one.items():
            assert type(array) is type(other[name]) and array.dtype == other[name].dtype
            assert np.array_equal(
                *(np.asarray(a.cpu() if isinstance(a, torch.Tensor) else a) for a in (array, other[name]))
            )


@pytest.mark.parametrize("shuffle", ["pool", "full"])
def test_batches_are_the_same(side: str, dataset: ClipDataset, shuffle: Any) -> None:
    """All are kept, so that memory which is used again too early shows."""
    own, plain = (loader(side, dataset, process=process, shuffle=shuffle, drop_last=False) for process in (True, False))
    equal([*own, *own], [*plain, *plain])
    assert own.state_dict() == plain.state_dict()


def test_it_goes_on_where_another_stood(side: str, dataset: ClipDataset) -> None:
    plain, own, resumed = (loader(side, dataset, process=process) for process in (False, True, True))
    whole = [*plain, *plain]
    assert len(plain) == 7
    equal(list(islice(own, 2)), whole[:2])
    equal(list(islice(own, 3)), whole[2:5])  # of what was asked for before, nothing is left
    resumed.load_state_dict(own.state_dict())
    equal([*resumed, *resumed], whole[5:])
    begun = iter(own)
    next(begun)
    own.set_epoch(1)
    equal(list(own), whole[7:])
    with pytest.raises(ConfigError, match="another iteration has begun"):
        next(begun)


def test_few_arrays_are_shared(side: str, dataset: ClipDataset) -> None:
    """Those of an iteration that is left on the way are written to again, too."""
    if side == "cpu":
        pytest.skip("each batch has memory of its own")
    own: Any = loader(side, dataset, process=True)
    for _ in range(6):
        for _ in islice(own, 2):
            pass
    for _ in range(2):
        list(own)
    assert len(own.maker._shared._arrays) <= len(OUTPUTS) * 3


@pytest.mark.parametrize("on_error", ["raise", "skip", "repeat"])
def test_damage(side: str, tmp_path: Path, on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = numbered(tmp_path / "a.mp4", 48, options={"g": "8", "bf": "0"}, size=(192, 160))
    dataset = ClipDataset(path, length=8, labels=StandInLabel() if side == "host" else None)
    damage(path, 9)
    options = {"batch_size": 3, "shuffle": False, "on_error": on_error}
    own, plain = (loader(side, dataset, process=process, **options) for process in (True, False))
    if on_error == "raise":
        for _ in range(2):
            with pytest.raises(InputError, match=r"frame 9 can't be decoded") as caught:
                list(own)
            assert "\n" not in str(caught.value) and own.state_dict()["batch"] == 0
        return
    with caplog.at_level(logging.WARNING, "segmentation.clips.loader"):
        found = list(own)
    assert sum("clip 1 is left out" in line for line in caplog.messages) == 1
    equal(found, list(plain))
    assert own.damaged == plain.damaged and list(own.damaged) == [1]


def test_its_process_ends_with_it(side: str, dataset: ClipDataset) -> None:
    own: Any = loader(side, dataset, process=True)
    process = own._process.process
    batches = iter(own)
    kept = next(batches)
    assert process.is_alive()
    del own, batches
    gc.collect()
    process.join(60)
    assert process.exitcode == 0
    equal([kept], [next(iter(loader(side, dataset, process=False)))])


PROGRAM = """
import os, signal, sys
from segmentation.clips import ClipDataset, ClipLoader

if __name__ == "__main__":
    loader = ClipLoader(ClipDataset(sys.argv[1], length=4), 6, process=True)
    batch = next(iter(loader))
    print(loader._process.process.pid, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["returns", "killed"])
def test_its_process_ends_with_the_program(videos: Path, tmp_path: Path, end: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(videos), end]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert run.returncode == (0 if end == "returns" else -signal.SIGKILL) and not run.stderr
    status = Path("/proc", run.stdout.strip(), "stat")
    deadline = time.monotonic() + 60
    while status.exists() and status.read_text().split()[2] != "Z":  # which nobody may wait for here
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)


def test_a_process_that_is_killed_is_one_line(videos: Path) -> None:
    own: Any = ClipLoader(ClipDataset(videos, length=LENGTH), 6, process=True)
    batches = iter(own)
    next(batches)
    own._process.process.kill()
    with pytest.raises(SegmentationError, match=r"^the process of the clips has ended \(exit code -9\)$"):
        list(batches)
    with pytest.raises(SegmentationError, match=r"^the process of the clips has ended \(exit code -9\)$"):
        list(own)


def failing(*about: Any) -> Any:
    raise LookupError("no label")


def test_an_error_of_the_program_says_where_it_was(videos: Path) -> None:
    own = ClipLoader(ClipDataset(videos, length=LENGTH, labels=failing), 6, process=True)
    with pytest.raises(LookupError, match="no label") as caught:
        list(own)
    assert "in failing" in caught.value.__notes__[0]


def test_labels_that_can_not_be_sent(videos: Path) -> None:
    with pytest.raises(ConfigError, match="labels must be a function of a module") as caught:
        ClipLoader(ClipDataset(videos, length=LENGTH, labels=lambda *about: None), 6, process=True)
    assert "\n" not in str(caught.value)
