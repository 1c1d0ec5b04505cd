"""Convolutions that do what follows them: which do, and that the network stays what it was."""

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from converter import need_onnx2torch
from marks import DEVICES, first

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_fusion import run_fused_on_the_host  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from segmentation import Config  # noqa: E402
from segmentation.models.graph.fp16_cache import fp16_graph  # noqa: E402
from segmentation.models.model import PEOPLE, load_model  # noqa: E402
from segmentation.models.sample_picture import picture_inputs  # noqa: E402
from segmentation.stages.inference.compiler import conv_fusion  # noqa: E402
from segmentation.stages.inference.compiler.conv_fusion import convolution_relu, expands_to, fuse, result_shape  # noqa: E402
from segmentation.stages.inference.compiler.fx_nodes import CLIPS, CONVOLUTION, SUM  # noqa: E402
from segmentation.stages.inference.compiler.onnx_to_torch import convert  # noqa: E402
from segmentation.stages.inference.compiler.pointwise import pointwise, pointwise_into  # noqa: E402
from segmentation.stages.inference.compiler.recorded import record  # noqa: E402

SHAPE = (2, 8, 12, 20)  # (N, C, H, W) of the input, and of whatever has no other name
CONVOLVED = "Conv(x) -> c"
# Two sums, whose biases a 1x1 convolution behind them can add.
RESIDUAL = ["Point(x) -> a", "Point(a) -> b", "Relu(b) -> c", "Point(c) -> d", "Add(d, a) -> s"]
MEAN = ["GlobalAveragePool(x) -> m", "Point(m) -> c", "PlainPoint(x) -> d", "Add(c, d) -> s"]
RESIDUAL += ["Point(s) -> e", "Relu(e) -> f", "PlainPoint(f) -> g", "Add(s, g) -> t"]
# What is done in order, and how many convolutions then are one call with what follows.
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
    "each channel by itself, a clip before": (["Point(x) -> c", "Clip(c, least, most) -> r", "Grouped(r) -> out"], 2),
    "each channel by itself, a clip to 6 before": (
        ["Mul(x, ten) -> d", "Point(d) -> c", "Clip(c, least, six) -> r", "Grouped(r) -> out"],
        2,
    ),
    "a clip before that others see": (
        ["Point(x) -> c", "Clip(c, least, most) -> r", "Grouped(r) -> d", "Add(d, r) -> out"],
        2,
    ),
    "a clip before from below 0": (["Point(x) -> c", "Clip(c, low, most) -> r", "Grouped(r) -> out"], 2),
    "1x1": (["Point(x) -> out"], 1),
    "1x1, without a bias": (["PlainPoint(x) -> out"], 1),
    "1x1, strided": (["Strided(x) -> out"], 0),
    "1x1, a mean": ([*MEAN, "Mul(s, x) -> out"], 2),
    "1x1, a mean, rectified": ([*MEAN, "Relu(s) -> out"], 2),
    "1x1, a sum with the input": (["PlainPoint(x) -> c", "Add(c, x) -> out"], 1),
    "residuals": ([*RESIDUAL, "Point(t) -> out"], 6),
    "residuals that an output shows": ([*RESIDUAL, "Relu(t) -> out"], 5),
    "residuals that are read later": ([*RESIDUAL, "Point(t) -> u", "Add(u, a) -> out"], 6),
    "one after the other": ([CONVOLVED, "Relu(c) -> r", "Conv(r) -> d", "Add(d, r) -> s", "Relu(s) -> out"], 2),
}


# Side, groups, dilation, stride, and whether there is a bias.
CONVOLUTIONS = {
    "Conv": (3, 1, 1, 1, True),
    "Grouped": (3, 8, 1, 1, True),
    "Plain": (3, 8, 1, 1, False),
    "Wide": (3, 8, 2, 1, True),
    "Point": (1, 1, 1, 1, True),
    "PlainPoint": (1, 1, 1, 1, False),
    "Strided": (1, 1, 1, 2, True),
}


