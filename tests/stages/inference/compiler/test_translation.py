"""ONNX graphs translated node by node: the nodes are those that are recorded when onnx2torch's network runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converter import need_onnx2torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from segmentation import Config  # noqa: E402
from segmentation.models.graph.fp16_cache import fp16_graph  # noqa: E402
from segmentation.models.model import PEOPLE, load_model  # noqa: E402
from segmentation.stages.inference.compiler.onnx_to_torch import convert  # noqa: E402
from segmentation.stages.inference.compiler.recorded import is_recorded, record  # noqa: E402
from segmentation.stages.inference.compiler.translation import translate  # noqa: E402

SHAPE = (2, 4, 8, 12)


def network(path: Path, *nodes: Any) -> Path:
    """Writes a network of FP32 whose last node makes its output, with constants that nodes may name."""
    rng = np.random.default_rng(0)
    constants = {
        "weight": rng.normal(size=(4, 4, 3, 3)),
        "own": rng.normal(size=(4, 1, 3, 3)),
        "bias": rng.normal(size=4),
        "none": np.array(0),
        "six": np.array(6),
        "twice": np.array([1, 1, 2, 2]),
        "wider": np.array([1, 2, 2, 2]),
    }
    places = {"back": -1, "begin": -(2**31), "second": -2, "rows": 3}
    kept = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    kept += [numpy_helper.from_array(np.array([value]), name) for name, value in places.items()]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", SHAPE), ("y", None))
    ]
    graph = helper.make_graph(list(nodes), "network", ends[:1], ends[1:], kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def node(operator: str, *inputs: str, to: str = "y", **attributes: Any) -> Any:
    return helper.make_node(operator, list(inputs), [to], **attributes)


NEAREST: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
KNOWN = {
    "convolution": [node("Conv", "x", "weight", "bias", pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3])],
    "without bias": [node("Conv", "x", "weight")],
    "of each channel": [node("Conv", "x", "own", "bias", group=4, dilations=[2, 2], pads=[2, 2, 2, 2])],
    "clip and sum": [node("Clip", "x", "none", "six", to="a"), node("Add", "a", "x")],
    "means": [
        node("GlobalAveragePool", "x", to="a"),
        node("ReduceMean", "x", axes=[1], keepdims=1, to="b"),
        node("Add", "a", "b"),
    ],
    "sizes": [
        node("Resize", "x", "", "twice", mode="nearest", to="a", **NEAREST),
        node("Resize", "x", "", "twice", mode="linear", coordinate_transformation_mode="half_pixel", to="b"),
        node("Concat", "a", "b", axis=1),
    ],
    "mirrored": [node("Slice", "x", "back", "begin", "rows", "back", to="a"), node("Relu", "a")],
    "greatest": [node("MaxPool", "x", kernel_shape=[3, 5], pads=[1, 2, 1, 2], strides=[1, 1])],
    "shares": [node("Softmax", "x", axis=1)],
    "ends": [
        node("Relu", "x", to="a"),
        node("Sigmoid", "a", to="b"),
        helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ],
}


def content(net: Any) -> list[Any]:
    """Returns a network's operators with their arguments, constants as their values."""
    names = [one.name for one in net.graph.nodes if one.op != "get_attr"]

    def plain(value: Any) -> Any:
        if isinstance(value, torch.fx.Node) and value.op == "get_attr":
            tensor = getattr(net, str(value.target))
            return tensor.dtype, tensor.tolist()
        if isinstance(value, torch.fx.Node):
            return names.index(value.name)
        return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value

    nodes = [one for one in net.graph.nodes if one.op != "get_attr"]
    return [(one.op, str(one.target) if one.op == "call_function" else "", plain(one.args)) for one in nodes]


def same_as_recorded(path: Path, shape: tuple[int, ...]) -> None:
    need_onnx2torch()
    translated = translate(path)
    assert translated is not None and is_recorded(translated)
    converted = convert(path, torch.device("cpu"))
    assert not is_recorded(converted)
    example = torch.rand(shape)
    with torch.inference_mode():
        recorded = record(converted, example)
        for one in recorded.graph.nodes:  # onnx2torch takes the whole of what it has mirrored
            if one.target is torch.ops.aten.alias.default:
                one.replace_all_uses_with(one.args[0])
        recorded.graph.eliminate_dead_code()
        assert content(translated) == content(recorded)
        assert torch.equal(translated(example), converted(example))


@pytest.mark.parametrize("nodes", KNOWN.values(), ids=KNOWN)
def test_the_nodes_are_those_that_are_recorded(nodes: list[Any], tmp_path: Path) -> None:
    same_as_recorded(network(tmp_path / "net.onnx", *nodes), SHAPE)


UNKNOWN = {
    "an operator": [node("Softplus", "x")],
    "an operator of others": [node("Relu", "x", domain="com.example")],
    "uneven pads": [node("Conv", "x", "weight", pads=[0, 0, 1, 1])],
    "pads by size": [node("Conv", "x", "weight", auto_pad="SAME_UPPER")],
    "one bound": [node("Clip", "x", "none")],
    "bounds that are computed": [node("ReduceMean", "x", keepdims=0, to="a"), node("Clip", "x", "a", "six")],
    "another place": [node("Resize", "x", "", "twice", mode="nearest")],
    "more channels": [node("Resize", "x", "", "wider", mode="nearest", **NEAREST)],
    "no axes": [node("ReduceMean", "x")],
    "a part, mirrored": [node("Slice", "x", "second", "begin", "rows", "back")],
    "less than all, mirrored": [node("Slice", "x", "back", "second", "rows", "back")],
    "a part": [node("Slice", "x", "second", "back")],
    "integers": [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT64)],
}


@pytest.mark.parametrize("nodes", UNKNOWN.values(), ids=UNKNOWN)
def test_other_graphs_are_left_to_onnx2torch(nodes: list[Any], tmp_path: Path) -> None:
    assert translate(network(tmp_path / "net.onnx", *nodes)) is None


@pytest.mark.parametrize("name", PEOPLE)
def test_built_in_networks_are_translated(name: str, folder: Path) -> None:
    net = translate(fp16_graph(load_model(Config(model=name), None), 1))
    assert net is not None and is_recorded(net)


@pytest.mark.slow
@pytest.mark.parametrize("name", PEOPLE)
def test_built_in_networks_are_those_that_are_recorded(name: str, folder: Path) -> None:
    model = load_model(Config(model=name), None)
    same_as_recorded(fp16_graph(model, 1), (1, 3, model.height, model.width))
