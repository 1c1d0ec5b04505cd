"""Engines that lie ready where TensorRT's lean runtime alone is installed."""

from dataclasses import replace
from pathlib import Path

import pytest
from networks import model_of
from paths import DATA

from engines import ADA
from segmentation import BackendError, EngineError
from segmentation.engines.build import obtain, trust
from segmentation.engines.ready import lean_library, ready_spec
from segmentation.engines.spec import EngineOptions, EngineSpec
from segmentation.engines.variant import Variant, choose
from segmentation.gpu.discovery import GpuInfo
from segmentation.models.sidecar import read_sidecar, write_engine

BRIGHT = DATA / "bright-dynamic.onnx"


@pytest.fixture
def spec(folder: Path) -> EngineSpec:
    """Of an engine of an older TensorRT, which lies there with a broken one and one of another GPU."""
    folder.mkdir()
    options = EngineOptions(version_compatible=True)
    spec = EngineSpec(model=model_of(BRIGHT), options=options, variant=Variant("tensorrt", "10.14.1"), gpu=ADA)
    for one in (spec, replace(spec, gpu=GpuInfo("NVIDIA L4", (8, 9)))):
        path = folder / one.file_name
        path.write_bytes(b"plan")
        trust(path, one)
        write_engine(path, b"plan", replace(read_sidecar(path), fingerprint=one.fingerprint))
    (folder / "a.engine").write_bytes(b"no sidecar")
    return spec


def test_the_engine_of_this_gpu_is_found(spec: EngineSpec, folder: Path) -> None:
    found = ready_spec(spec.model, EngineOptions(), ADA)
    assert found.fingerprint == spec.fingerprint and found.variant == spec.variant
    assert obtain(found) == (folder / spec.file_name, False)


@pytest.mark.parametrize("other", ["GPU", "batch"])
def test_no_engine_is_ready(spec: EngineSpec, folder: Path, other: str) -> None:
    options = EngineOptions(batch=(4, 4, 4)) if other == "batch" else EngineOptions()
    gpu = GpuInfo("NVIDIA H200", (9, 0)) if other == "GPU" else ADA
    with pytest.raises(BackendError, match=r"lean runtime builds nothing.*--version-compatible") as caught:
        ready_spec(spec.model, options, gpu)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_changed_engine_is_not_built_where_nothing_builds(spec: EngineSpec, folder: Path) -> None:
    (folder / spec.file_name).write_bytes(b"other")
    with pytest.raises(EngineError, match=r"can't be built here, as TensorRT 10\.14\.1 is not installed: .*SHA-256"):
        obtain(spec)


def test_the_lean_runtime_of_a_version(folder: Path) -> None:
    with pytest.raises(BackendError, match=r"--target .*lean-10\.14\.1 tensorrt-lean-cu13-libs==10\.14\.1$"):
        lean_library("10.14.1")
    library = folder / "lean-10.14.1" / "tensorrt_lean_libs" / "libnvinfer_lean.so.10"
    library.parent.mkdir(parents=True)
    library.touch()
    assert lean_library("10.14.1") == library


def test_the_lean_runtime_serves_where_nothing_builds() -> None:
    hopper = GpuInfo("NVIDIA H200", (9, 0))
    available = {"tensorrt_rtx": "1.7.1", "tensorrt_lean": "11.4.0"}
    assert choose(hopper, available).module == "tensorrt_lean" and choose(ADA, available).rtx
    with pytest.raises(BackendError, match="TensorRT is not installed"):
        choose(hopper, available, build=True)


@pytest.mark.parametrize(("plan", "here"), [("8.6.0", "11.4.0.106"), ("9.3.0", "11.4.0.106"), ("11.4.0", "11.2.1")])
def test_an_engine_that_the_lean_runtime_does_not_run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, plan: str, here: str
) -> None:
    """TensorRT 11's ends the process when it loads that of 8.6."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from segmentation.engines import session

    monkeypatch.setattr(session, "installed", lambda: {"tensorrt_lean": here})
    engine = object.__new__(session.EngineSession)
    with pytest.raises(BackendError, match=f"by TensorRT {plan}, and TensorRT's lean runtime {here} runs"):
        engine._load_runtime(plan)
    engine._load_runtime(here)  # its own needs no other
