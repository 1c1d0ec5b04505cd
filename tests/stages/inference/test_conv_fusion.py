"""Convolutions that rectify by themselves: which do, and that the network stays what it was."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converter import need_onnx2torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from segmentation.stages.inference.conv_fusion import convolution_relu, fuse, result_shape  # noqa: E402
from segmentation.stages.inference.depthwise import depthwise  # noqa: E402
from segmentation.stages.inference.onnx_to_torch import convert  # noqa: E402
from segmentation.stages.inference.recorded import record  # noqa: E402

SHAPE = (2, 8, 12, 20)  # (N, C, H, W) of the input, and of whatever has no other name
CONVOLVED = "Conv(x) -> c"
# What is done in order, and how many convolutions then are one kernel with what follows.
NETWORKS = {
    "relu": ([CONVOLVED, "Relu(c) -> out"], 1),
    "sum, the convolution first": ([CONVOLVED, "Add(c, x) -> s", "Relu(s) -> out"], 1),
    "sum, the convolution last": ([CONVOLVED, "Add(x, c) -> s", "Relu(s) -> out"], 1),
    "sum of two convolutions": ([CONVOLVED, "Conv(x) -> d", "Add(c, d) -> s", "Relu(s) -> out"], 1),
    "sum with what is repeated": ([CONVOLVED, "Add(c, one) -> s", "Relu(s) -> out"], 1),
    "sum in FP32": ([CONVOLVED, "Cast(c) -> f", "Cast(x) -> g", "Add(f, g) -> s", "Relu(s) -> out"], 0),
    "sum with itself": ([CONVOLVED, "Add(c, c) -> s", "Relu(s) -> out"], 0),
    "sum that others see": ([CONVOLVED, "Add(c, x) -> s", "Relu(s) -> r", "Add(r, s) -> out"], 0),
    "product": ([CONVOLVED, "Mul(c, x) -> s", "Relu(s) -> out"], 0),
    "result that others see": ([CONVOLVED, "Relu(c) -> r", "Add(r, c) -> out"], 0),
    "each channel by itself": (["Grouped(x) -> c", "Relu(c) -> out"], 1),
    "each channel by itself, a clip behind": (["Grouped(x) -> c", "Clip(c, low, most) -> out"], 1),
    "each channel by itself, further apart": (["Wide(x) -> c", "Clip(c, least, most) -> out"], 1),
    "each channel by itself, what others see": (["Grouped(x) -> c", "Relu(c) -> r", "Add(r, c) -> out"], 1),
    "each channel by itself, nothing behind": (["Grouped(x) -> c", "Mul(c, x) -> out"], 1),
    "each channel by itself, without a bias": (["Plain(x) -> c", "Relu(c) -> out"], 1),
    "one after the other": ([CONVOLVED, "Relu(c) -> r", "Conv(r) -> d", "Add(d, r) -> s", "Relu(s) -> out"], 2),
}


def network(steps: list[str], path: Path) -> Path:
    """An ONNX file of FP16 that does the steps, with weights at random."""
    random = np.random.default_rng(1)
    constants = {"one": np.full((1, 8, 1, 1), 0.5, np.float16)}
    constants |= {"least": np.float16(0), "low": np.float16(-0.25), "most": np.float16(0.5)}
    nodes = []
    for number, step in enumerate(steps):
        call, result = step.split(" -> ")
        kind, given = call.rstrip(")").split("(")
        inputs, how = given.split(", "), {}
        if kind in ("Conv", "Grouped", "Plain", "Wide"):
            groups = 1 if kind == "Conv" else 8
            constants[f"w{number}"] = (random.normal(size=(8, 8 // groups, 3, 3)) / 5).astype(np.float16)
            constants[f"b{number}"] = random.normal(size=8).astype(np.float16)
            parameters = [f"w{number}"] if kind == "Plain" else [f"w{number}", f"b{number}"]
            apart = 2 if kind == "Wide" else 1
            how = {"pads": [apart] * 4, "dilations": [apart] * 2, "group": groups}
            kind, inputs = "Conv", [*inputs, *parameters]
        elif kind == "Cast":
            how = {"to": TensorProto.FLOAT}
        nodes.append(helper.make_node(kind, inputs, [result], **how))
    kinds = {TensorProto.FLOAT} if any("Cast" in step for step in steps) else {TensorProto.FLOAT16}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, SHAPE)],
        [helper.make_tensor_value_info("out", kinds.pop(), SHAPE)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def recorded(steps: list[str], path: Path, device: str) -> Any:
    need_onnx2torch()
    example = torch.zeros(SHAPE, dtype=torch.float16, device=device)
    with torch.inference_mode():
        net = convert(network(steps, path), torch.device(device)).to(memory_format=torch.channels_last)
        return record(net, example)


def fused(net: Any) -> int:
    return sum(node.target in (convolution_relu, depthwise) for node in net.graph.nodes)


@pytest.mark.parametrize("steps, expected", NETWORKS.values(), ids=NETWORKS)
def test_convolutions_rectify_where_nobody_sees_what_comes_before(
    steps: list[str], expected: int, tmp_path: Path
) -> None:
    net = recorded(steps, tmp_path / "n.onnx", "cpu")
    fuse(net)
    net.graph.lint()
    assert fused(net) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("steps, expected", NETWORKS.values(), ids=NETWORKS)
def test_the_network_stays_what_it_was(steps: list[str], expected: int, tmp_path: Path) -> None:
    net = recorded(steps, tmp_path / "n.onnx", "cuda")
    given = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)).half().cuda()
    with torch.inference_mode():
        before = net(given)
        fuse(net)
        after = net(given)
    assert fused(net) == expected
    assert after.dtype is before.dtype and after.std() > 0.1
    torch.testing.assert_close(after, before, rtol=2e-3, atol=4e-3)  # sums that are rounded to FP16 once, not thrice


@pytest.mark.parametrize("stride", [1, 2, (2, 3)])
@pytest.mark.parametrize("padding", [0, 1, (2, 0)])
@pytest.mark.parametrize("kernel, dilation", [(1, 1), (3, 1), (3, 2), ((3, 5), (2, 1))])
def test_the_shape_of_a_result_is_known(stride: Any, padding: Any, kernel: Any, dilation: Any) -> None:
    convolution = torch.nn.Conv2d(3, 4, kernel, stride, padding, dilation)
    for size in ((17, 24), (16, 9)):
        given = torch.zeros(2, 3, *size)
        how = convolution.stride, convolution.padding, convolution.dilation
        assert result_shape(given, convolution.weight, *how) == tuple(convolution(given).shape)


@pytest.mark.parametrize("added", [None, (2, 4, 6, 8), (1, 4, 1, 1)])
def test_a_fused_convolution_is_called_as_cudnn_wants_it(added: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for cuDNN's two functions, which know no CPU."""
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda x, w, *how: torch.conv2d(x, w, *how).relu())
    monkeypatch.setattr(
        torch, "cudnn_convolution_add_relu", lambda x, w, z, alpha, *how: (torch.conv2d(x, w, *how) + alpha * z).relu()
    )
    x, weight, bias = torch.randn(2, 3, 11, 15), torch.randn(4, 3, 3, 3), torch.randn(4)
    more = None if added is None else torch.randn(added)
    expected = torch.conv2d(x, weight, bias, stride=2, padding=1)
    expected = (expected if more is None else expected + more).relu()
    assert torch.equal(convolution_relu(x, weight, bias, (2, 2), (1, 1), (1, 1), 1, more), expected)
