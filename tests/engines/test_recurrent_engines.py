"""Engines of networks that carry states from frame to frame: built by TensorRT-RTX, and in runs with a stand-in.

The stand-in for the engine's session runs the plan, which is the ONNX graph, by ONNX Runtime: see `host_tensorrt`.
`tests/engines/test_inference.py` has those that need a GPU.
"""

import json
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import onnx
import pytest
from forms import VALUE, make_rvm, write
from networks import model_of
from numpy.typing import NDArray
from onnx import TensorProto, helper
from paths import SAMPLE

from engines import place, spec_of
from segmentation import Config, ConfigError, EngineError, Segmenter, segment
from segmentation.cli.build_engine import main
from segmentation.engines.build import obtain
from segmentation.engines.spec import EngineOptions, EngineSpec
from segmentation.engines.variant import choose, installed
from segmentation.models.graph.comparison import MIN_IOU
from segmentation.models.graph.fp16 import to_fp16
from segmentation.models.graph.fp16_cache import fp16_graph
from segmentation.models.graph.onnx_graph import in_order, prepare, session_of
from segmentation.models.model import Model
from segmentation.models.sample_picture import picture_inputs
from segmentation.models.sidecar import load_plan
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

pytestmark = pytest.mark.usefixtures("folder")  # engines of these tests go there, and not among the user's

SIZE = (96, 128)
ONE = (1, 1, 1)
SHAPES = {"r1i": [1, 1, *SIZE], "r2i": [1, 1, 1, 1], "r3i": [1, 1, 1, 1], "r4i": [1, 1, 1, 1]}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return make_rvm(tmp_path / "rvm.onnx")


@pytest.fixture
def model(network: Path) -> Model:
    return model_of(network, input_size=SIZE)


def summing(path: Path, *, growth: float = 1.0, kind: int = TensorProto.FLOAT) -> Path:
    """Writes a network whose state grows by `growth` times the picture's red for each frame. Its mask is the red."""
    nodes = [
        helper.make_node("Mul", ["h_in", "one"], ["before"]),
        helper.make_node("Slice", ["x", "zero", "end", "axis"], ["red"]),
        helper.make_node("Mul", ["red", "growth"], ["more"]),
        helper.make_node("Cast", ["more"], ["cast"], to=kind),
        helper.make_node("Add", ["before", "cast"], ["h_out"], name="/sum/Add"),
        helper.make_node("Sub", ["red", "half"], ["over"]),
        helper.make_node("Mul", ["over", "steep"], ["y"]),
    ]
    state = ["N", 1, "h", "w"]
    return write(
        path,
        nodes,
        [VALUE("h_in", kind, state), VALUE("x", TensorProto.FLOAT, ["N", 3, 32, 48])],
        [VALUE("y", TensorProto.FLOAT, ["N", 1, 32, 48]), VALUE("h_out", kind, state)],
        {
            "one": np.array(1, helper.tensor_dtype_to_np_dtype(kind)),
            **{"zero": np.array([0]), "end": np.array([1]), "axis": np.array([1])},
            **{"growth": np.float32(growth), "half": np.float32(0.43), "steep": np.float32(50)},
        },
        metadata={"activation": "sigmoid", "labels": '["red"]'},
    )


def frames(model: Model, count: int = 5) -> NDArray[np.float32]:
    few = picture_inputs(model)
    return np.stack([np.roll(few[i % len(few)], 7 * i, axis=2) for i in range(count)])


def scores_of(graph: onnx.ModelProto, model: Model, pictures: NDArray[np.float32]) -> NDArray[np.generic]:
    one_by_one = np.split(pictures, len(pictures))
    return np.concatenate([found[model.output_name] for found in in_order(session_of(graph), model, one_by_one)])


