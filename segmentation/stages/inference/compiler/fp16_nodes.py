"""Recorded networks of plain convolutions, see `recorded.py`, brought from FP32 to FP16."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import accumulate
from typing import NamedTuple, cast

import torch
from torch.fx import GraphModule, Node

from segmentation.stages.inference.compiler.fx_nodes import (
    CLIPS,
    CONVERSION,
    CONVOLUTION,
    POOL,
    RELU,
    SUM,
    UPSAMPLING,
    Convolution,
    add_constant,
    constant,
    convolution,
    is_pointwise,
)
from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, EIGHT, LayerForm

_aten = torch.ops.aten
_SLICE = _aten.slice.Tensor
_SHAPES = _aten.cat.default, _aten.permute.default, _aten.reshape.default
# That need no more than FP16.
KNOWN = {CONVOLUTION, RELU, SUM, *CLIPS, *_SHAPES, POOL, UPSAMPLING, _aten.sigmoid.default}


_Layer = tuple[torch.Tensor, torch.Tensor]  # weights and biases


class _Head(NamedTuple):
    """A convolution of 1x1 to a few channels, and the one of each channel by itself that alone reads it."""

    point: Node
    depth: Node
    layers: tuple[_Layer, _Layer]  # of both
    how: tuple[object, ...]  # the second one's stride, padding and dilation


def in_fp16(net: GraphModule) -> GraphModule | None:
    """Returns a network with constants and results in FP16, for the same input; `None` if not all is `KNOWN`."""
    if any(node.op == "call_function" and node.target not in KNOWN for node in net.graph.nodes):
        return None
    half: GraphModule = deepcopy(net).to(torch.float16, memory_format=torch.channels_last)
    (given,) = (node for node in half.graph.nodes if node.op == "placeholder")
    with half.graph.inserting_after(given):
        made = half.graph.call_function(CONVERSION, (given, torch.float16))
    given.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    _join_heads(half)
    half.recompile()
    return half


def _join_heads(net: GraphModule) -> None:
    """Makes one of all convolutions to a few channels that read the same, filled up to channels that kernels take."""
    for node in list(net.graph.nodes):
        heads = [head for user in node.users if (head := _head(net, user)) is not None]
        for how in dict.fromkeys(head.how for head in heads):
            _join(net, node, [head for head in heads if head.how == how])


def _head(net: GraphModule, node: Node) -> _Head | None:
    point, depth = convolution(net, node), convolution(net, next(iter(node.users), node))
    if point is None or depth is None or len(node.users) != 1 or not is_pointwise(*point):
        return None
    weight, (after, taps) = point[1], depth
    form = LayerForm(taps.shape[-1], after.stride[0], after.dilation[0])
    if len(weight) % EIGHT == 0 or not len(weight) == after.groups == len(taps) or form not in DEPTHWISE:
        return None
    layers = _layer(net, *point), _layer(net, *depth)
    places = after.stride, after.padding, after.dilation
    return _Head(node, next(iter(node.users)), layers, tuple(map(_hashable, places)))


def _layer(net: GraphModule, how: Convolution, weight: torch.Tensor) -> _Layer:
    bias = constant(net, how.bias)
    return weight, weight.new_zeros(len(weight)) if bias is None else bias


def _hashable(value: object) -> object:
    return value if isinstance(value, str) else tuple(cast("Sequence[int]", value))


def _join(net: GraphModule, source: Node, heads: Sequence[_Head]) -> None:
    """Puts two convolutions in the place of those of `heads`, whose results are then parts of theirs."""
    sizes, name = [len(head.layers[0][0]) for head in heads], heads[0].point.name
    whole = -(-sum(sizes) // EIGHT) * EIGHT
    with net.graph.inserting_before(min(head.point for head in heads)):
        value = source
        for number, more in enumerate(((), (*heads[0].how, whole))):
            parts = zip(*(head.layers[number] for head in heads), strict=True)  # all weights, and all biases
            added = [add_constant(net, f"{name}_{number}_{kind}", _filled(part)) for kind, part in enumerate(parts)]
            value = net.graph.call_function(CONVOLUTION, (value, *added, *more))
        for head, size, end in zip(heads, sizes, accumulate(sizes), strict=True):
            head.depth.replace_all_uses_with(net.graph.call_function(_SLICE, (value, 1, end - size, end)))
    for head in heads:
        net.graph.erase_node(head.depth)
        net.graph.erase_node(head.point)


def _filled(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns parts behind each other, and zeros up to a multiple of `EIGHT`."""
    lacking = -sum(map(len, parts)) % EIGHT
    return torch.cat([*parts, parts[0].new_zeros((lacking, *parts[0].shape[1:]))])
