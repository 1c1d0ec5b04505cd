"""Any segmentation ONNX: the meaning of its input and output, from each place that states it."""

import json
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import RED, RED_ONLY, broken, chain, make_model, node, portrait
from onnx import TensorProto

from segmentation import Config, ModelError
from segmentation.models.model import BUILT_IN, PEOPLE, load_model
from segmentation.models.scores import probabilities
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference


def red(value: float, count: int = 1, height: int = 32, width: int = 48) -> np.ndarray[Any, Any]:
    """A batch of red pictures (N, 3, H, W)."""
    batch = np.zeros((count, 3, height, width), np.float32)
    batch[:, 0] = value
    return batch


def test_the_built_in_model_says_everything_itself() -> None:
    model = load_model(Config())
    assert model.labels == ("person",)
    assert model.activation == "none"
    assert model.batch is None
    assert (model.height, model.width) == (192, 336)  # most videos' shape, and multiples of 16
    assert len(zlib.compress(model.path.read_bytes())) < 4_000_000  # as in a wheel


@pytest.mark.parametrize("name", PEOPLE)
def test_a_built_in_model_is_what_a_run_of_it_shows(name: str, tmp_path: Path) -> None:
    copy = shutil.copy(BUILT_IN[name], tmp_path / "copy.onnx")  # no longer one whose statements are believed
    shown = load_model(Config(model=str(copy)))
    assert load_model(Config(model=name)) == replace(shown, name=name, path=BUILT_IN[name])


@pytest.mark.parametrize("labels", [5, "person", {"0": "person"}])
def test_labels_that_are_no_list_are_refused(tmp_path: Path, labels: object) -> None:
    path = make_model(tmp_path / "m.onnx", RED)
    path.with_suffix(".json").write_text(json.dumps({"labels": labels}))
    with pytest.raises(ModelError, match=r"its labels .*: must be a list of texts"):
        load_model(Config(model=path))


def test_a_model_without_a_word_about_itself(tmp_path: Path) -> None:
    model = load_model(Config(model=str(make_model(tmp_path / "m.onnx", RED, bias=[0.2], opset=7))))
    assert (model.input_name, model.output_name) == ("x:0", "Identity:0")
    assert (model.mean, model.std, model.channel_order) == ((0, 0, 0), (1, 1, 1), "rgb")
    assert (model.labels, model.keep) == (("person",), (0,))


@pytest.mark.parametrize(
    ("weights", "bias", "activation", "expected"),
    [
        ([[4.0, 0, 0]], [-2.0], None, "sigmoid"),
        ([[4.0, 0, 0]], [-2.0], "Sigmoid", "none"),
        ([[4.0, 0, 0], [0, 4.0, 0]], [-2.0, 0], None, "softmax"),
        ([[4.0, 0, 0], [0, 4.0, 0]], [-2.0, 0], "Softmax", "none"),
    ],
)
def test_whether_the_output_is_a_probability_is_found_out(
    tmp_path: Path, weights: list[list[float]], bias: list[float], activation: str | None, expected: str
) -> None:
    opset = 13 if activation == "Softmax" else 11
    path = make_model(tmp_path / "m.onnx", weights, bias=bias, activation=activation, opset=opset)
    assert load_model(Config(model=str(path))).activation == expected


def test_the_order_of_what_is_believed(tmp_path: Path) -> None:
    """Options, then metadata, then the .json, then defaults."""
    path = make_model(tmp_path / "m.onnx", RED, metadata={"mean": "[0.1, 0.2, 0.3]", "channel_order": "BGR"})
    path.with_suffix(".json").write_text(json.dumps({"mean": [9, 9, 9], "std": [0.5, 0.5, 0.5], "labels": ["cat"]}))
    model = load_model(Config(model=str(path)))
    assert (model.mean, model.std, model.channel_order) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5), "bgr")
    assert model.labels == ("cat",) and model.keep == (0,)
    model = load_model(Config(model=str(path), mean=(0.7, 0.7, 0.7), labels=("dog",), channel_order="rgb"))
    assert (model.mean, model.labels, model.channel_order) == ((0.7, 0.7, 0.7), ("dog",), "rgb")


