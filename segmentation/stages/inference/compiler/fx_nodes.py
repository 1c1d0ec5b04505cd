"""Reads the nodes of recorded networks, see `recorded.py`: which are convolutions, and of what kind."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.fx import GraphModule, Node

from segmentation.stages.inference.compiler.network_kernels import EIGHT

CONVOLUTION = torch.ops.aten.conv2d.default
RELU = torch.ops.aten.relu.default
CLIPS = torch.ops.aten.hardtanh.default, torch.ops.aten.clamp.default
SUM = torch.ops.aten.add.Tensor
POOL = torch.ops.aten.max_pool2d.default
UPSAMPLING = torch.ops.aten.upsample_nearest2d.vec
MEAN = torch.ops.aten.mean.dim
CONVERSION = torch.ops.aten.to.dtype

Pair = tuple[int, int]  # in y and x


class Convolution(NamedTuple):
    """The arguments of a node of `CONVOLUTION`."""

    x: Node
    weight: Node
    bias: Node | None = None
    stride: Pair = (1, 1)
    padding: Pair | str = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


def constant(net: GraphModule, node: object) -> torch.Tensor | None:
    """Returns the tensor that a node stands for if it is one of the network's constants."""
    if isinstance(node, Node) and node.op == "get_attr":
        value: torch.Tensor = getattr(net, str(node.target))
        return value
    return None


def add_constant(net: GraphModule, name: str, value: torch.Tensor) -> Node:
    """Gives the network a constant, and returns its node, at the graph's place of insertion."""
    net.register_buffer(name, value)
    return net.graph.get_attr(name)


def convolution(net: GraphModule, node: Node) -> tuple[Convolution, torch.Tensor] | None:
    """Returns a convolution's arguments and weights; `None` for other nodes, and where a parameter is no constant."""
    if node.target is not CONVOLUTION or node.kwargs:
        return None
    how = Convolution(*node.args)
    weight, bias = constant(net, how.weight), constant(net, how.bias)
    return None if weight is None or (bias is None and how.bias is not None) else (how, weight)


def is_pointwise(how: Convolution, weight: torch.Tensor) -> bool:
    """Returns whether a convolution reads one place for each that it makes."""
    plain = how.groups == 1 and not isinstance(how.padding, str) and not any(how.padding)
    return plain and weight.shape[2:].numel() == 1 and set(how.stride) == {1}


def is_product(how: Convolution, weight: torch.Tensor) -> bool:
    """Returns whether `pointwise` can do a convolution: in FP16, of channels by the 16 bytes that kernels read."""
    outputs, inputs = weight.shape[:2]
    return weight.dtype is torch.float16 and is_pointwise(how, weight) and not (outputs % EIGHT or inputs % EIGHT)
