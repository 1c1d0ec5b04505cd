"""Weights in bytes: the same network in a smaller file."""

import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from paths import ROOT

from segmentation.models.model import BUILT_IN

sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

from compact import compact, steps


def multiples(shape: tuple[int, ...], lowest: int, highest: int, step: float) -> NDArray[np.float32]:
    numbers = np.random.default_rng(1).integers(lowest, highest, shape, endpoint=True)
    numbers.flat[:2] = lowest, highest
    return numbers.astype(np.float32) * np.float32(step)


@pytest.mark.parametrize("lowest", [-127, -200, 0])
@pytest.mark.parametrize("step", [0.013, 1 / 3, 2e-4])
def test_multiples_of_a_step_come_back_to_the_bit(lowest: int, step: float) -> None:
    weights = multiples((64, 32, 1, 1), lowest, lowest + 255, step)
    found = steps(weights)
    assert found is not None
    levels, offset, size = found
    assert levels.dtype == np.uint8 and levels.shape == weights.shape
    assert np.array_equal((levels.astype(np.float32) + offset) * size, weights)


@pytest.mark.parametrize("weights", ["few", "any", "wide", "same"])
def test_other_weights_have_no_step(weights: str) -> None:
    made = {
        "few": multiples((8, 8, 3, 3), -127, 127, 0.1),
        "any": np.random.default_rng(2).normal(size=(64, 32, 1, 1)).astype(np.float32),
        "wide": multiples((64, 32, 1, 1), -200, 200, 0.1),
        "same": np.ones((64, 32, 1, 1), np.float32),
    }
    assert steps(made[weights]) is None


def test_the_network_stays_the_same() -> None:
    """Two convolutions, of which one has weights that are multiples of a step."""
    constants = {"a": multiples((32, 3, 4, 4), -100, 127, 0.01), "b": np.random.default_rng(3).random((32, 32, 1, 1))}
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    nodes = [helper.make_node("Conv", ["x", "a"], ["y"]), helper.make_node("Conv", ["y", "b"], ["z"])]
    source, output = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, None, None])
        for name, channels in (("x", 3), ("z", 32))
    )
    made = helper.make_graph(nodes, "g", [source], [output], tensors)
    graph = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    before = graph.SerializeToString()
    assert compact(graph) == 1
    onnx.checker.check_model(graph, full_check=True)
    picture = np.random.default_rng(4).random((1, 3, 12, 16), np.float32)
    one, other = (
        ort.InferenceSession(content).run(None, {"x": picture})[0] for content in (before, graph.SerializeToString())
    )
    assert np.array_equal(one, other)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_files_are_small(name: str) -> None:
    assert BUILT_IN[name].stat().st_size < 5_500_000
    assert compact(onnx.load(BUILT_IN[name])) == 0  # what can be in bytes is