def network(steps: list[str], path: Path) -> Path:
    """An ONNX file of FP16 that does the steps, with weights at random."""
    random = np.random.default_rng(1)
    constants = {"one": np.full((1, 8, 1, 1), 0.5, np.float16)}
    constants |= {"least": np.float16(0), "low": np.float16(-0.25), "most": np.float16(0.5)}
    constants |= {"six": np.float16(6), "ten": np.float16(10)}
    nodes = []
    for number, step in enumerate(steps):
        call, result = step.split(" -> ")
        kind, given = call.rstrip(")").split("(")
        inputs, how = given.split(", "), {}
        if kind in CONVOLUTIONS:
            side, groups, apart, stride, biased = CONVOLUTIONS[kind]
            shape = 8, 8 // groups, side, side
            constants[f"w{number}"] = (random.normal(size=shape) * 0.6 / math.prod(shape[1:]) ** 0.5).astype(np.float16)
            constants[f"b{number}"] = random.normal(size=8).astype(np.float16)
            parameters = [f"w{number}", f"b{number}"][: 1 + biased]
            how = {"pads": [side // 2 * apart] * 4, "dilations": [apart] * 2, "group": groups, "strides": [stride] * 2}
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


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    run_fused_on_the_host(monkeypatch)


def calls(net: Any) -> Counter[Any]:
    return Counter(node.target for node in net.graph.nodes if node.op == "call_function")


def fused(net: Any) -> int:
    found = calls(net)
    return sum(found[call] for call in (convolution_relu, conv_fusion.depthwise, pointwise, pointwise_into))


@pytest.mark.parametrize("steps, expected", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("device", DEVICES)
def test_the_network_stays_what_it_was(
    device: str, steps: list[str], expected: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if device == "cpu":
        request.getfixturevalue("on_the_host")
    net = recorded(steps, tmp_path / "n.onnx", device)
    given = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)).half().to(device)
    with torch.inference_mode():
        before = net(given)
        fuse(net)
        after = net(given)
    net.graph.lint()
    assert fused(net) == expected
    assert after.dtype is before.dtype and after.std() > 0.1
    torch.testing.assert_close(after, before, rtol=4e-3, atol=8e-3)  # sums that are rounded to FP16 once, not thrice


def test_sums_of_residuals_are_part_of_products(tmp_path: Path) -> None:
    net = recorded([*RESIDUAL, "Point(t) -> out"], tmp_path / "n.onnx", "cpu")
    fuse(net)
    assert calls(net) == {pointwise: 4, pointwise_into: 2}


@pytest.mark.parametrize("name", first(1, PEOPLE))
def test_the_built_in_network(name: str, on_the_host: None, folder: Path) -> None:
    """Few of its residuals, biases and clips are kernels of their own, and its masks are those of FP32.

    Two residuals are, and two clips, which the decoder reads too; its own residuals, and what the veto adds.
    """
    need_onnx2torch()
    model = load_model(Config(model=name))
    picture = picture_inputs(model)[:1]
    (expected,) = ort.InferenceSession(str(model.path), providers=["CPUExecutionProvider"]).run(
        None, {model.input_name: picture}
    )
    with torch.inference_mode():
        net = convert(fp16_graph(model, 1), torch.device("cpu")).to(memory_format=torch.channels_last)
        net = record(net, torch.from_numpy(picture))
        fuse(net)
        found = net(torch.from_numpy(picture)).numpy()
    kinds = calls(net)
    looks = 2 if name == "person-best" else 1  # at each picture
    deeper = 1 if name == "person" else 2
    assert kinds[SUM] == (3 + deeper) * looks and sum(kinds[clip] for clip in CLIPS) == 2 * looks
    assert kinds[CONVOLUTION] == 4 * looks  # those of the only channel, and the teacher's classes
    assert kinds[conv_fusion.doubled] == 3 * looks and kinds[conv_fusion.pool_of_one_channel] == looks
    assert kinds[conv_fusion.depthwise] == 18 * looks and kinds.total() <= 95 * looks
    assert np.abs(found - expected).max() < 0.05 and np.abs(found - expected).mean() < 0.002


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("channels", [1, 3, 8, 16])
def test_each_place_is_doubled(channels: int, dtype: Any, device: str) -> None:
    x = torch.randn(2, channels, 5, 7, dtype=dtype, device=device)
    for given in (x, x.to(memory_format=torch.channels_last)):
        found = conv_fusion.doubled(given)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, torch.nn.functional.interpolate(given, scale_factor=2, mode="nearest"))


@pytest.mark.parametrize("device", DEVICES)
def test_a_pool_of_one_channel(device: str) -> None:
    x = torch.randn(3, 1, 9, 11, dtype=torch.float16, device=device)
    for given in (x, x.to(memory_format=torch.channels_last)):
        found = conv_fusion.pool_of_one_channel(given, [7, 7], [1, 1], [3, 3])
        assert torch.equal(found, torch.max_pool2d(given.float(), 7, 1, 3).half())


@pytest.mark.parametrize("stride", [1, 2, (2, 3)])
@pytest.mark.parametrize("padding", [0, 1, (2, 0)])
@pytest.mark.parametrize("kernel, dilation", [(1, 1), (3, 1), (3, 2), ((3, 5), (2, 1))])
def test_the_shape_of_a_result_is_known(stride: Any, padding: Any, kernel: Any, dilation: Any) -> None:
    convolution = torch.nn.Conv2d(3, 4, kernel, stride, padding, dilation)
    for size in ((17, 24), (16, 9)):
        given = torch.zeros(2, 3, *size)
        how = convolution.stride, convolution.padding, convolution.dilation
        assert result_shape(given, convolution.weight, *how) == tuple(convolution(given).shape)


@pytest.mark.parametrize("added", [None, (2, 4, 6, 8), (1, 4, 1, 1), (2, 4, 1, 1), (3, 2, 4, 6, 8)])
def test_a_fused_convolution_is_called_as_cudnn_wants_it(added: Any, on_the_host: None) -> None:
    x, weight, bias = torch.randn(2, 3, 11, 15), torch.randn(4, 3, 3, 3), torch.randn(4)
    more = None if added is None else torch.randn(added)
    expected = torch.conv2d(x, weight, bias, stride=2, padding=1)
    expected = (expected if more is None else expected + more).relu()
    assert torch.equal(convolution_relu(x, weight, bias, (2, 2), (1, 1), (1, 1), 1, more), expected)


@pytest.mark.parametrize("given", [(2, 8, 3, 4), (8, 1, 4), (1,), (), (2, 8, 3, 5), (1, 2, 8, 3, 4), (3, 8, 3, 4)])
@pytest.mark.parametrize("shape", [(2, 8, 3, 4), (2, 1, 3, 4)])
def test_what_a_sum_is_read_as(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    try:
        torch.empty(given).expand(shape)
    except RuntimeError:
        assert not expands_to(given, shape)
    else:
        assert expands_to(given, shape)


def test_a_sum_needs_no_sympy() -> None:
    """Its import would be half a second of each start on a GPU."""
    program = """
import sys
import torch
from segmentation.stages.inference.compiler.conv_fusion import convolution_relu
x, weight, added = torch.ones(1, 2, 5, 5), torch.ones(2, 2, 1, 1), torch.ones(3, 2, 5, 5)
assert convolution_relu(x, weight, None, (1, 1), (0, 0), (1, 1), 1, added).shape == added.shape
assert "sympy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
