"""Networks on other processors: OpenVINO for real, ONNX Runtime's providers as far as this machine has them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime as ort
import pytest
from detectors import red_yolo
from forms import make_form, make_rvm
from marks import first
from networks import RED, make_model
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli, report

from segmentation import BackendError, Config, ConfigError, Segmenter, segment
from segmentation.errors import RefusesNetwork
from segmentation.models.graph.comparison import MIN_IOU, compare
from segmentation.models.model import Model, load_model
from segmentation.models.sample_picture import PICTURE, picture_inputs
from segmentation.options.devices import PROCESSORS
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.inference.instances.onnx_instances import InstanceInference
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.inference.processors import (
    CudaInference,
    ProcessorInference,
    Provider,
    ProviderInference,
    Session,
)

HERE = IMPLEMENTATIONS["infer"]


@pytest.fixture
def openvino() -> Any:
    return pytest.importorskip("segmentation.stages.inference.openvino").OpenVinoInference


class CpuProvider(ProviderInference):
    """A provider that every build of ONNX Runtime has."""

    provider = Provider(name="CPUExecutionProvider", package="onnxruntime")


class Absent(ProviderInference):
    """A provider that this build says it has, without its libraries."""

    provider = Provider(name="CUDAExecutionProvider", package="nothing")


class Lies(ProcessorInference):
    """A processor whose scores are another network's."""

    @staticmethod
    def describe(config: Config, info: object = None) -> str:
        return "a processor that lies"

    @classmethod
    def _open(cls, model: Model, config: Config) -> Session:
        return Upside(CpuProvider._open(model, config))


class Crashes(Lies):
    """A processor whose library fails."""

    @classmethod
    def _open(cls, model: Model, config: Config) -> Session:
        raise MemoryError("out of its memory")