def test_a_dynamic_size_is_512_unless_said(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", RED, size=("h", "w"))
    model = load_model(Config(model=str(path)))
    assert (model.height, model.width) == (512, 512)
    model = load_model(Config(model=str(path), input_size=(64, 96)))
    assert (model.height, model.width) == (64, 96)


def test_twenty_one_channels_are_pascal_voc(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", [[0.1 * i, 1, 1] for i in range(21)])
    model = load_model(Config(model=str(path)))
    assert model.keep == (15,) and model.labels[15] == "person"
    model = load_model(Config(model=str(path), classes=("cat", "dog")))
    assert [model.labels[k] for k in model.keep] == ["cat", "dog"]


@pytest.mark.parametrize("batch", ["N", 1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_batch_through_any_model(tmp_path: Path, batch: Any, count: int) -> None:
    path = make_model(tmp_path / "m.onnx", [[10.0, 0, 0]], bias=[-5.0], batch=batch)
    config = Config(model=str(path))
    infer = OnnxRuntimeInference(load_model(config), config)
    tensor = red(1.0, count)
    tensor[-1] = 0
    masks = infer(tensor).masks
    assert masks.shape == (count, 16, 24) and masks.dtype == np.float32
    np.testing.assert_allclose(masks[-1], 1 / (1 + np.exp(5)), rtol=1e-4)
    if count > 1:
        np.testing.assert_allclose(masks[:-1], 1 / (1 + np.exp(-5)), rtol=1e-4)


def test_half_precision_models(tmp_path: Path) -> None:
    config = Config(model=str(make_model(tmp_path / "m.onnx", RED, dtype=TensorProto.FLOAT16)))
    model = load_model(config)
    masks = OnnxRuntimeInference(model, config)(red(0.5).astype(model.dtype)).masks
    assert masks.dtype == np.float32
    np.testing.assert_allclose(masks, 0.5)


def test_classes_are_added_up(tmp_path: Path) -> None:
    scores = np.log(np.array([0.5, 0.2, 0.3], np.float32)).reshape(1, 3, 1, 1)
    path = make_model(tmp_path / "m.onnx", [[3.0, 0, 0], [0, 3.0, 0], [0, 0, 3.0]], bias=[-1.0, 0, 1])
    options: dict[str, Any] = {"model": str(path), "labels": ("background", "person", "dog")}
    softmax = load_model(Config(**options, classes=("person", "dog")))
    np.testing.assert_allclose(probabilities(scores, softmax), [[[0.5]]], rtol=1e-5)


def test_the_shared_portrait_model_needs_no_option() -> None:
    model = load_model(Config(model=str(portrait())))
    assert (model.activation, model.labels, model.batch) == ("none", ("person",), None)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("text", "is not an ONNX model"),
        ("two inputs", "has 2 inputs (a, b)"),
        ("classifier", "is no segmentation model"),
        ("whole numbers", "tensor(int32)"),
        ("four channels", "(N, 3, H, W) or (N, H, W, 3) is needed"),
    ],
)
def test_what_is_no_segmentation_model(tmp_path: Path, kind: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(Config(model=str(broken(tmp_path / "m.onnx", kind))))
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"model": "nowhere.onnx"}, "no such model"),
        ({"model": "https://host/person.onnx"}, "https://host/person.onnx: is an address"),
        ({"model": "persons"}, "built-in name (person, person-hq, person-best, face)"),
        ({"classes": ("cat",)}, "choose from person"),
        ({"labels": ("a", "b")}, "2 labels for 1 output channels"),
    ],
)
def test_options_that_do_not_fit_the_model(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(Config(**options))
    assert hint in str(caught.value)


@pytest.mark.parametrize("content", ['{"mean": [1, 2]}', "{", "[1]"])
def test_a_broken_json_beside_the_model(tmp_path: Path, content: str) -> None:
    path = make_model(tmp_path / "m.onnx", RED)
    path.with_suffix(".json").write_text(content)
    with pytest.raises(ModelError):
        load_model(Config(model=str(path)))


def test_the_built_in_models_are_in_the_package() -> None:
    for path in BUILT_IN.values():
        assert path.is_file() and path.parent.name == "models"


@pytest.mark.parametrize("batch", [2, "N"])
@pytest.mark.parametrize(
    ("op", "inputs", "said"),
    [
        ("Slice", "scores zero zero rows", "which holds no mask"),
        ("Slice", "scores zero zero columns", "which holds no mask"),
        ("Slice", "scores zero one pictures", "masks are needed"),
        ("Tile", "scores twice", "masks are needed"),
    ],
    ids=["no rows", "no columns", "one for all", "two for each"],
)
def test_outputs_of_another_size_are_one_line(op: str, inputs: str, said: str, batch: Any, tmp_path: Path) -> None:
    weights = {"kernel": RED_ONLY, "twice": np.array([2, 1, 1, 1])}
    weights |= {name: np.array([value]) for value, name in ((0, "zero"), (1, "one"))}
    weights |= {name: np.array([axis]) for axis, name in ((0, "pictures"), (2, "rows"), (3, "columns"))}
    path = chain(
        tmp_path / "net.onnx", [node("Conv", "x kernel", "scores"), node(op, inputs, "y")], weights, batch=batch
    )
    graph = onnx.load(path)
    for side in graph.graph.output[0].type.tensor_type.shape.dim:
        side.Clear()  # nothing is said of the output
    onnx.save(graph, path)
    with pytest.raises(ModelError, match=said) as caught:
        load_model(Config(model=str(path)))
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
