"""Small networks in the forms that people's networks have: layouts, types of numbers, several inputs and outputs."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = (32, 48)  # height, width
VALUE = helper.make_tensor_value_info
RVM_INPUTS = ("src", "r1i", "r2i", "r3i", "r4i", "downsample_ratio")


def write(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, Any],
    opset: int = 17,
    metadata: dict[str, str] | None = None,
) -> Path:
    """Writes a network of these nodes."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


def make_form(
    path: Path, *, last: bool = False, bytes: bool = False, output: str = "scores", batch: Any = "N", opset: int = 17
) -> Path:
    """A network that tells red places (class 1) from others (class 0), at half the input's size.

    Its input is (N, 3, H, W) in 0..1, or with channels `last`, or `bytes`. Its `output` holds "scores" (N, 2, h, w),
    "scores last", one of them alone as "flat" (N, h, w), or class numbers: "labels" (N, h, w), "labels channel"
    (N, 1, h, w), "labels last" (N, h, w, 1).
    """
    nodes, value = [], "picture"
    if bytes:
        nodes += [helper.make_node("Cast", [value], ["cast"], to=TensorProto.FLOAT)]
        nodes += [helper.make_node("Mul", ["cast", "byte"], ["unit"])]
        value = "unit"
    if last:
        nodes += [helper.make_node("Transpose", [value], ["first"], perm=[0, 3, 1, 2])]
        value = "first"
    nodes += [helper.make_node("Conv", [value, "kernel", "bias"], ["logits"], strides=[2, 2])]
    nodes += [helper.make_node("Softmax", ["logits"], ["scores"], axis=1)]
    half = (SIZE[0] // 2, SIZE[1] // 2)
    shapes = {
        "scores": (2, *half),
        "scores last": (*half, 2),
        "flat": half,
        "labels": half,
        "labels channel": (1, *half),
        "labels last": (*half, 1),
    }
    if "last" in output:
        nodes += [helper.make_node("Transpose", ["scores"], ["turned"], perm=[0, 2, 3, 1])]
    if output.startswith("labels"):
        source, axis = ("turned", 3) if output == "labels last" else ("scores", 1)
        nodes += [helper.make_node("ArgMax", [source], ["out"], axis=axis, keepdims=int(output != "labels"))]
    elif output == "flat":
        nodes += [helper.make_node("Gather", ["scores", "one"], ["out"], axis=1)]
    else:
        nodes += [helper.make_node("Identity", ["turned" if output == "scores last" else "scores"], ["out"])]
    kernel = np.array([[-20, 0, 0], [20, 0, 0]], np.float32).reshape(2, 3, 1, 1)
    weights = {"kernel": kernel, "bias": np.array([10, -10], np.float32), "byte": np.float32(1 / 255)}
    weights["one"] = np.array(1, np.int64)
    picture = [batch, *((*SIZE, 3) if last else (3, *SIZE))]
    kind = TensorProto.INT64 if output.startswith("labels") else TensorProto.FLOAT
    return write(
        path,
        nodes,
        [VALUE("picture", TensorProto.UINT8 if bytes else TensorProto.FLOAT, picture)],
        [VALUE("out", kind, [batch, *shapes[output]])],
        weights,
        opset,
    )


def make_rvm(path: Path, *, share: float = 0.5, inputs: tuple[str, ...] = RVM_INPUTS, half: bool = False) -> Path:
    """A network with the inputs and outputs of RobustVideoMatting, of dynamic size.

    Its alpha is a running average of the picture's brightness, of which the last frame is `share`, times
    `downsample_ratio`. Only the first of the four states counts; it begins as (1, 1, 1, 1) and is as large as the
    picture from then on. With `half` all but the ratio is in FP16, as in the file of that name.
    """
    dtype, kind = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)
    source, first, second, third, fourth, ratio = inputs
    states = (first, second, third, fourth)
    out = [name[:-1] + "o" for name in states]
    node = helper.make_node
    nodes = [
        node("ReduceMean", [source], ["brightness"], axes=[1], keepdims=1),
        node("Mul", ["brightness", "share"], ["new"]),
        node("Mul", [first, "rest"], ["old"]),
        node("Add", ["new", "old"], [out[0]]),
        node("Cast", [ratio], ["factor"], to=kind),
        node("Mul", [out[0], "factor"], ["scaled"]),
        node("Clip", ["scaled", "least", "most"], ["pha"]),
        node("Identity", [source], ["fgr"]),
        *(node("Add", [name, "most"], [other]) for name, other in zip(states[1:], out[1:], strict=True)),
    ]
    floats = {"share": share, "rest": 1 - share, "least": 0, "most": 1}
    any_size = [VALUE(name, kind, ["N", f"{name}_c", f"{name}_h", f"{name}_w"]) for name in (*states, *out)]
    return write(
        path,
        nodes,
        [VALUE(source, kind, ["N", 3, "H", "W"]), *any_size[:4], VALUE(ratio, TensorProto.FLOAT, [1])],
        [VALUE("fgr", kind, ["N", 3, "H", "W"]), VALUE("pha", kind, ["N", 1, "H", "W"]), *any_size[4:]],
        {name: dtype(value) for name, value in floats.items()},
    )


def make_u2net(path: Path) -> Path:
    """A network with the outputs of U2-Net: seven of one channel, the first of which counts; here half as bright."""
    weights: dict[str, Any] = {f"factor{i}": np.float32(1 / (i + 2)) for i in range(7)}
    nodes = [helper.make_node("ReduceMean", ["input.1"], ["mean"], axes=[1], keepdims=1)]
    nodes += [helper.make_node("Mul", ["mean", f"factor{i}"], [f"{1959 + i}"]) for i in range(7)]
    outputs = [VALUE(f"{1959 + i}", TensorProto.FLOAT, [1, 1, 320, 320]) for i in range(7)]
    return write(path, nodes, [VALUE("input.1", TensorProto.FLOAT, [1, 3, 320, 320])], outputs, weights)