class Upside:
    """A session that returns everything upside down."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, outputs: Sequence[str], inputs: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        return [found[..., ::-1, :] for found in self._session.run(outputs, inputs)]


NETWORKS = {
    "person": lambda folder: "person",
    "fixed batch": lambda folder: make_model(folder / "m.onnx", RED, batch=3),
    "channels last": lambda folder: make_form(folder / "m.onnx", last=True, output="scores last"),
    "instances": lambda folder: red_yolo(folder / "m.onnx"),
    "person-hq": lambda folder: "person-hq",
    "person-best": lambda folder: "person-best",
}


@pytest.mark.parametrize("which", first(4, NETWORKS))
def test_openvino_finds_what_the_cpu_finds(which: str, tmp_path: Path, openvino: Any) -> None:
    config = Config(model=NETWORKS[which](tmp_path), device="openvino")
    model = load_model(config)
    pictures = picture_inputs(model).astype(model.dtype)
    kind = OnnxRuntimeInference if model.detection is None else InstanceInference
    expected, found = kind(model, config)(pictures), openvino(model, config)(pictures)
    compared = compare(np.asarray(expected.masks), np.asarray(found.masks))
    assert compared.iou >= MIN_IOU and compared.largest_difference < 0.05, compared
    if kind is InstanceInference:
        assert [len(one.instances) for one in found.instances] == [len(one.instances) for one in expected.instances]
    else:
        assert 0 < compared.covered < 1, "else the comparison shows nothing"


def test_openvino_carries_states_of_each_run_apart(tmp_path: Path, openvino: Any) -> None:
    model = load_model(Config(model=make_rvm(tmp_path / "rvm.onnx"), model_output="pha"))
    pictures = np.random.default_rng(1).random((5, 3, model.height, model.width), np.float32)
    network = openvino(model, Config())
    assert network.workers == 1
    expected = [OnnxRuntimeInference(model, Config()).for_run()(one[None]).masks for one in pictures[:1]]
    first, second = network.for_run(), network.for_run()
    by_cpu = OnnxRuntimeInference(model, Config()).for_run()
    for picture in pictures:
        wanted = by_cpu(picture[None]).masks
        np.testing.assert_allclose(first(picture[None]).masks, wanted, atol=1e-4)
    np.testing.assert_allclose(second(pictures[:1]).masks, expected[0], atol=1e-4)


@pytest.mark.slow
def test_a_whole_run_with_openvino(tmp_path: Path, openvino: Any) -> None:
    pytest.importorskip("openvino")
    done = cli(SAMPLE, "-o", tmp_path / "o.mp4", "--device", "openvino", "--max-frames", "12", "--json", "-q")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert report(done)["plan"]["infer"] == "openvino" and report(done)["frames"] == 12
    planned = cli(SAMPLE, "--plan", "--device", "openvino")
    assert "openvino     OpenVINO 20" in planned.stdout and ", CPU (" in planned.stdout
    photo = cv2.imread(str(PICTURE))[..., ::-1]
    masks = []
    for device in ("cpu", "openvino"):
        with Segmenter(device=device) as segmenter:
            masks.append(segmenter.masks(photo))
    assert compare(masks[0][None], masks[1][None]).iou > MIN_IOU


def test_openvino_on_a_processor_that_is_not_here(openvino: Any) -> None:
    with pytest.raises(BackendError, match=r"OpenVINO .* finds no NPU\.7 here, but .*CPU"):
        make_plan(Config(device="openvino:NPU.7"))


def test_a_provider_of_onnx_runtime_runs_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HERE, "coreml", replace(HERE["coreml"], place=f"{__name__}:CpuProvider"))
    by_name = segment(SAMPLE, tmp_path / "a.mkv", device="coreml", max_frames=5, codec="ffv1")
    usual = segment(SAMPLE, tmp_path / "b.mkv", device="cpu", max_frames=5, codec="ffv1")
    assert by_name.plan["infer"] == "coreml" and usual.plan["infer"] == "onnxruntime"
    assert (tmp_path / "a.mkv").stat().st_size == (tmp_path / "b.mkv").stat().st_size


def test_cuda_gets_whole_batches_alone(tmp_path: Path) -> None:
    """Each other shape would cost seconds, in which cuDNN's algorithms are tried."""
    sizes = set()

    class Counting:
        def __init__(self, session: Session) -> None:
            self._session = session

        def run(self, outputs: Sequence[str], inputs: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
            sizes.update(len(given) for given in inputs.values())
            return self._session.run(outputs, inputs)

    class OnTheHost(CudaInference):
        @classmethod
        def _open(cls, model: Model, config: Config) -> Session:
            return Counting(CpuProvider._open(model, config))

    model = load_model(Config(model=make_model(tmp_path / "m.onnx", RED)))
    network, pictures = OnTheHost(model, Config(batch_size=6)), picture_inputs(model)
    expected = OnnxRuntimeInference(model, Config())(pictures).masks
    np.testing.assert_allclose(network(pictures).masks, expected, atol=1e-5)
    assert sizes == {6}


@pytest.mark.filterwarnings("ignore:Specified provider")  # of ONNX Runtime itself
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("Lies", r"its masks of person agree with the CPU's only to an IoU of 0\.\d+ \(0.995 is needed\)"),
        ("Crashes", r"person can't run there \(out of its memory\)"),
        ("Absent", r"CUDAExecutionProvider can't be loaded"),
    ],
)
def test_the_cpu_takes_over_from_a_processor_that_fails(
    kind: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there = [*ort.get_available_providers(), Absent.provider.name]
    monkeypatch.setattr(ort, "get_available_providers", lambda: there)
    monkeypatch.setitem(HERE, "rocm", replace(HERE["rocm"], place=f"{__name__}:{kind}"))
    with caplog.at_level(logging.WARNING):
        made = segment(SAMPLE, tmp_path / "o.mp4", device="rocm", max_frames=3)
    assert made.plan["infer"] == "onnxruntime" and made.frames == 3
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith("infer: onnxruntime on the CPU (rocm: "), line
    with pytest.raises(RefusesNetwork, match=text):
        segment(SAMPLE, tmp_path / "o.mp4", overwrite=True, device="rocm", infer="rocm", max_frames=3)
    with caplog.at_level(logging.WARNING):  # a network of instances has another implementation on the CPU
        made = segment(
            SAMPLE, tmp_path / "p.mp4", device="rocm", max_frames=3, model=red_yolo(tmp_path / "m.onnx"), classes=None
        )
    assert made.plan["infer"] == "instances" or kind == "Lies"


@pytest.mark.parametrize("device", [name for name in PROCESSORS if name != "openvino"])
def test_a_processor_that_is_not_installed(device: str, tmp_path: Path) -> None:
    done = cli(SAMPLE, "-o", tmp_path / "o.mp4", "--device", device)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "install onnxruntime" in done.stderr, done.stderr
    assert not (tmp_path / "o.mp4").exists()


def test_what_a_processor_cannot_run_is_said_by_the_option(tmp_path: Path) -> None:
    def function(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        return pictures[:, 0]

    with pytest.raises(ConfigError, match="--device openvino: can't run the function"):
        make_plan(Config(device="openvino", model=function))
    with pytest.raises(ConfigError, match=r"--device coreml: can't run the engine e\.engine"):
        make_plan(Config(device="coreml", model="e.engine"))


def test_auto_is_the_default_and_other_processors_leave_the_gpu_alone(tmp_path: Path) -> None:
    assert Config(device="auto") == Config()
    with pytest.raises(BackendError, match="device openvino: this needs an NVIDIA GPU"):
        make_plan(Config(device="openvino", decode="nvdec"))
