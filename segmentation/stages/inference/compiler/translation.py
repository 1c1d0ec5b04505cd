"""Translates ONNX graphs of plain convolutional networks to PyTorch's own operators, node by node.

They are what `recorded.record` finds when onnx2torch's network runs, without that run: in it cuDNN chooses kernels for
convolutions that `conv_fusion.fuse` replaces, and importing onnx2torch takes longer than the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from segmentation.stages.inference.compiler.fx_nodes import CLIPS, CONVERSION, CONVOLUTION, MEAN, RELU, SUM

_HARDTANH, _ = CLIPS
_NEAREST, _BILINEAR = torch.ops.aten.upsample_nearest2d.vec, torch.ops.aten.upsample_bilinear2d.vec
_GREATEST = torch.ops.aten.max_pool2d.default
_DTYPES = {1: torch.float32, 10: torch.float16}  # by ONNX's numbers
_BEFORE_ALL = -(2**31)  # end of a slice that goes back to the begin of any axis
_DEFAULTS = None, [1, 1], [0, 0], [1, 1], 1  # bias, stride, padding, dilation and groups of `CONVOLUTION`


class _UnknownError(Exception):
    """The graph has an operator or an attribute that is not translated here."""


def translate(path: Path) -> GraphModule | None:
    """Returns the network of an ONNX file with one input and one output, on the CPU.

    `None` if it has operators that are not translated here: onnx2torch may have them.
    """
    import onnx  # most runs load a network that was translated before

    model = onnx.load(str(path))
    if len(model.graph.input) != 1 or len(model.graph.output) != 1:
        return None
    try:
        return _Translation(model.graph).finish(model.graph.output[0].name)
    except _UnknownError:
        return None


class _Translation:
    """A graph of PyTorch's operators that grows with each node of an ONNX graph."""

    def __init__(self, source: Any) -> None:
        from onnx import numpy_helper

        self._constants = {one.name: torch.tensor(numpy_helper.to_array(one)) for one in source.initializer}
        self._graph, self._root = Graph(), torch.nn.Module()
        self._nodes = {source.input[0].name: self._graph.placeholder("input")}
        for node in source.node:
            self._add(node)

    def finish(self, output: str) -> GraphModule:
        """Returns the network with this output."""
        self._graph.output(self._node(output))
        self._graph.eliminate_dead_code()
        return GraphModule(self._root, self._graph)

    def _add(self, node: Any) -> None:
        from onnx import helper

        operator = _OPERATORS.get(node.op_type)
        if operator is None or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            raise _UnknownError(node.op_type)
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self._nodes[node.output[0]] = self._graph.call_function(*operator(self, list(node.input), attributes))

    def _node(self, name: str) -> Node:
        """Returns the node of a tensor; makes one for a constant."""
        if name not in self._nodes:
            if name not in self._constants:
                raise _UnknownError(name)
            constant = f"constant_{sum(1 for _ in self._root.buffers())}"
            self._root.register_buffer(constant, self._constants[name])
            self._nodes[name] = self._graph.get_attr(constant)
        return self._nodes[name]

    def _numbers(self, name: str) -> list[float]:
        """Returns the numbers of a constant that is no tensor of the network, such as a bound."""
        if name not in self._constants:
            raise _UnknownError(name)
        found: list[float] = self._constants[name].float().flatten().tolist()
        return found

    def convolution(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
        if attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or (top, left) != (bottom, right):
            raise _UnknownError("pads")
        how: list[Any] = [
            self._node(inputs[2]) if len(inputs) > 2 else None,
            attributes.get("strides", [1, 1]),
            [top, left],
            attributes.get("dilations", [1, 1]),
            attributes.get("group", 1),
        ]
        while how and how[-1] == _DEFAULTS[len(how) - 1]:
            how.pop()
        return CONVOLUTION, (self._node(inputs[0]), self._node(inputs[1]), *how)

    def clip(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        if len(inputs) != 3 or not all(inputs):
            raise _UnknownError("bounds")
        (least,), (most,) = map(self._numbers, inputs[1:])
        return _HARDTANH, (self._node(inputs[0]), least, most)

    def resize(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        if len(inputs) != 3:
            raise _UnknownError("sizes")
        batch, channels, *scales = self._numbers(inputs[2])
        place = attributes.get("coordinate_transformation_mode", b"half_pixel")
        if (batch, channels) != (1, 1) or len(scales) != 2:
            raise _UnknownError("scales")
        match attributes.get("mode", b"nearest"), place, attributes.get("nearest_mode", b"round_prefer_floor"):
            case b"nearest", b"asymmetric", b"floor":
                return _NEAREST, (self._node(inputs[0]), None, scales)
            case b"linear", b"half_pixel", _:
                return _BILINEAR, (self._node(inputs[0]), None, False, scales)
        raise _UnknownError("mode")

    def mean(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        if len(inputs) != 1 or "axes" not in attributes:
            raise _UnknownError("axes")
        return MEAN, (self._node(inputs[0]), attributes["axes"], bool(attributes.get("keepdims", 1)))

    def pool(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        return MEAN, (self._node(inputs[0]), [2, 3], True)

    def greatest(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
        if attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or (top, left) != (bottom, right):
            raise _UnknownError("pads")
        if attributes.get("ceil_mode", 0) or attributes.get("dilations", [1, 1]) != [1, 1]:
            raise _UnknownError("places")
        strides = attributes.get("strides", [1, 1])
        return _GREATEST, (self._node(inputs[0]), attributes["kernel_shape"], strides, [top, left])

    def cast(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        if attributes["to"] not in _DTYPES:
            raise _UnknownError("type")
        return CONVERSION, (self._node(inputs[0]), _DTYPES[attributes["to"]])

    def concatenation(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        return torch.ops.aten.cat.default, ([self._node(name) for name in inputs], attributes["axis"])

    def mirror(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        """Translates the slices that turn whole axes round, and no others."""
        if len(inputs) != 5 or not all(inputs):
            raise _UnknownError("part")
        firsts, lasts, axes, steps = map(self._numbers, inputs[1:])
        if {*firsts, *steps} != {-1} or max(lasts) > _BEFORE_ALL:
            raise _UnknownError("part")
        return torch.ops.aten.flip.default, (self._node(inputs[0]), [int(axis) for axis in axes])

    def add(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        return SUM, (self._node(inputs[0]), self._node(inputs[1]))

    def relu(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        return RELU, (self._node(inputs[0]),)

    def softmax(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        return torch.ops.aten.softmax.int, (self._node(inputs[0]), attributes.get("axis", -1))

    def sigmoid(self, inputs: Sequence[str], attributes: _Attributes) -> _Call:
        return torch.ops.aten.sigmoid.default, (self._node(inputs[0]),)


_Attributes = dict[str, Any]  # of an ONNX node, by name
_Call = tuple[Callable[..., Any], tuple[Any, ...]]  # an operator and its arguments
_OPERATORS: dict[str, Callable[[_Translation, Sequence[str], _Attributes], _Call]] = {
    "Add": _Translation.add,
    "Cast": _Translation.cast,
    "Clip": _Translation.clip,
    "Concat": _Translation.concatenation,
    "Conv": _Translation.convolution,
    "GlobalAveragePool": _Translation.pool,
    "MaxPool": _Translation.greatest,
    "ReduceMean": _Translation.mean,
    "Relu": _Translation.relu,
    "Resize": _Translation.resize,
    "Sigmoid": _Translation.sigmoid,
    "Slice": _Translation.mirror,
    "Softmax": _Translation.softmax,
}