def test_its_states_get_the_shapes_that_a_frame_leaves(model: Model) -> None:
    """The file leaves their sides open, and begins with one value. The masks stay what they were."""
    graph = prepare(model, 1)
    assert [value.name for value in graph.graph.input] == ["src", *SHAPES]
    assert [value.name for value in graph.graph.output] == ["pha", "r1o", "r2o", "r3o", "r4o"]
    shapes = {
        value.name: [side.dim_value for side in value.type.tensor_type.shape.dim]
        for value in (*graph.graph.input, *graph.graph.output)
    }
    assert shapes == {
        **{"src": [1, 3, *SIZE], "pha": [1, 1, *SIZE]},
        **SHAPES,
        **{name.replace("i", "o"): shape for name, shape in SHAPES.items()},
    }
    pictures = frames(model)
    expected = OnnxRuntimeInference(model, Config())(pictures).masks
    np.testing.assert_allclose(scores_of(graph, model, pictures)[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("half", [False, True])
def test_an_engine_states_them(tmp_path: Path, half: bool) -> None:
    """Built by TensorRT-RTX. The states keep the file's type, whatever the precision inside."""
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    model = model_of(make_rvm(tmp_path / "m.onnx", half=half), input_size=SIZE)
    variant = choose(None, installed(), "tensorrt_rtx", build=True)
    engine, _ = obtain(EngineSpec(model=model, options=EngineOptions(batch=ONE), variant=variant))
    sidecar = load_plan(engine)[1]
    dtype = "float16" if half else "float32"
    assert sidecar.states == [
        {"name": name, "dtype": dtype, "shape": shape, "source": name.replace("i", "o")}
        for name, shape in SHAPES.items()
    ]
    assert sidecar.input["shape"] == [1, 3, *SIZE] and sidecar.precision == "fp16"
    assert half or (sidecar.fp16 is not None and sidecar.fp16["iou"] >= MIN_IOU)
    read = model_of(engine)
    assert read.form.recurrent and (read.batch, read.batch_on_gpu) == (1, None)
    assert [(extra.name, extra.source) for extra in read.form.extras] == [
        (extra.name, extra.source) for extra in model.form.extras if extra.source
    ]


def test_nodes_are_kept_in_fp32_by_what_a_state_becomes(tmp_path: Path) -> None:
    """The values of one frame are far from FP16's limit. After three the sum is near it."""
    model = model_of(summing(tmp_path / "m.onnx", growth=7000))
    _, comparison = to_fp16(prepare(model, 1), model, picture_inputs(model))
    assert "/sum/Add" in comparison.kept_in_fp32 and comparison.iou >= MIN_IOU
    sound = model_of(summing(tmp_path / "n.onnx", growth=1))
    assert to_fp16(prepare(sound, 1), sound, picture_inputs(sound))[1].kept_in_fp32 == ()


def test_what_is_no_engine_of_a_recurrent_network(tmp_path: Path, model: Model) -> None:
    with pytest.raises(ConfigError, match=r"^batch 1,16,16: .*rvm.onnx carries states from frame to frame, so it"):
        spec_of(model)
    for batch in (None, 4):
        with pytest.raises(EngineError, match=r"carries states from frame to frame \(r1i, r2i, r3i, r4i\)"):
            prepare(model, batch)
    whole = model_of(summing(tmp_path / "m.onnx", kind=TensorProto.DOUBLE))
    with pytest.raises(EngineError, match=r"its states \(h_in\) must be float or float16 for an engine"):
        prepare(whole, 1)
    with pytest.raises(EngineError, match="carries states from frame to frame, which PyTorch does not here"):
        fp16_graph(model, 1)


def test_the_program_builds_it_for_one_frame_at_a_time(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    command = [str(network), "--variant", "tensorrt_rtx", "--input-size", "96x128"]
    assert main([*command, "--json"]) == 0
    sidecar = json.loads(capsys.readouterr().out)
    assert sidecar["batch"] == [1, 1, 1] and len(sidecar["states"]) == 4
    assert main([*command, "--batch", "4"]) == 2
    error = capsys.readouterr().err
    assert "batch 4,4,4: rvm carries states from frame to frame, so it takes one frame at a time" in error
    assert error.count("\n") == 1


def test_states_that_grow_are_refused(tmp_path: Path) -> None:
    path = summing(tmp_path / "m.onnx")
    graph = onnx.load(path)
    graph.graph.node.insert(0, helper.make_node("Concat", ["h_in", "h_in"], ["twice"], axis=0))
    graph.graph.output[1].CopyFrom(VALUE("h_out", TensorProto.FLOAT, ["M", 1, "h", "w"]))
    graph.graph.node[1].input[0] = "twice"
    onnx.save(graph, path)
    with pytest.raises(EngineError, match=r"its states \(h_in\) can't have one shape") as caught:
        prepare(model_of(path), 1)
    assert "\n" not in str(caught.value)


# Runs

RUN: dict[str, Any] = {
    "decode": "pyav",
    "preprocess": "opencv",
    "postprocess": "opencv",
    "encode": "x264",
    "batch_size": 4,
    "max_frames": 9,
    "input_size": SIZE,
    "overwrite": True,
}


def machine(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from host_tensorrt import machine

    machine(monkeypatch, way)


def test_runs_have_states_of_their_own(
    network: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ONNX Runtime, whatever the batches, one after the other and side by side on one engine."""
    machine(monkeypatch, "right")
    place(spec_of(model, batch=ONE))
    config = Config(model=network, **RUN)
    segment(SAMPLE, tmp_path / "a.mp4", config, infer="onnxruntime")
    with Segmenter(config) as segmenter:
        for name in "bc":
            assert segmenter.run(SAMPLE, tmp_path / f"{name}.mp4").plan["infer"] == "tensorrt"
    segment(SAMPLE, tmp_path / "d.mp4", config, batch_size=1)
    first, *others = ((tmp_path / f"{name}.mp4").read_bytes() for name in "abcd")
    assert all(other == first for other in others)


def test_an_engine_that_forgets_its_states_fails_its_trial(
    network: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ONNX Runtime serves in its place: torch-fp16 runs no states."""
    machine(monkeypatch, "forgets")
    place(spec_of(model, batch=ONE))
    config = Config(model=network, **RUN)
    for _ in range(2):
        assert segment(SAMPLE, tmp_path / "a.mp4", config).plan["infer"] == "onnxruntime"
    assert "infer: onnxruntime on the CPU (tensorrt: engine failed on " in caplog.text
    segment(SAMPLE, tmp_path / "b.mp4", config, infer="onnxruntime")
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_rows_without_a_frame_leave_the_states_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches on a GPU have rows behind their frames; two runs take turns on one engine."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import torch
    from host_kernels import HostGpu
    from host_tensorrt import StandInSession

    from segmentation.engines import inference
    from segmentation.stages.inference.batched_network import RecurrentNetwork

    machine(monkeypatch, "right")
    place(spec_of(model, batch=ONE))
    monkeypatch.setattr(inference, "EngineSession", StandInSession)
    gpu: Any = HostGpu()
    engine = inference.TensorRTInference(model, Config(infer="tensorrt", batch_size=4), gpu)
    shared = RecurrentNetwork(engine, RLock(), gpu)
    pictures = frames(model, 6)
    expected = scores_of(prepare(model, 1), model, pictures)[:, 0]
    runs = [shared.for_run(), shared.for_run()]
    found: list[list[torch.Tensor]] = [[], []]
    begin = 0
    for count in (3, 1, 2):
        rows = torch.full((4, 3, *SIZE), float("nan"))
        rows[:count] = torch.from_numpy(pictures[begin : begin + count])
        for run, kept in zip(runs, found, strict=True):
            kept.append(torch.as_tensor(run(rows, count, lambda infer, tensor: infer(tensor)).masks))
        begin += count
    for kept in found:
        np.testing.assert_allclose(torch.cat(kept).numpy(), expected, atol=1e-6)
