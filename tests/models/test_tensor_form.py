"""Networks whose tensors have other forms than (N, 3, H, W) and (N, C, h, w): the masks are the same."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from converter import need_onnx2torch
from forms import SIZE, VALUE, make_form, write
from networks import shared_network
from numpy.typing import NDArray
from onnx import TensorProto, helper
from paths import ROOT, SAMPLE, SHARED
from program import cli
from unet import make_unet

from segmentation import Config, ModelError
from segmentation.errors import EngineError, UnknownOperator
from segmentation.models.graph.fp16 import masks
from segmentation.models.graph.fp16_cache import fp16_graph
from segmentation.models.graph.onnx_graph import prepare, session_of
from segmentation.models.model import Model, load_model
from segmentation.models.sample_picture import picture_inputs
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

LABELS = ("background", "person")
FORMS = {
    "channels last": {"last": True, "output": "scores last"},
    "only the input channels last": {"last": True},
    "only the output channels last": {"output": "scores last"},
    "one channel left out": {"output": "flat"},
    "class numbers": {"output": "labels"},
    "class numbers in a channel": {"output": "labels channel"},
    "class numbers in a last channel": {"last": True, "output": "labels last"},
    "bytes": {"bytes": True},
    "bytes, channels last, class numbers": {"bytes": True, "last": True, "output": "labels"},
    "opset 11": {"bytes": True, "output": "labels", "opset": 11},
}


def model_of(path: Path, **options: Any) -> Model:
    return load_model(Config(model=path, **options))


def labels(form: dict[str, Any]) -> dict[str, Any]:
    """Returns the option that names the classes of class numbers."""
    return {"labels": LABELS} if "labels" in form.get("output", "") else {}


def teacher(name: str) -> Path:
    path = SHARED / "people" / "teachers" / name
    if not path.is_file():
        pytest.skip("../shared/people is not here")
    return path


def expected_masks(tmp_path: Path, pictures: NDArray[np.float32], form: dict[str, Any]) -> NDArray[np.float32]:
    """Returns the masks of the network in the plain form, for pictures (N, 3, H, W) in 0..1."""
    plain = model_of(make_form(tmp_path / "plain.onnx"))
    assert plain.form.plain
    found = OnnxRuntimeInference(plain, Config())(pictures).masks
    assert isinstance(found, np.ndarray) and 0.05 < (found > 0.5).mean() < 0.95
    return (found > 0.5).astype(np.float32) if labels(form) else found


@pytest.mark.parametrize("batch", ["N", 1, 2])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_masks_are_the_same(tmp_path: Path, form: dict[str, Any], batch: Any) -> None:
    path = make_form(tmp_path / "m.onnx", batch=batch, **form)
    config = Config(model=path, **labels(form))
    model = load_model(config)
    assert (model.labels, model.keep, model.batch) == (
        (LABELS, (1,), None if batch == "N" else batch) if form.get("output") != "flat" else
        (("person",), (0,), None if batch == "N" else batch)
    )  # fmt: skip
    assert (model.height, model.width, model.activation) == (*SIZE, "none")
    pictures = picture_inputs(model)
    assert pictures.shape == (4, 3, *SIZE) and pictures.max() == (255 if form.get("bytes") else 1)
    found = OnnxRuntimeInference(model, config)(pictures.astype(model.dtype)).masks
    expected = expected_masks(tmp_path, pictures / pictures.max(), form)
    assert isinstance(found, np.ndarray) and found.shape == expected.shape
    assert np.abs(found - expected).max() < (
        0.06 if form.get("bytes") else 1e-5
    )  # half a level, times a slope of 40 / 4


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_graph_gets_nodes_that_do_the_same(tmp_path: Path, form: dict[str, Any], batch: int | None) -> None:
    model = model_of(make_form(tmp_path / "m.onnx", **form), **labels(form))
    graph = prepare(model, batch)
    assert (graph.graph.input[0].name, graph.graph.output[0].name) == (model.input_name, model.output_name)
    assert graph.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    assert TensorProto.UINT8 not in [a.i for n in graph.graph.node if n.op_type == "Cast" for a in n.attribute]
    pictures = picture_inputs(model)
    found = OnnxRuntimeInference(model, Config())(pictures).masks
    np.testing.assert_allclose(masks(session_of(graph), model, pictures), found, atol=1e-5)


def test_bytes_that_are_turned_round_first_stay_bytes(tmp_path: Path) -> None:
    """As in graphs of TensorFlow: the cast comes after the transposition."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["turned"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["floats"], ["most"], axes=[1], keepdims=1),
        helper.make_node("Div", ["most", "byte"], ["y"]),
    ]
    inputs, outputs = [VALUE("x", TensorProto.UINT8, ["N", *SIZE, 3])], [VALUE("y", TensorProto.FLOAT, ["N", 1, *SIZE])]
    model = model_of(write(tmp_path / "m.onnx", nodes, inputs, outputs, {"byte": np.float32(255)}))
    pictures = picture_inputs(model)
    expected = np.floor(pictures + 0.5).max(axis=1) / 255
    np.testing.assert_allclose(OnnxRuntimeInference(model, Config())(pictures).masks, expected, atol=1e-6)
    np.testing.assert_allclose(masks(session_of(prepare(model, None)), model, pictures), expected, atol=1e-6)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_pytorch_runs_them(tmp_path: Path, folder: Path, form: dict[str, Any]) -> None:
    need_onnx2torch()
    import torch

    from segmentation.stages.inference.compiler.onnx_to_torch import convert, probabilities
    from segmentation.stages.inference.torch import TorchInference

    model = model_of(make_form(tmp_path / "m.onnx", **form), **labels(form))
    pictures = picture_inputs(model)
    expected = OnnxRuntimeInference(model, Config())(pictures).masks
    eager = TorchInference(model, Config(infer="torch", device="cpu"))(pictures).masks
    np.testing.assert_allclose(eager, expected, atol=1e-4)
    with torch.inference_mode():
        scores = convert(fp16_graph(model, 4), torch.device("cpu"))(torch.from_numpy(pictures))
    found = probabilities(scores, model).numpy()
    assert ((found > 0.5) == (expected > 0.5)).mean() > 0.99


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_engines_are_built_of_them(tmp_path: Path, folder: Path, form: dict[str, Any]) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    from segmentation.engines.build import obtain
    from segmentation.engines.spec import EngineOptions, EngineSpec
    from segmentation.engines.variant import choose, installed

    model = model_of(make_form(tmp_path / "m.onnx", **form), **labels(form))
    variant = choose(None, installed(), "tensorrt_rtx", build=True)
    engine, _ = obtain(EngineSpec(model=model, options=EngineOptions(batch=(2, 2, 2)), variant=variant))
    read = model_of(engine)
    assert (read.height, read.width, read.labels, read.keep) == (*SIZE, model.labels, model.keep)
    assert read.form.plain and read.std == model.std


