"""A small network of dynamic size, as people export them: a U-Net that tells bright places from dark ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = [[48, 80], [64, 64], [80, 48]]  # height, width


def make_unet(path: Path, *, sizes: Any = SIZES, metadata: dict[str, str] | None = None) -> Path:
    """Writes a network from `input` (N, 3, H, W) to `mask` (N, 1, H, W), all but the channels dynamic.

    It halves the picture twice, enlarges it with scales and joins what was skipped. `sizes` is its `input_size`.
    """
    generator = np.random.default_rng(1)
    weights = {
        "first": generator.normal(0, 0.1, (8, 3, 3, 3)),
        "second": generator.normal(0, 0.1, (16, 8, 3, 3)),
        "last": generator.normal(0, 0.3, (1, 24, 1, 1)),
        "bias": np.array([-12.0]),
        "twice": np.array([1, 1, 2, 2]),
    }
    weights["first"][0] = 1 / 27  # brightness
    weights["last"][0, 0] = 30.0

    def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs.split(","), [output], **attributes)

    halve: dict[str, Any] = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", "input,first", "first_scores", **halve),
        node("Relu", "first_scores", "skipped"),
        node("Conv", "skipped,second", "second_scores", **halve),
        node("Relu", "second_scores", "deep"),
        node("Resize", "deep,,twice", "enlarged", mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Concat", "skipped,enlarged", "joined", axis=1),
        node("Conv", "joined,last,bias", "small"),
        node("Resize", "small,,twice", "scores", mode="linear", coordinate_transformation_mode="half_pixel"),
        node("Sigmoid", "scores", "mask"),
    ]
    graph = helper.make_graph(
        nodes,
        "unet",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["N", 1, "H", "W"])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    said = {"labels": '["person"]', "activation": "none", **(metadata or {})}
    helper.set_model_props(model, said if sizes is None else {**said, "input_size": json.dumps(sizes)})
    onnx.save(model, path)
    return path
