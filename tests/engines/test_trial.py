"""The trial of an engine before it serves: what fails it, what is kept of it, and when it is made again."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import make_model, model_of, unbuildable
from numpy.typing import NDArray
from paths import DATA, ROOT

from engines import ADA, RTX, Engine, Rival, place, spec_of
from segmentation.engines import trial
from segmentation.engines.build import obtain
from segmentation.engines.spec import EngineSpec
from segmentation.engines.trial import Measured, try_engine
from segmentation.engines.variant import installed
from segmentation.engines.verdict import DECLINED, FAILED, PROVEN, Verdict, VerdictFile
from segmentation.errors import EngineError, NotProven, UnknownOperator
from segmentation.models.model import Model
from segmentation.models.sidecar import read_sidecar

pytestmark = pytest.mark.usefixtures("folder")  # engines of these tests go there, and not among the user's

BATCH = 4


@pytest.fixture
def model() -> Model:
    return model_of(DATA / "bright-dynamic.onnx")


@pytest.fixture
def spec(model: Model) -> EngineSpec:
    """Of an engine that is there already."""
    spec = spec_of(model)
    place(spec)
    return spec


def kept(folder: Path) -> list[Path]:
    """Returns the verdicts in a folder. Nothing else may be left beside the engines."""
    assert {path.suffix for path in folder.iterdir()} <= {".engine", ".json"}
    return sorted(folder.glob("*.verdict.json"))


def test_a_right_engine_is_proven_once(spec: EngineSpec, model: Model, folder: Path) -> None:
    engine, rival = Engine(model, milliseconds=0.8), Rival(1.0)
    verdict = try_engine(spec, BATCH, engine, rival)
    assert (verdict.outcome, verdict.reason, verdict.iou) == (PROVEN, "", 1.0)
    assert (verdict.tensorrt_ms, verdict.torch_fp16_ms, verdict.pictures) == (0.8, 1.0, BATCH + 1)
    assert verdict.covered is not None and 0.02 < verdict.covered < 0.98
    assert try_engine(spec, BATCH, engine, rival) == verdict == VerdictFile(spec, BATCH).read()
    assert (engine.calls, rival.calls) == (1, 1)
    (path,) = kept(folder)
    assert path.name == spec.file_name.removesuffix("engine") + "nvidia-geforce-rtx-4090-b4.verdict.json"
    content = json.loads(path.read_text())
    assert content["about"]["plan_sha256"] == read_sidecar(folder / spec.file_name).plan_sha256
    assert content["about"]["gpu"] == str(ADA) and content["about"]["variant"] == str(RTX)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("load", "the engine can't be loaded"),
        ("run", "RuntimeError: IExecutionContext::enqueueV3: Error Code 1: Myelin"),
        ("fault", "RuntimeError: CUDA error: an illegal memory access was encountered"),
        ("assertion", "AssertionError: AssertionError"),
        ("NaN", "its masks agree with FP32 only to an IoU of 0.0000 (0.995 is needed)"),
        ("one NaN", "its masks agree with FP32 only to an IoU of 0.0000 (0.995 is needed)"),
        ("zeros", "its masks agree with FP32 only to an IoU of 0.0000 (0.995 is needed)"),
        ("slightly off", "its masks agree with FP32 only to an IoU of 0.990"),
        ("mixed up", "its masks agree with FP32 only to an IoU of 0."),
        ("another size", "its masks are (5, 47, 64), those of FP32 (5, 48, 64)"),
    ],
)
def test_an_engine_that_fails(spec: EngineSpec, model: Model, folder: Path, way: str, reason: str) -> None:
    engine, rival = Engine(model, way), Rival()
    verdict = try_engine(spec, BATCH, engine, rival)
    assert verdict.outcome == FAILED and verdict.reason.startswith(reason)
    assert try_engine(spec, BATCH, engine, rival) == verdict  # from the file
    assert (engine.calls, rival.calls) == (1, 0) and len(kept(folder)) == 1


def test_rounding_does_not_fail_an_engine(spec: EngineSpec, model: Model) -> None:
    verdict = try_engine(spec, BATCH, Engine(model, "nearly right"), Rival())
    assert verdict.outcome == PROVEN and verdict.iou is not None and 0.995 < verdict.iou < 0.997


def test_the_engine_runs_whole_batches_and_one_that_is_not(spec: EngineSpec, model: Model) -> None:
    counts = []

    def engine(path: Path, pictures: NDArray[np.floating]) -> Measured:
        counts.append(len(pictures))
        return Engine(model)(path, pictures)

    assert [try_engine(spec, batch, engine, Rival()).outcome for batch in (1, 3, 16)] == [PROVEN] * 3
    assert counts == [5, 5, 17]


@pytest.mark.parametrize(("milliseconds", "outcome"), [(1.04, PROVEN), (1.06, DECLINED)])
def test_a_slower_engine_is_declined(spec: EngineSpec, model: Model, milliseconds: float, outcome: str) -> None:
    verdict = try_engine(spec, BATCH, Engine(model, milliseconds=milliseconds), Rival(1.0))
    assert verdict.outcome == outcome
    assert outcome == PROVEN or verdict.reason == "it takes 1.06 ms for a batch, and torch-fp16 1.00 ms"


def test_without_a_rival_the_masks_decide(spec: EngineSpec, model: Model) -> None:
    """Such as a network with an operator that PyTorch lacks."""
    verdict = try_engine(spec, BATCH, Engine(model, milliseconds=1e3), Rival(UnknownOperator("PyTorch has no Foo")))
    assert (verdict.outcome, verdict.torch_fp16_ms) == (PROVEN, None)
    assert "torch-fp16: can't run it" in str(verdict)


@pytest.mark.parametrize("way", ["right", "zeros"])
def test_pictures_without_a_mask_prove_nothing(tmp_path: Path, way: str) -> None:
    model = model_of(make_model(tmp_path / "m.onnx", [[0.1, 0, 0]], bias=[-3.0], activation="Sigmoid"))
    place(spec_of(model))
    verdict = try_engine(spec_of(model), BATCH, Engine(model, way), Rival())
    assert verdict.outcome == DECLINED and "prove nothing" in verdict.reason


def test_full_memory_and_interrupts_are_no_verdict(spec: EngineSpec, model: Model, folder: Path) -> None:
    """The session tries again with half the batch."""
    for way, error in (("memory", RuntimeError), ("interrupt", KeyboardInterrupt)):
        with pytest.raises(error):
            try_engine(spec, BATCH, Engine(model, way), Rival())
        assert kept(folder) == []
    for fault, raised in (("CUDA out of memory", RuntimeError), ("CUDA error: unspecified launch failure", NotProven)):
        with pytest.raises(raised, match=fault.split()[-1]):
            try_engine(spec, BATCH, Engine(model), Rival(RuntimeError(fault)))
        assert kept(folder) == []
    assert try_engine(spec, BATCH, Engine(model), Rival()).outcome == PROVEN


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()], ids=["disk", "memory"])
def test_what_passes_is_no_verdict(
    spec: EngineSpec, model: Model, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise EngineError("e.engine: cannot be made") from error

    with monkeypatch.context() as patched:
        patched.setattr(trial, "obtain", fails)
        with pytest.raises(NotProven, match=r"engine not tried: e\.engine: cannot be made"):
            try_engine(spec, BATCH, Engine(model), Rival())
    assert kept(folder) == []
    assert try_engine(spec, BATCH, Engine(model), Rival()).outcome == PROVEN


def test_a_process_that_dies_of_the_engine_leaves_a_verdict(spec: EngineSpec, model: Model, folder: Path) -> None:
    """TensorRT is native code, which may end the process. The next start is to work."""
    program = (
        "import os, sys; sys.path.insert(0, 'tests/support')\n"
        "from engines import spec_of\nfrom networks import model_of\n"
        "from segmentation.engines.trial import try_engine\n"
        f"spec = spec_of(model_of({str(model.path)!r}))\n"
        f"try_engine(spec, {BATCH}, lambda path, pictures: os.abort(), None)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -6, done.stderr
    engine = Engine(model)
    for _ in range(2):
        verdict = try_engine(spec, BATCH, engine, Rival())
        assert verdict.outcome == FAILED and "the process ended when the engine first ran" in str(verdict)
    assert engine.calls == 0
    for path in folder.glob("*.verdict.json"):
        path.unlink()
    assert try_engine(spec, BATCH, engine, Rival()).outcome == PROVEN


def test_of_two_trials_at_once_one_is_made(spec: EngineSpec, model: Model) -> None:
    begun = threading.Barrier(2, timeout=240)
    engine = Engine(model)

    def both(_: int) -> Verdict:
        begun.wait()
        return try_engine(spec, BATCH, engine, Rival())

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(both, range(2))
    assert first == second and engine.calls == 1


def test_a_folder_that_cannot_be_written(spec: EngineSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEGMENTATION_ENGINES", str(tmp_path / "file" / "engines"))
    with pytest.raises(
        NotProven, match=r"verdict\.json: cannot be written \(Not a directory\); name a folder .* SEGMENTATION_ENGINES$"
    ):
        try_engine(spec, BATCH, Engine(spec.model), Rival())


# Engines that are built for their trial


def counted_builds(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    builds: list[None] = []

    def counting(spec: EngineSpec, *, verify: bool) -> tuple[Path, bool]:
        builds.append(None)
        return obtain(spec, verify=verify)

    monkeypatch.setattr(trial, "obtain", counting)
    return builds


def test_a_build_that_fails_is_not_tried_again(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an operator that TensorRT-RTX lacks, or because TensorRT-RTX is not here."""
    model = model_of(unbuildable(tmp_path / "m.onnx"))
    builds, engine = counted_builds(monkeypatch), Engine(model)
    spec = spec_of(model)
    verdict = try_engine(spec, BATCH, engine, Rival())
    assert verdict.outcome == FAILED
    wanted = "can't be built by TensorRT-RTX" if "tensorrt_rtx" in installed() else "No module named 'tensorrt_rtx'"
    assert wanted in verdict.reason and "\n" not in verdict.reason
    assert try_engine(spec, BATCH, engine, Rival()) == verdict
    assert (len(builds), engine.calls) == (1, 0)
    assert [path.name for path in folder.iterdir()] == [path.name for path in kept(folder)]


def test_a_real_engine_is_built_for_its_trial(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    if "tensorrt_rtx" not in installed():
        pytest.skip("TensorRT-RTX is not installed")
    builds, engine = counted_builds(monkeypatch), Engine(model)
    spec = spec_of(model)
    assert try_engine(spec, BATCH, engine, Rival()).outcome == PROVEN
    assert try_engine(spec, BATCH, engine, Rival()).outcome == PROVEN
    assert (len(builds), engine.calls) == (1, 1)
    assert read_sidecar(VerdictFile(spec, BATCH).engine).checked == "not run: it has a trial before it serves"
    obtain(spec, force=True, verify=False)  # as `segmentation-build --force` does
    assert not VerdictFile(spec, BATCH).path.exists()


def test_a_runtime_that_is_missing_is_no_verdict(spec: EngineSpec, model: Model, folder: Path) -> None:
    """Once it is installed, the engine has its trial."""
    with pytest.raises(NotProven, match=r"^engine not tried: the lean runtime is missing$"):
        try_engine(spec, BATCH, Engine(model, "runtime"), Rival())
    assert kept(folder) == []
    assert try_engine(spec, BATCH, Engine(model), Rival()).outcome == PROVEN
