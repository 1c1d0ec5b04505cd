"""Running engines, which needs a GPU that one of the variants serves, or one that none does for the refusal.

Where TensorRT's lean runtime alone is installed, `SEGMENTATION_TEST_ENGINES` names a folder of engines that were built
elsewhere with `segmentation-build person --version-compatible`, and likewise from `states.onnx`, which `make_rvm` of
`forms.py` writes, with `--input-size 96x128`. Without the second, its test skips.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forms import make_rvm
from numpy.typing import NDArray
from stages import gpu

from segmentation import BackendError, Config, EngineError
from segmentation.engines.variant import Variant, choose, installed
from segmentation.gpu.discovery import find_gpu
from segmentation.models.model import Model, load_model
from segmentation.models.sample_picture import picture_inputs
from segmentation.models.sidecar import digest, read_sidecar
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

if os.environ.get("SEGMENTATION_REQUIRE_GPU") != "1":  # on a GPU machine a missing package is a failure
    pytest.importorskip("torch", reason="PyTorch is not installed")
import torch

CONFIG = Config(infer="tensorrt", device="cuda:0")


pytestmark = pytest.mark.usefixtures("folder")  # engines of these tests go there, and not among the user's


@pytest.fixture
def variant(folder: Path) -> Variant:
    if ready := os.environ.get("SEGMENTATION_TEST_ENGINES"):
        shutil.copytree(ready, folder, copy_function=os.symlink)
    try:
        return choose(find_gpu(), installed())
    except BackendError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def model() -> Model:
    return load_model(CONFIG)


@pytest.fixture
def pictures(model: Model) -> NDArray[np.float32]:
    """(20, 3, H, W): more than the largest batch, all of them different."""
    few = picture_inputs(model)
    return np.concatenate([np.roll(few, 10 * i, axis=3) for i in range(5)])


@pytest.mark.gpu
def test_an_engine_agrees_with_onnx_runtime(variant: Variant, model: Model, pictures: NDArray[np.float32]) -> None:
    from segmentation.engines.inference import TensorRTInference

    infer = TensorRTInference(model, replace(CONFIG, batch_size=20), gpu())
    expected = OnnxRuntimeInference(model, Config())(pictures).masks
    for count in (16, 1, 5, 20, 16):  # a short one at its own size, a long one in parts
        masks = infer(torch.from_numpy(pictures[:count]).cuda()).masks
        gpu().stream.synchronize()
        masks = masks.cpu().numpy()
        assert masks.shape == (count, model.height, model.width) and masks.dtype == np.float32
        assert ((masks > 0.5) == (expected[:count] > 0.5)).mean() > 0.995
        assert np.abs(masks - expected[:count]).max() < 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("counts", [(4, 4, 1), (1, 3, 4, 1)], ids=str)
def test_recurrent_runs_take_turns_on_one_engine(variant: Variant, tmp_path: Path, counts: tuple[int, ...]) -> None:
    """Frames go through one by one, as a CUDA graph, and a run begins with states of its own."""
    from segmentation.engines.inference import TensorRTInference

    network = make_rvm(tmp_path / "states.onnx")
    model = load_model(Config(model=network, input_size=(96, 128)))
    try:
        infer = TensorRTInference(model, replace(CONFIG, model=network, batch_size=4), gpu())
    except BackendError as exc:
        if "has no engine of" not in str(exc):
            raise
        pytest.skip(str(exc))
    few = picture_inputs(model)
    pictures = np.concatenate([np.roll(few, 10 * i, axis=3) for i in range(3)])[: sum(counts)]
    expected = OnnxRuntimeInference(model, Config())(pictures).masks
    runs = [infer.for_run() for _ in range(2)]
    found: list[list[torch.Tensor]] = [[], []]
    with torch.cuda.stream(gpu().stream):  # where the masks are made, which the next call overwrites
        for part in torch.from_numpy(pictures).cuda().split(counts):
            for run, masks in zip(runs, found, strict=True):
                masks.append(torch.as_tensor(run(part).masks).clone())
    gpu().stream.synchronize()
    for masks in found:
        got = torch.cat(masks).cpu().numpy()
        assert np.abs(got - expected).max() < 0.01
    assert (found[0][-1] == found[1][-1]).all()


@pytest.mark.gpu
@pytest.mark.whole_card
def test_steady_state_allocates_nothing(variant: Variant, model: Model, pictures: NDArray[np.float32]) -> None:
    from segmentation.engines.inference import TensorRTInference

    infer = TensorRTInference(model, replace(CONFIG, batch_size=4), gpu())
    given = torch.from_numpy(pictures[:4]).cuda()
    infer(given)
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    free, _ = torch.cuda.mem_get_info()
    for _ in range(20):
        infer(given)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    assert torch.cuda.mem_get_info()[0] == free


@pytest.mark.gpu
def test_the_engine_is_built_once(variant: Variant, model: Model, folder: Path) -> None:
    from segmentation.engines.inference import TensorRTInference

    def engines() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in folder.glob("*.engine")}

    TensorRTInference(model, CONFIG, gpu())
    before = engines()
    TensorRTInference(model, CONFIG, gpu())
    assert engines() == before
    engine = next(
        path for path in before if read_sidecar(path).ingredients["onnx_sha256"] == digest(model.path.read_bytes())
    )
    TensorRTInference(load_model(Config(model=str(engine))), CONFIG, gpu())


@pytest.mark.gpu
def test_a_gpu_that_no_variant_serves_is_refused_in_one_line(model: Model) -> None:
    """Such as an H200 where only TensorRT-RTX is installed."""
    try:
        choose(find_gpu(), installed())
    except BackendError as exc:
        refusal = str(exc)
    else:
        pytest.skip("a variant serves this GPU")
    assert "\n" not in refusal and "pip install" in refusal
    with pytest.raises(BackendError) as caught:
        make_plan(CONFIG)
    assert refusal in str(caught.value) and "\n" not in str(caught.value)
    assert make_plan(Config()).infer.name == "torch-fp16"


@pytest.mark.gpu
def test_a_plan_that_this_gpu_cannot_load_gives_one_line(model: Model) -> None:
    """Past the check of the compute capability, TensorRT-RTX itself says no."""
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    from segmentation.engines.build import obtain
    from segmentation.engines.session import run_plan
    from segmentation.engines.spec import EngineOptions, EngineSpec
    from segmentation.engines.variant import serves
    from segmentation.models.sidecar import load_plan

    here = find_gpu()
    assert here is not None
    if serves("tensorrt_rtx", here.capability):
        pytest.skip(f"TensorRT-RTX serves {here}")
    rtx = choose(None, installed(), "tensorrt_rtx", build=True)
    path, _ = obtain(EngineSpec(model=model, options=EngineOptions(), variant=rtx, gpu=here))
    with pytest.raises(EngineError, match="can't be loaded by tensorrt_rtx") as caught:
        run_plan(*load_plan(path), picture_inputs(model))
    assert "\n" not in str(caught.value)


def refused(check: Callable[[], object]) -> str:
    with pytest.raises(BackendError) as caught:
        check()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_gpu_it_is_refused_in_one_line() -> None:
    pytest.importorskip("cvcuda", reason="CV-CUDA is not installed")
    from segmentation.engines.inference import TensorRTInference

    assert "use --device cuda:0" in refused(lambda: TensorRTInference.describe(Config(device="cpu")))
    if not torch.cuda.is_available():
        assert "PyTorch sees 0" in refused(lambda: TensorRTInference.describe(Config()))
        assert "PyTorch sees 0" in refused(lambda: make_plan(Config(infer="tensorrt")))
