"""Runs where TensorRT serves: an engine that fails its trial makes way for torch-fp16, or is an error where asked for.

The machine is made up, see `host_tensorrt`: inference runs TensorRT's class with a stand-in for its session.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from paths import DATA, SAMPLE

from engines import place, spec_of
from segmentation import BackendError, Config, Segmenter, segment
from segmentation.errors import NotProven, UnknownOperator
from segmentation.models.model import Model, load_model
from segmentation.pipeline.planning import plan as plans
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

pytestmark = pytest.mark.usefixtures("folder")  # engines of these tests go there, and not among the user's

NETWORK = DATA / "bright-dynamic.onnx"
CONFIG = Config(
    model=str(NETWORK),
    decode="pyav",
    preprocess="opencv",
    postprocess="opencv",
    encode="x264",
    batch_size=4,
    max_frames=9,
    overwrite=True,
)


@pytest.fixture
def model() -> Model:
    """With its engine, which is there already."""
    model = load_model(CONFIG)
    place(spec_of(model))
    return model


def session() -> Any:
    """Returns the stand-in's class: its way to fail, and how often it was loaded."""
    from host_tensorrt import StandInSession

    return StandInSession


def machine(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from host_tensorrt import machine

    machine(monkeypatch, way)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    assert all("\n" not in line for line in lines)
    return [line for line in lines if line.startswith("infer")]


FAILURES = [
    ("load", "the engine can't be loaded"),
    ("run", "RuntimeError: IExecutionContext::enqueueV3"),
    ("fault", "RuntimeError: CUDA error: an illegal memory access"),
    ("NaN", "IoU of 0.0000"),
    ("zeros", "IoU of 0.0000"),
    ("slightly off", "IoU of 0.99"),
    ("mixed up", "IoU of 0."),
]


@pytest.mark.parametrize(("way", "reason"), FAILURES)
def test_torch_fp16_serves_in_place_of_an_engine_that_fails(
    model: Model, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, way: str, reason: str
) -> None:
    machine(monkeypatch, way)
    target = tmp_path / "a.mp4"
    with Segmenter(CONFIG) as segmenter:
        assert segmenter.run(SAMPLE, target).plan["infer"] == "torch-fp16"
        (line,) = said(caplog)
        assert line.startswith("infer: torch-fp16 on the CPU (tensorrt: engine failed on ") and reason in line
        (verdict,) = folder.glob("*.verdict.json")
        assert line.endswith(f"; delete {verdict} to try it again)")
        assert segmenter.run(SAMPLE, target).plan["infer"] == "torch-fp16"  # by the plan
    tries = len(session().loads)
    done = segment(SAMPLE, target, CONFIG)
    assert done.frames == 9 and done.plan["infer"] == "torch-fp16" and len(session().loads) == tries == 1
    planned = make_plan(CONFIG, model=model).infer
    assert planned is not None and planned.name == "torch-fp16" and reason in planned.instead_of
    verdict.unlink()
    monkeypatch.setattr(session(), "way", "right")
    assert segment(SAMPLE, target, CONFIG).plan["infer"] == "tensorrt"


@pytest.mark.parametrize(("way", "reason"), FAILURES)
@pytest.mark.parametrize("asked", [{"infer": "tensorrt"}, {"mode": "optimized"}], ids=["infer", "optimized"])
def test_an_engine_that_is_asked_for_and_fails_is_an_error(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], way: str, reason: str
) -> None:
    machine(monkeypatch, way)
    for _ in range(2):  # in the trial, and by its verdict
        with pytest.raises(BackendError) as caught:
            segment(SAMPLE, tmp_path / "a.mp4", CONFIG, **asked)
        text = str(caught.value)
        assert reason in text and "engine failed on " in text and "\n" not in text and "to try it again" in text
        assert caught.value.exit_code == 3
        assert not list(tmp_path.glob("*.mp4"))
    assert len(session().loads) == 1


