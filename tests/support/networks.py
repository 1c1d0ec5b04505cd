"""Small networks of known weights, and files that are no network that the program takes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from paths import SHARED

from segmentation import Config
from segmentation.models.model import Model, load_model

RED = [[1.0, 0.0, 0.0]]
RED_ONLY = np.array([1, 0, 0], np.float32).reshape(1, 3, 1, 1)


def make_model(
    path: Path,
    weights: list[list[float]],
    *,
    bias: list[float] | None = None,
    batch: Any = "N",
    size: Any = (32, 48),
    dtype: int = TensorProto.FLOAT,
    opset: int = 17,
    activation: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Path:
    """A network whose channel c is `weights[c]` times (R, G, B) plus a bias, at half the input's size."""
    kind = np.float16 if dtype == TensorProto.FLOAT16 else np.float32
    kernel = np.array(weights, kind).reshape(len(weights), 3, 1, 1)
    start = numpy_helper.from_array(kernel, "kernel:0")
    offset = numpy_helper.from_array(np.array(bias or [0.0] * len(weights), kind), "bias:0")
    name = "Identity:0" if activation is None else "scores"
    nodes = [helper.make_node("Conv", ["x:0", "kernel:0", "bias:0"], [name], strides=[2, 2])]
    if activation is not None:
        attributes = {"axis": 1} if activation == "Softmax" else {}
        nodes.append(helper.make_node(activation, [name], ["Identity:0"], **attributes))
    half = tuple(s // 2 if isinstance(s, int) else f"half_{s}" for s in size)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x:0", dtype, [batch, 3, *size])],
        [helper.make_tensor_value_info("Identity:0", dtype, [batch, len(weights), *half])],
        [start, offset],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


def broken(path: Path, kind: str) -> Path:
    value = helper.make_tensor_value_info
    if kind == "text":
        path.write_text("not an ONNX file")
        return path
    if kind == "two inputs":
        inputs = [value("a", TensorProto.FLOAT, [1, 3, 8, 8]), value("b", TensorProto.FLOAT, [1, 3, 8, 8])]
        nodes, outputs = [helper.make_node("Add", ["a", "b"], ["y"])], [value("y", TensorProto.FLOAT, [1, 3, 8, 8])]
    elif kind == "classifier":
        inputs, outputs = [value("a", TensorProto.FLOAT, [1, 3, 8, 8])], [value("y", TensorProto.FLOAT, [1, 192])]
        nodes = [helper.make_node("Flatten", ["a"], ["y"])]
    elif kind == "whole numbers":
        inputs, outputs = [value("a", TensorProto.INT32, [1, 3, 8, 8])], [value("y", TensorProto.FLOAT, [1, 3, 8, 8])]
        nodes = [helper.make_node("Cast", ["a"], ["y"], to=TensorProto.FLOAT)]
    else:
        inputs, outputs = [value("a", TensorProto.FLOAT, [1, 4, 8, 8])], [value("y", TensorProto.FLOAT, [1, 4, 8, 8])]
        nodes = [helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=7), path)
    return path


def model_of(path: Path | str, **options: Any) -> Model:
    return load_model(Config(model=str(path), **options))


def shared_network(name: str) -> Path:
    """Returns a file of ../shared/models, and skips the test where that is missing."""
    path = SHARED / "models" / name
    if not path.is_file():
        pytest.skip("../shared/models is not here")
    return path


def portrait() -> Path:
    return shared_network("prisma-portrait.onnx")


def chain(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any], *, batch: Any = "N") -> Path:
    """A network from `x` (N, 3, 32, 48) to `y` (N, 1, 32, 48) of these nodes."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 32, 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 1, 32, 48])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"/{output}/{op}", **attributes)


def nothing(path: Path, value: float, limit: float = 0.43) -> Path:
    """A mask of `value`, without numbers where the red is above the limit: the root of what is below 0 is NaN."""
    weights = {"red": RED_ONLY, "limit": np.float32(limit), "zero": np.float32(0), "value": np.float32(value)}
    nodes = [node("Conv", "x red", "light"), node("Sub", "limit light", "rest"), node("Sqrt", "rest", "root")]
    return chain(path, [*nodes, node("Mul", "root zero", "nothing"), node("Add", "nothing value", "y")], weights)


def overflow(path: Path) -> Path:
    """Values of some 100,000 on the way, far above FP16's 65,504, and a mask of the red places."""
    nodes = [
        node("Conv", "x kernel", "raw"),
        node("Relu", "raw", "red"),  # or the convolution and the product would be folded into one
        node("Mul", "red large", "huge"),
        node("Div", "huge large", "small"),
        node("Sub", "small half", "centred"),
        node("Mul", "centred ten", "scores"),
        node("Sigmoid", "scores", "y"),
    ]
    weights = {"kernel": RED_ONLY, "large": np.float32(3e5), "half": np.float32(0.5), "ten": np.float32(10)}
    return chain(path, nodes, weights)


def unbuildable(path: Path) -> Path:
    """A network with an operator that TensorRT lacks, at /number/Det."""
    nodes = [
        node("Conv", "x kernel", "scores"),
        node("Det", "scores", "number"),
        node("Unsqueeze", "number axes", "wide"),
        node("Add", "scores wide", "y"),
    ]
    graph = onnx.load(chain(path, nodes, {"kernel": RED_ONLY, "axes": np.int64([2, 3])}))
    for value in (graph.graph.input[0], graph.graph.output[0]):
        value.type.tensor_type.shape.dim[2].dim_value = value.type.tensor_type.shape.dim[3].dim_value = 32
    onnx.save(graph, path)
    return path


def quantized(path: Path) -> Path:
    """A network whose convolution is in INT8, stated by Q/DQ nodes."""
    nodes = [
        node("QuantizeLinear", "x scale zero", "xq"),
        node("DequantizeLinear", "xq scale zero", "xd"),
        node("DequantizeLinear", "kernel scale zero", "kd"),
        node("Conv", "xd kd", "scores"),
        node("Sigmoid", "scores", "y"),
    ]
    kernel = np.array([100, 0, 0], np.int8).reshape(1, 3, 1, 1)
    return chain(path, nodes, {"scale": np.float32(0.02), "zero": np.int8(0), "kernel": kernel})
