"""Types of networks: the meaning of each type whose files state none, on small networks of the same form."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from drawn import make_info
from forms import VALUE, make_form, make_u2net, write
from networks import RED, make_model
from onnx import TensorProto, helper
from program import cli

from segmentation import Config, ConfigError, ModelError
from segmentation.frames import Color
from segmentation.models.input_size import sizes_of
from segmentation.models.metadata import KEYS
from segmentation.models.model import VOC, Model, load_model
from segmentation.models.scores import probabilities
from segmentation.options.model_types import TYPES
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def make_scores(path: Path, outputs: dict[str, int], *, bias: float = 3.0) -> Path:
    """Writes a network of dynamic size without metadata. `outputs` are the numbers of channels by name.

    Each channel is the picture's mean color times 10, minus `bias`.
    """
    kernels = {f"{name}/kernel": np.full((count, 3, 1, 1), 10 / 3, np.float32) for name, count in outputs.items()}
    biases = {
        f"{name}/bias": np.full(count, -bias - 10 * number, np.float32)
        for number, (name, count) in enumerate(outputs.items())
    }
    nodes = [helper.make_node("Conv", ["input", f"{name}/kernel", f"{name}/bias"], [name]) for name in outputs]
    given = [VALUE("input", TensorProto.FLOAT, ["N", 3, "H", "W"])]
    found = [VALUE(name, TensorProto.FLOAT, ["N", count, "H", "W"]) for name, count in outputs.items()]
    return write(path, nodes, given, found, {**kernels, **biases})


def model_of(path: Path, **options: Any) -> Model:
    return load_model(Config(model=path, **options))


@pytest.mark.parametrize("name", TYPES)
def test_the_table_holds_what_metadata_may_hold(name: str) -> None:
    entry = TYPES[name]
    assert set(entry) <= set(KEYS) and {"mean", "std", "labels"} <= set(entry)
    assert len(entry["mean"]) == len(entry["std"]) == 3 and all(value > 0 for value in entry["std"])
    if "input_size" in entry:
        assert sizes_of(entry["input_size"], Path("x"))
    Config(model_type=name, activation=entry.get("activation"))


def test_modnet_runs_at_the_size_that_its_authors_would_choose(tmp_path: Path) -> None:
    """The shorter side 512, both in multiples of 32."""
    path = make_scores(tmp_path / "m.onnx", {"output": 1})
    for size, expected in (((1920, 1080), (512, 896)), ((1080, 1920), (896, 512)), ((640, 480), (512, 672))):
        model = load_model(Config(model=path, model_type="modnet"), make_info(*size, Color()))
        assert (model.height, model.width) == expected
        assert (model.mean, model.std, model.activation, model.labels) == ((0.5,) * 3, (0.5,) * 3, "none", ("person",))


def test_u2net_is_recognised_by_its_seven_outputs(tmp_path: Path) -> None:
    path = make_u2net(tmp_path / "m.onnx")
    model = model_of(path)
    assert (model.mean, model.std) == IMAGENET
    assert (model.output_name, model.activation, model.labels, model.batch) == ("1959", "minmax", ("object",), 1)
    pictures = np.linspace(0, 1, 2 * 3 * 320 * 320, dtype=np.float32).reshape(2, 3, 320, 320)
    masks = OnnxRuntimeInference(model, Config())(pictures).masks
    for mask in masks:  # each stretched to 0..1 by itself
        assert mask.min() == 0 and mask.max() == pytest.approx(1)
    assert np.abs(masks[0] - masks[1]).max() < 1e-3
    plain = OnnxRuntimeInference(model_of(path, activation="none"), Config())(pictures).masks
    assert plain.max() == pytest.approx((4 / 6 + 5 / 6 + 1) / 3 / 2, abs=1e-3)


def test_where_all_is_the_same_nothing_is_stretched(tmp_path: Path) -> None:
    model = model_of(make_u2net(tmp_path / "m.onnx"))
    assert not probabilities(np.full((1, 1, 4, 4), 0.3, np.float32), model).any()


def test_pytorch_stretches_alike(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", minversion="2")
    onnx_to_torch = pytest.importorskip("segmentation.stages.inference.compiler.onnx_to_torch")
    model = model_of(make_u2net(tmp_path / "m.onnx"))
    scores = np.random.default_rng(0).normal(0, 3, (3, 1, 5, 7)).astype(np.float32)
    scores[2] = 0.3
    found = onnx_to_torch.probabilities(torch.from_numpy(scores), model).numpy()
    np.testing.assert_allclose(found, probabilities(scores, model), atol=1e-6)


def test_birefnet_is_the_sigmoid_of_the_last_output(tmp_path: Path) -> None:
    path = make_scores(tmp_path / "m.onnx", {"early": 1, "late": 1})
    model = model_of(path, model_type="birefnet", input_size=(32, 48))
    assert (model.output_name, model.activation, (model.mean, model.std)) == ("late", "sigmoid", IMAGENET)
    assert model_of(path, model_type="birefnet", input_size=(32, 48), model_output="early").output_name == "early"
    assert (TYPES["birefnet"]["input_size"], model_of(path).output_name) == ([1024, 1024], "early")


def test_deeplab_of_torchvision_has_an_auxiliary_output(tmp_path: Path) -> None:
    model = model_of(make_scores(tmp_path / "m.onnx", {"out": 21, "aux": 21}), model_type="deeplab")
    assert (model.output_name, model.labels, model.kept, model.activation) == ("out", VOC, ("person",), "softmax")
    assert (model.height, model.width, (model.mean, model.std)) == (520, 520, IMAGENET)


def test_deeplab_of_tensorflow_takes_bytes_and_puts_out_class_numbers(tmp_path: Path) -> None:
    path = make_form(tmp_path / "m.onnx", last=True, bytes=True, output="labels")
    model = model_of(path, model_type="deeplab-tf", classes=("aeroplane",))
    assert (model.labels, model.keep, model.form.classes, model.activation) == (VOC, (1,), 21, "none")
    pictures = np.zeros((1, 3, 32, 48), np.float32)
    pictures[:, 0, :, 24:] = 255
    masks = OnnxRuntimeInference(model, Config())(pictures).masks
    assert np.array_equal(masks[0], np.repeat([[0, 1]], 16, axis=0).repeat(12, axis=1))


@pytest.mark.parametrize("output", ["scores", "labels"])
def test_pphumanseg_ends_in_a_softmax_or_an_argmax(tmp_path: Path, output: str) -> None:
    model = model_of(make_form(tmp_path / "m.onnx", output=output), model_type="pphumanseg")
    assert (model.mean, model.std, model.kept, model.activation) == ((0.5,) * 3, (0.5,) * 3, ("person",), "none")


@pytest.mark.parametrize("size", [(256, 256), (144, 256)])
def test_selfie_is_recognised_by_its_shape(tmp_path: Path, size: tuple[int, int], caplog: Any) -> None:
    caplog.set_level("INFO")
    nodes = [helper.make_node("ReduceMean", ["input_1:0"], ["activation_10"], axes=[3], keepdims=1)]
    given = [VALUE("input_1:0", TensorProto.FLOAT, [1, *size, 3])]
    found = [VALUE("activation_10", TensorProto.FLOAT, [1, *size, 1])]
    model = model_of(write(tmp_path / "m.onnx", nodes, given, found, {}))
    assert "is of the type selfie" in caplog.text
    assert ((model.height, model.width), model.labels, model.form.output_last) == (size, ("person",), True)


def test_others_are_not_recognised(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level("INFO")
    for path in (make_model(tmp_path / "a.onnx", RED), make_scores(tmp_path / "b.onnx", {"output": 1})):
        model_of(path)
    assert "is of the type" not in caplog.text


# What goes before what


def test_the_type_overrides_nothing_that_the_file_says(tmp_path: Path) -> None:
    """Options, then metadata, then the .json, then the type."""
    said = {"mean": "[0.1, 0.2, 0.3]", "labels": '["cat"]'}
    path = make_model(tmp_path / "m.onnx", RED, metadata=said)
    path.with_suffix(".json").write_text(json.dumps({"std": [0.3, 0.3, 0.3], "mean": [9, 9, 9]}))
    model = model_of(path, model_type="modnet")
    assert (model.mean, model.std, model.labels) == ((0.1, 0.2, 0.3), (0.3, 0.3, 0.3), ("cat",))
    model = model_of(path, model_type="modnet", std=(0.7, 0.7, 0.7), labels=("dog",))
    assert (model.mean, model.std, model.labels) == ((0.1, 0.2, 0.3), (0.7, 0.7, 0.7), ("dog",))
    assert model_of(path, model_type="modnet", activation="sigmoid").activation == "sigmoid"


def test_a_recognised_type_too(tmp_path: Path) -> None:
    path = make_u2net(tmp_path / "m.onnx")
    assert model_of(path, model_type="birefnet").output_name == "1965"  # what is asked for, not what is recognised
    graph = onnx.load(path)
    helper.set_model_props(graph, {"activation": "none", "labels": '["person"]', "model_output": "1961"})
    onnx.save(graph, path)
    model = model_of(path)
    assert (model.activation, model.labels, model.output_name) == ("none", ("person",), "1961")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({"model_inputs": "[1]"}, "its model_inputs are [1]; an object of names and numbers is needed"),
        ({"model_inputs": '{"x:0": "a"}'}, "an object of names and numbers is needed"),
        ({"model_inputs": "{"}, "its metadata model_inputs is '{'; a JSON value is needed"),
        ({"model_output": "nowhere"}, "has no output nowhere; choose --model-output from Identity:0"),
    ],
)
def test_metadata_that_does_not_fit_is_one_line(tmp_path: Path, said: dict[str, str], hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        model_of(make_model(tmp_path / "m.onnx", RED, metadata=said))
    assert hint in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_type_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model type 'rvn' is unknown: choose rvm, modnet"):
        Config(model_type="rvn")
    done = cli("in.mp4", "--model-type", "rvn")
    assert done.returncode == 2 and "invalid choice: 'rvn'" in done.stderr
