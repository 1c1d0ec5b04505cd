"""Fuses convolutions with the sum and the ReLU that follow: one kernel, where PyTorch queues up to four.

It is cuDNN's, and our own for convolutions of each channel by itself.
"""

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node

from segmentation.stages.inference.depthwise import UNBOUNDED, Bounds, depthwise, taps_of
from segmentation.stages.inference.network_kernels import EIGHT, FORMS

_CONVOLUTION = torch.ops.aten.conv2d.default
_RELU = torch.ops.aten.relu.default
_CLIP = torch.ops.aten.hardtanh.default
_SUM = torch.ops.aten.add.Tensor

Pair = tuple[int, int]  # in y and x


def convolution_relu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    added: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns relu(convolution(x)), or relu(convolution(x) + added), on a GPU. See `torch.nn.functional.conv2d`."""
    how = bias, stride, padding, dilation, groups
    if added is None:
        return torch.cudnn_convolution_relu(x, weight, *how)
    if tuple(added.shape) != result_shape(x, weight, stride, padding, dilation):
        # cuDNN reads `added` as if it had the result's shape, and checks nothing.
        return torch.relu(torch.conv2d(x, weight, *how) + added)
    return torch.cudnn_convolution_add_relu(x, weight, added, 1.0, *how)


def result_shape(x: torch.Tensor, weight: torch.Tensor, stride: Pair, padding: Pair, dilation: Pair) -> tuple[int, ...]:
    """Returns the shape (N, C, h, w) of a convolution of `x`, by the formula of `torch.nn.Conv2d`."""
    sizes = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    return len(x), len(weight), *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)


def fuse(net: GraphModule) -> None:
    """Replaces FP16 convolutions of a recorded network, see `recorded.py`, that a ReLU or a sum and a ReLU follow.

    Likewise those of each channel by itself, whatever follows. The network then runs on a GPU only.
    """
    for node in list(net.graph.nodes):
        if _is_depthwise(net, node):
            _replace_depthwise(net, node)
    for relu in list(net.graph.nodes):
        if relu.target is not _RELU:
            continue
        (before,) = relu.all_input_nodes
        if _is_fusible(net, before):
            _replace(net, relu, before)
        elif before.target is _SUM and not before.kwargs and len(before.users) == 1:
            terms = before.all_input_nodes
            own = next((node for node in terms if _is_fusible(net, node)), None)
            if own is not None and len(terms) == 2:
                _replace(net, relu, own, before)
    net.recompile()


def _replace(net: GraphModule, relu: Node, convolution: Node, total: Node | None = None) -> None:
    """Replaces a convolution, the sum `total` behind it, if any, and the ReLU by one call."""
    added = () if total is None else tuple(node for node in total.all_input_nodes if node is not convolution)
    with net.graph.inserting_after(relu):
        fused = net.graph.call_function(convolution_relu, (*_arguments(convolution), *added))
    relu.replace_all_uses_with(fused)
    for node in (relu, total, convolution):
        if node is not None:
            net.graph.erase_node(node)


def _replace_depthwise(net: GraphModule, convolution: Node) -> None:
    """Replaces a convolution of each channel by itself, and the ReLU or the clip behind it, if any, by our kernel."""
    x, kept, bias, stride, padding, dilation, _ = _arguments(convolution)
    weight = getattr(net, str(kept.target))
    name = f"{convolution.name}_taps"
    net.register_buffer(name, taps_of(weight))
    followers = list(convolution.users)
    bounds = _bounds(followers[0]) if len(followers) == 1 else None
    behind = followers[0] if bounds else None
    with net.graph.inserting_before(convolution):
        taps = net.graph.get_attr(name)
        if bias is None:
            net.register_buffer(f"{name}_bias", weight.new_zeros(len(weight)))
            bias = net.graph.get_attr(f"{name}_bias")
    form = weight.shape[-1], stride[0], dilation[0]
    last = behind or convolution
    with net.graph.inserting_after(last):
        call = net.graph.call_function(depthwise, (x, taps, bias, form, padding[0], bounds or UNBOUNDED))
    last.replace_all_uses_with(call)
    for node in (behind, convolution):
        if node is not None:
            net.graph.erase_node(node)


def _bounds(node: Node) -> Bounds | None:
    """Returns what a node brings the values within that it is given, `None` if it does something else."""
    if node.target is _RELU:
        return 0.0, math.inf
    if node.target is _CLIP and len(node.args) == 3 and not node.kwargs:
        return float(node.args[1]), float(node.args[2])
    return None


def _is_depthwise(net: GraphModule, node: Node) -> bool:
    """Returns whether a node is an FP16 convolution of each channel by itself that our kernel can do."""
    if node.target is not _CONVOLUTION:
        return False
    _, kept, _, stride, padding, dilation, groups = _arguments(node)
    if not (isinstance(kept, Node) and kept.op == "get_attr"):
        return False
    weight = getattr(net, str(kept.target))
    count, per_group, height, width = weight.shape
    return (
        weight.dtype is torch.float16
        and per_group == 1
        and count == groups
        and count % EIGHT == 0
        and not isinstance(padding, str)
        and all(first == last for first, last in ((height, width), *map(_ends, (stride, padding, dilation))))
        and (height, stride[0], dilation[0]) in FORMS
    )


def _ends(pair: Pair) -> Pair:
    """Returns the values in y and x, also of a list that has one for both."""
    return pair[0], pair[-1]


def _is_fusible(net: GraphModule, node: Node) -> bool:
    """Returns whether a node is an FP16 convolution without groups, whose result only the next node reads.

    Convolutions in groups are slower when fused.
    """
    if node.target is not _CONVOLUTION or len(node.users) != 1:
        return False
    weight, groups = _arguments(node)[1], _arguments(node)[-1]
    constant = isinstance(weight, Node) and weight.op == "get_attr"
    return constant and groups == 1 and getattr(net, str(weight.target)).dtype is torch.float16


def _arguments(convolution: Node) -> tuple[Any, ...]:
    """Returns the arguments of a convolution up to its groups, with the defaults of those that are left out."""
    defaults = (None, None, None, (1, 1), (0, 0), (1, 1), 1)
    return *convolution.args, *defaults[len(convolution.args) :]