def quantized(path: Path, target: Path, *, symmetric: bool = False) -> Path:
    """The network in int8, with Q/DQ nodes, as ONNX Runtime's own tools write it: one prepares it, which folds it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quant_pre_process, quantize_static

    model = model_of(path)

    class Pictures(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(picture_inputs(model))

        def get_next(self) -> Any:
            picture = next(self._left, None)
            return None if picture is None else {model.input_name: picture[None]}

    options: dict[str, Any] = {"quant_format": QuantFormat.QDQ, "per_channel": True}
    options["extra_options"] = {"ActivationSymmetric": symmetric}
    quant_pre_process(str(path), str(target), skip_symbolic_shape=True)
    quantize_static(str(target), str(target), Pictures(), **options)
    original = onnx.load(path)
    copy = onnx.load(target)
    helper.set_model_props(copy, {prop.key: prop.value for prop in original.metadata_props})
    onnx.save(copy, target)
    return target


@pytest.mark.slow
@pytest.mark.parametrize("name", ["person", "unet"])
def test_networks_in_int8(tmp_path: Path, name: str) -> None:
    path = make_unet(tmp_path / "unet.onnx") if name == "unet" else ROOT / "segmentation" / "models" / "person.onnx"
    whole = model_of(path)
    model = model_of(quantized(path, tmp_path / "int8.onnx"))
    assert {node.op_type for node in onnx.load(model.path).graph.node} >= {"QuantizeLinear", "DequantizeLinear"}
    assert (model.labels, model.mean, model.height) == (whole.labels, whole.mean, whole.height)
    pictures = picture_inputs(whole)
    expected = OnnxRuntimeInference(whole, Config())(pictures).masks > 0.5
    found = OnnxRuntimeInference(model, Config())(pictures).masks > 0.5
    assert expected.mean() > 0.05
    assert (found & expected).sum() / (found | expected).sum() > 0.9


def test_pytorch_leaves_int8_to_others_and_engines_take_it(tmp_path: Path, folder: Path) -> None:
    need_onnx2torch()
    from segmentation.stages.inference.torch import TorchInference

    path = make_unet(tmp_path / "unet.onnx")
    model = model_of(quantized(path, tmp_path / "int8.onnx", symmetric=True))
    with pytest.raises(UnknownOperator, match="use --infer onnxruntime or tensorrt") as caught:
        TorchInference(model, Config(infer="torch", device="cpu"))
    assert "\n" not in str(caught.value)
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    from segmentation.engines.build import obtain
    from segmentation.engines.spec import EngineOptions, EngineSpec
    from segmentation.engines.variant import choose, installed

    variant = choose(None, installed(), "tensorrt_rtx", build=True)
    graph = prepare(model, 2)
    pictures = picture_inputs(model)
    found = OnnxRuntimeInference(model, Config())(pictures).masks
    np.testing.assert_allclose(masks(session_of(graph), model, pictures), found, atol=0.02)  # biases are not rounded
    engine, _ = obtain(EngineSpec(model=model, options=EngineOptions(batch=(2, 2, 2)), variant=variant))
    assert model_of(engine).height == model.height
    uneven = model_of(quantized(path, tmp_path / "uneven.onnx"))
    with pytest.raises(EngineError, match="can't be built by TensorRT-RTX") as refused:
        obtain(EngineSpec(model=uneven, options=EngineOptions(batch=(2, 2, 2)), variant=variant))
    assert "\n" not in str(refused.value)


# What people have


@pytest.mark.parametrize(
    ("name", "options", "arguments"),
    [
        ("mediapipe-selfie-256.onnx", {}, []),
        ("pp-humanseg-v1-lite-398x224.onnx", {"model_type": "pphumanseg"}, ["--model-type", "pphumanseg"]),
    ],
)
def test_real_networks(tmp_path: Path, name: str, options: dict[str, Any], arguments: list[str]) -> None:
    path = teacher(name)
    model = model_of(path, **options)
    assert (model.kept, model.activation) == (("person",), "none")
    pictures = picture_inputs(model)
    session = session_of(onnx.load(path))
    if "selfie" in name:
        assert (model.height, model.width, model.labels) == (256, 256, ("person",))
        rgb = pictures.transpose(0, 2, 3, 1)
        by_hand = np.concatenate([session.run(None, {model.input_name: p[None]})[0][..., 0] for p in rgb])
    else:
        assert (model.height, model.width, model.labels, model.mean) == (224, 398, LABELS, (0.5,) * 3)
        by_hand = np.concatenate([session.run(None, {model.input_name: p[None]})[0][:, 1] for p in pictures])
    found = OnnxRuntimeInference(model, Config())(pictures).masks
    np.testing.assert_allclose(found, by_hand, atol=1e-4)
    out = tmp_path / "out.mkv"
    done = cli(
        SAMPLE, "-o", out, "--model", path, *arguments, "--effect", "mask", "--max-frames", "3", "--device", "cpu"
    )
    assert done.returncode == 0 and out.is_file(), done.stderr


def test_a_real_network_with_channels_last_becomes_one_of_pytorch_and_an_engine(folder: Path) -> None:
    need_onnx2torch()
    import torch

    from segmentation.stages.inference.compiler.onnx_to_torch import convert, probabilities

    model = model_of(teacher("mediapipe-selfie-256.onnx"))
    picture = picture_inputs(model)[:1]
    expected = OnnxRuntimeInference(model, Config())(picture).masks
    with torch.inference_mode():
        scores = convert(fp16_graph(model, 1), torch.device("cpu"))(torch.from_numpy(picture))
    found = probabilities(scores, model).numpy()
    assert ((found > 0.5) == (expected > 0.5)).mean() > 0.99
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    from segmentation.engines.build import obtain
    from segmentation.engines.spec import EngineOptions, EngineSpec
    from segmentation.engines.variant import choose, installed

    variant = choose(None, installed(), "tensorrt_rtx", build=True)
    engine, _ = obtain(EngineSpec(model=model, options=EngineOptions(batch=(1, 1, 1)), variant=variant))
    assert model_of(engine).height == 256


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_gpu_runs_them_as_a_cuda_graph(tmp_path: Path, folder: Path, form: dict[str, Any]) -> None:
    import torch
    from stages import gpu

    from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

    model = model_of(make_form(tmp_path / "m.onnx", **form), **labels(form))
    pictures = picture_inputs(model)
    expected = OnnxRuntimeInference(model, Config())(pictures).masks
    infer = TorchFp16Inference(model, Config(batch_size=len(pictures)), gpu())
    found = infer(torch.from_numpy(pictures).to(gpu().device)).masks
    torch.cuda.synchronize()
    assert ((found.cpu().numpy() > 0.5) == (expected > 0.5)).mean() > 0.99


# What is said otherwise


def test_labels_may_come_in_any_order(tmp_path: Path) -> None:
    path = make_form(tmp_path / "m.onnx")
    pictures = picture_inputs(model_of(path))
    person = OnnxRuntimeInference(model_of(path, labels=("person", "background")), Config())(pictures).masks
    other = OnnxRuntimeInference(model_of(path), Config())(pictures).masks
    np.testing.assert_allclose(np.asarray(person) + np.asarray(other), 1, atol=1e-5)


def test_several_outputs_may_be_chosen_from(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "one"], ["a"]), helper.make_node("ReduceMax", ["x"], ["b"], axes=[1])]
    size: list[Any] = ["N", 3, *SIZE]
    outputs = [VALUE("a", TensorProto.FLOAT, size), VALUE("b", TensorProto.FLOAT, ["N", 1, *SIZE])]
    inputs = [VALUE("x", TensorProto.FLOAT, size)]
    path = write(tmp_path / "m.onnx", nodes, inputs, outputs, {"one": np.float32(1)})
    assert model_of(path).output_name == "a"
    model = model_of(path, model_output="b")
    assert (model.output_name, model.labels, model.form.first) == ("b", ("person",), False)
    pictures = picture_inputs(model)
    found = OnnxRuntimeInference(model, Config())(pictures).masks
    np.testing.assert_allclose(found, pictures.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(masks(session_of(prepare(model, None)), model, pictures), found, atol=1e-6)
    path = write(tmp_path / "n.onnx", nodes, inputs, outputs, {"one": np.float32(1)}, metadata={"model_output": "b"})
    assert model_of(path).output_name == "b"
    with pytest.raises(ModelError, match="has no output c; choose --model-output from a, b"):
        model_of(path, model_output="c")


@pytest.mark.parametrize(
    ("form", "options", "hint"),
    [
        ({"output": "labels"}, {}, "puts out class numbers, and nothing says of which classes; give --labels"),
        (
            {"bytes": True},
            {"mean": (0.5, 0.5, 0.5)},
            "its input is uint8, which is 0 to 255 as it is; leave out --mean",
        ),
        ({}, {"model_inputs": ("ratio=1",)}, "has no input ratio; its inputs are picture"),
    ],
)
def test_what_does_not_fit_is_one_line(
    tmp_path: Path, form: dict[str, Any], options: dict[str, Any], hint: str
) -> None:
    with pytest.raises(ModelError) as caught:
        model_of(make_form(tmp_path / "m.onnx", **form), **options)
    assert hint in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["faces-yunet.onnx", "faces-masked-rfb640.onnx"])
def test_networks_that_find_boxes_are_no_segmentation(name: str) -> None:
    path = shared_network(name)
    with pytest.raises(ModelError, match="is no segmentation model") as caught:
        model_of(path, task="segmentation")
    assert "\n" not in str(caught.value)


def test_an_input_that_always_holds_the_same_is_an_option(tmp_path: Path) -> None:
    """Also in the graph, where it becomes a constant."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["most", "gain"], ["product"]),
        helper.make_node("Clip", ["product", "", "top"], ["y"]),
    ]
    inputs = [VALUE("gain", TensorProto.FLOAT, [1]), VALUE("x", TensorProto.FLOAT, ["N", 3, *SIZE])]
    outputs = [VALUE("y", TensorProto.FLOAT, ["N", 1, *SIZE])]
    path = write(tmp_path / "m.onnx", nodes, inputs, outputs, {"top": np.float32(1)})
    with pytest.raises(
        ModelError, match="nothing says what its inputs gain hold; give them with --model-input NAME=VALUE"
    ):
        model_of(path)
    model = model_of(path, model_inputs=("gain=0.5",))
    pictures = picture_inputs(model)
    expected = pictures.max(axis=1) / 2
    np.testing.assert_allclose(OnnxRuntimeInference(model, Config())(pictures).masks, expected, atol=1e-6)
    np.testing.assert_allclose(masks(session_of(prepare(model, None)), model, pictures), expected, atol=1e-6)
    with pytest.raises(ModelError, match=r"its input gain is tensor\(float\) \[1\], and can't be 1,2"):
        model_of(path, model_inputs=("gain=1,2",))