def test_a_right_engine_serves(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine(monkeypatch, "right")
    before = make_plan(CONFIG, model=model).infer
    assert before is not None and before.reason.endswith("engine, has its trial at the first use")
    assert segment(SAMPLE, tmp_path / "a.mp4", CONFIG).plan["infer"] == "tensorrt"
    assert len(session().loads) == 2  # for the trial, and to serve
    assert segment(SAMPLE, tmp_path / "b.mp4", CONFIG).plan["infer"] == "tensorrt"
    assert len(session().loads) == 3 and said(caplog) == []
    segment(SAMPLE, tmp_path / "c.mp4", CONFIG, infer="onnxruntime")
    first, second, third = ((tmp_path / f"{name}.mp4").read_bytes() for name in "abc")
    assert first == second == third
    planned = make_plan(CONFIG, model=model).infer
    assert planned is not None and "engine, proven on " in planned.reason and "mask IoU 1.0000" in planned.reason


@pytest.mark.parametrize(
    ("asked", "served"), [({}, "torch-fp16"), ({"infer": "tensorrt"}, "tensorrt"), ({"mode": "optimized"}, "tensorrt")]
)
def test_a_slow_engine_serves_only_who_asks_for_it(
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asked: dict[str, Any],
    served: str,
) -> None:
    machine(monkeypatch, "slow")
    for number in range(2):
        assert segment(SAMPLE, tmp_path / "a.mp4", CONFIG, **asked).plan["infer"] == served
        lines = said(caplog)
        assert not (asked and lines)
        assert asked or number or "ms for a batch, and torch-fp16" in lines[0]
    planned = make_plan(replace(CONFIG, **asked), model=model).infer
    assert planned is not None and planned.name == served and "declined on " in planned.reason + planned.instead_of


def test_full_memory_halves_the_batch(
    model: Model, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine(monkeypatch, "memory above 2")
    done = segment(SAMPLE, tmp_path / "a.mp4", CONFIG)
    assert done.frames == 9 and done.plan["infer"] == "tensorrt"
    assert "starting again with --batch-size 2" in caplog.text and said(caplog) == []
    assert [path.name.endswith("-b2.verdict.json") for path in folder.glob("*.verdict.json")] == [True]


def test_an_engine_that_was_proven_and_no_longer_loads(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine(monkeypatch, "right")
    segment(SAMPLE, tmp_path / "a.mp4", CONFIG)
    monkeypatch.setattr(session(), "way", "load")
    assert segment(SAMPLE, tmp_path / "a.mp4", CONFIG).plan["infer"] == "torch-fp16"
    assert said(caplog) == ["infer: torch-fp16 on the CPU (tensorrt: the engine can't be loaded)"]
    with pytest.raises(BackendError, match="the engine can't be loaded"):
        segment(SAMPLE, tmp_path / "a.mp4", CONFIG, infer="tensorrt")


def test_single_pictures_have_an_engine_too(model: Model, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    machine(monkeypatch, "NaN")
    import cv2

    picture = cv2.imread(str(DATA.parents[1] / "segmentation" / "models" / "astronaut.jpg"))
    with Segmenter(CONFIG) as segmenter, Segmenter(CONFIG, infer="onnxruntime") as other:
        assert (segmenter.masks(picture) == other.masks(picture)).all()
    assert [path.name.endswith("-b1.verdict.json") for path in folder.glob("*.verdict.json")] == [True]


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["right", "load", "run", "NaN", "slightly off", "slow"])
def test_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str) -> None:
    """Any GPU serves: the session of the engine is a stand-in, and torch-fp16 and all other stages are real."""
    import torch
    from host_tensorrt import StandInSession

    from segmentation.engines import inference as tensorrt

    for module in (tensorrt, plans):
        monkeypatch.setattr(module, "installed", lambda: {"tensorrt": "11.4.0"})
    monkeypatch.setattr(tensorrt, "EngineSession", StandInSession)
    monkeypatch.setattr(StandInSession, "way", way)
    if way == "right":  # it runs on the CPU, and so takes longer
        monkeypatch.setattr("segmentation.engines.trial._MARGIN", 1e6)
    config = Config(model=str(NETWORK), batch_size=4, max_frames=9, overwrite=True)
    place(tensorrt._spec(load_model(config), torch.device("cuda", 0)))
    served = "tensorrt" if way == "right" else "torch-fp16"
    for number in range(2):
        done = segment(SAMPLE, tmp_path / "a.mp4", config)
        assert done.frames == 9 and done.plan["infer"] == served
        lines = said(caplog)
        assert len(lines) == (way != "right" and not number)
        assert all(line.startswith("infer: torch-fp16 (tensorrt: engine ") for line in lines)
    if way not in ("right", "slow"):
        with pytest.raises(BackendError, match="engine failed on "):
            segment(SAMPLE, tmp_path / "a.mp4", config, infer="tensorrt")


# Without PyTorch


class Refusing(OnnxRuntimeInference):
    """Refuses every network."""

    error: ClassVar[type[Exception]]
    calls: ClassVar[int]

    def __init__(self, *arguments: object) -> None:
        type(self).calls += 1
        raise self.error("not here")


class RefusesEngine(Refusing):
    error, calls = NotProven, 0


class RefusesOperator(Refusing):
    error, calls = UnknownOperator, 0


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, implementation in (("tensorrt", RefusesEngine), ("torch-fp16", RefusesOperator)):
        monkeypatch.setattr(implementation, "calls", 0)
        place = f"{__name__}:{implementation.__name__}"
        one = replace(IMPLEMENTATIONS["infer"][name], place=place, on_gpu=False)
        monkeypatch.setitem(IMPLEMENTATIONS["infer"], name, one)
    tensorrt = replace(IMPLEMENTATIONS["infer"]["tensorrt"], modes=("baseline",))
    monkeypatch.setitem(IMPLEMENTATIONS["infer"], "tensorrt", tensorrt)
    monkeypatch.setattr(plans, "choose", lambda *_: None)
    monkeypatch.setattr(plans, "device_index", lambda _: 0)


@pytest.mark.usefixtures("refusing")
def test_one_implementation_after_the_other_refuses_the_network(tmp_path: Path, caplog: Any) -> None:
    with Segmenter(CONFIG, mode="baseline") as segmenter:
        for _ in range(2):
            assert segmenter.run(SAMPLE, tmp_path / "a.mp4").plan["infer"] == "onnxruntime"
            assert said(caplog) == [
                "infer: torch-fp16 on the CPU (tensorrt: not here)",
                "infer: onnxruntime on the CPU (torch-fp16: not here)",
            ]
    assert (RefusesEngine.calls, RefusesOperator.calls) == (1, 1)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(("infer", "error"), [("tensorrt", NotProven), ("torch-fp16", UnknownOperator)])
def test_what_is_asked_for_has_no_substitute(tmp_path: Path, infer: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^not here$"):
        segment(SAMPLE, tmp_path / "a.mp4", CONFIG, infer=infer)
    assert not list(tmp_path.glob("*.mp4"))
