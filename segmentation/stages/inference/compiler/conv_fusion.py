"""Convolutions that do what follows them in the same kernel: bias, sum, ReLU or clip.

Small tensors take a GPU as long as its launches do, and large ones as long as they are read and written. So a kernel
less is time less, whatever it computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import cast

import torch
from torch.fx import GraphModule, Node

from segmentation.gpu.kernels import KernelSource
from segmentation.stages.inference.compiler.biases import carry_biases
from segmentation.stages.inference.compiler.depthwise import UNBOUNDED, Bounds, depthwise, taps_of
from segmentation.stages.inference.compiler.fx_nodes import (
    CLIPS,
    CONVERSION,
    CONVOLUTION,
    MEAN,
    POOL,
    RELU,
    SUM,
    UPSAMPLING,
    Convolution,
    Pair,
    add_constant,
    convolution,
    is_product,
)
from segmentation.stages.inference.compiler.network_kernels import (
    DEPTHWISE,
    EIGHT,
    PLANES,
    SEPARABLE,
    SIDE,
    STEM,
    STRIDE,
    LayerForm,
    SeparableForm,
)
from segmentation.stages.inference.compiler.pointwise import pointwise, pointwise_into
from segmentation.stages.inference.compiler.separable import separable
from segmentation.stages.inference.compiler.stem import stem
from segmentation.stages.inference.compiler.stem import taps_of as stem_taps


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
    shape = result_shape(x, weight, stride, padding, dilation)
    if not expands_to(added.shape, shape):
        return torch.relu(torch.conv2d(x, weight, *how) + added)
    # cuDNN reads `added` as if it had the result's shape, and checks nothing.
    whole = added.expand(shape).contiguous(memory_format=torch.channels_last)
    return torch.cudnn_convolution_add_relu(x, weight, whole, 1.0, *how)


def expands_to(given: Sequence[int], shape: Sequence[int]) -> bool:
    """Returns whether a tensor of the shape `given` can be read as if it had `shape`.

    `torch.broadcast_shapes` would import 487 modules for that, SymPy among them: half a second of each start.
    """
    ends = zip(reversed(given), reversed(shape), strict=False)
    return len(given) <= len(shape) and all(one in (1, whole) for one, whole in ends)


def result_shape(x: torch.Tensor, weight: torch.Tensor, stride: Pair, padding: Pair, dilation: Pair) -> tuple[int, ...]:
    """Returns the shape (N, C, h, w) of a convolution of `x`, by the formula of `torch.nn.Conv2d`."""
    sizes = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    return len(x), len(weight), *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)


_HALVING = [[2, 2], [2, 2], [0, 0], [1, 1], False]  # a pool's size, stride, padding, dilation, and whether it rounds up
# They return memory of their own, or that of a sum that nobody reads any more.
_OURS = CONVOLUTION, SUM, stem, depthwise, separable, convolution_relu, pointwise, pointwise_into


def sum_with_doubled(x: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    """Returns x (N, C, 2h, 2w) and small (N, C, h, w), each place of which counts for 2 x 2, added, channels last."""
    count, channels, height, width = small.shape
    places = x.permute(0, 2, 3, 1).reshape(count, height, 2, width, 2, channels)
    total = places + small.permute(0, 2, 3, 1).reshape(count, height, 1, width, 1, channels)
    return total.view(count, 2 * height, 2 * width, channels).permute(0, 3, 1, 2)


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Returns x (N, C, H, W), each place of which counts for 2 x 2, channels last.

    It copies eight bytes at a time, where PyTorch's own kernel copies a number at a time.
    """
    places = x.permute(0, 2, 3, 1).contiguous()
    if x.shape[1] * x.element_size() % torch.int64.itemsize == 0:
        places = places.view(torch.int64)
    count, height, width, words = places.shape
    repeated = places[:, :, None, :, None].expand(count, height, 2, width, 2, words)
    return repeated.reshape(count, 2 * height, 2 * width, words).view(x.dtype).permute(0, 3, 1, 2)


def pool_of_one_channel(x: torch.Tensor, *how: object) -> torch.Tensor:
    """Returns `torch.max_pool2d` of x (N, 1, H, W). PyTorch has a slow kernel for what is said to be channels last."""
    count, _, height, width = x.shape
    plane = x.reshape(count, height, width).as_strided(
        (count, 1, height, width), (height * width, height * width, width, 1)
    )
    return torch.max_pool2d(plane, *how)


def fuse(net: GraphModule) -> None:
    """Replaces the FP16 convolutions of a recorded network, see `recorded.py`, by kernels that do more.

    Those of each channel by itself bring what they are given and what they return within bounds. Others rectify, also
    their sum with something else, or are matrix products with bias and sum. The network then runs on a GPU only.
    """
    carry_biases(net)
    for step in (
        _replace_stem,
        _reorder_input,
        _drop_mean,
        _replace_separable,
        _replace_depthwise,
        _clip_when_read,
        _replace_relu,
        _replace_sum,
        _replace_pointwise,
        _add_doubled,
        _double,
        _pool_one_channel,
    ):
        for node in list(net.graph.nodes):
            step(net, node)
    net.recompile()


def kernel_sources(net: GraphModule) -> list[KernelSource]:
    """Returns the programs with kernels of ours that a fused network runs."""
    found: list[KernelSource] = []
    for node in net.graph.nodes:
        if node.target is stem:
            found.append(STEM)
        elif node.target is depthwise:
            found.append(DEPTHWISE[node.args[3]])
        elif node.target is separable:
            found.append(SEPARABLE[node.args[5]])
    return list(dict.fromkeys(found))


def for_mirrored(net: GraphModule) -> GraphModule | None:
    """Returns a fused network that mirrors its input, with the same weights; `None` if its first kernel can't."""
    graph = deepcopy(net.graph)
    given = next(node for node in graph.nodes if node.op == "placeholder")
    if [node.target for node in given.users] != [stem]:
        return None
    (first,) = given.users
    first.args = (*first.args, True)
    return GraphModule(net, graph)


def _replace_stem(net: GraphModule, node: Node) -> None:
    """Replaces the first convolution, the conversion before it and the bounds behind it by our kernel."""
    found = convolution(net, node)
    if found is None or not _is_stem(*found):
        return
    how, weight = found
    bounds = _bounds(_only_user(node))
    last = _only_user(node) if bounds else node
    taps, bias = _parameters(net, node, stem_taps(weight), how.bias)
    picture = how.x.all_input_nodes[0]
    _replace(net, last, stem, (picture, taps, bias, how.padding[0], bounds or UNBOUNDED), node)
    if not how.x.users:
        net.graph.erase_node(how.x)


def _reorder_input(net: GraphModule, node: Node) -> None:
    """Lets the conversion of the input to FP16 also make it channels last, which else the first convolution does."""
    if _is_conversion(node) and all(user.target is CONVOLUTION for user in node.users):
        node.kwargs = {"memory_format": torch.channels_last}


def _drop_mean(net: GraphModule, node: Node) -> None:
    """Drops the mean over a convolution's only channel, which on a CPU saves time."""
    if node.target is MEAN and node.args[1:] == ([1], True):
        found = convolution(net, node.all_input_nodes[0])
        if found is not None and len(found[1]) == 1:
            node.replace_all_uses_with(node.all_input_nodes[0])
            net.graph.erase_node(node)


def _replace_separable(net: GraphModule, node: Node) -> None:
    """Replaces a convolution of each channel, that of 1x1 before it, and the bounds and pool behind it, if any."""
    found = convolution(net, node)
    if found is None or not _is_depthwise(*found):
        return
    how, weight = found
    point = _only_read_here(net, how.x)
    if point is None or not is_product(*point) or (_form(how, weight), how.padding[0]) != (LayerForm(3, 1, 1), 1):
        return
    bounds = _bounds(_only_user(node))
    clipped = _only_user(node) if bounds else node
    pooled = _only_user(clipped) if _halves(_only_user(clipped)) else clipped
    form = SeparableForm(point[1].shape[1], len(weight), 1 if pooled is clipped else 2)
    if form in SEPARABLE:
        with net.graph.inserting_before(how.x):
            zeros = weight.new_zeros(len(weight))
            point_bias = point[0].bias or add_constant(net, f"{how.x.name}_no_bias", zeros)
        taps, bias = _parameters(net, node, taps_of(weight), how.bias)
        given = point[0].x, point[0].weight, point_bias, taps, bias, form, bounds or UNBOUNDED
        _replace(net, pooled, separable, given, clipped, node, how.x)


def _replace_depthwise(net: GraphModule, node: Node) -> None:
    """Replaces a convolution of each channel by itself, and the bounds behind it, if any, by our kernel."""
    found = convolution(net, node)
    if found is None or not _is_depthwise(*found):
        return
    how, weight = found
    bounds = _bounds(_only_user(node))
    last = _only_user(node) if bounds else node
    taps, bias = _parameters(net, node, taps_of(weight), how.bias)
    given = how.x, taps, bias, _form(how, weight), how.padding[0], bounds or UNBOUNDED
    _replace(net, last, depthwise, given, node)


def _form(how: Convolution, weight: torch.Tensor) -> LayerForm:
    return LayerForm(weight.shape[-1], how.stride[0], how.dilation[0])


def _parameters(net: GraphModule, node: Node, taps: torch.Tensor, bias: Node | None) -> tuple[Node, Node]:
    """Returns constants for one of our kernels in the place of `node`: taps (..., C), and biases (C,)."""
    with net.graph.inserting_before(node):
        zeros = taps.new_zeros(taps.shape[-1])
        return add_constant(net, f"{node.name}_taps", taps), bias or add_constant(net, f"{node.name}_no_bias", zeros)


def _clip_when_read(net: GraphModule, node: Node) -> None:
    """Makes a clip to 0 and more a ReLU, which a convolution can do, if our kernel alone reads it and can clip."""
    bounds = _bounds(node)
    if node.target in CLIPS and bounds and bounds[0] == 0 and all(user.target is depthwise for user in node.users):
        for user in list(node.users):
            user.args = *user.args[:6], bounds[1]
        node.target, node.args = RELU, node.args[:1]


def _replace_relu(net: GraphModule, node: Node) -> None:
    """Replaces a ReLU, and the convolution or the sum with one before it, by one call."""
    if node.target is not RELU:
        return
    (before,) = node.all_input_nodes
    if (found := _only_read_here(net, before)) is not None:
        how, weight = found
        if is_product(how, weight) and how.bias is not None:
            _replace(net, node, pointwise, (how.x, how.weight, how.bias, True), before)
        else:
            _replace(net, node, convolution_relu, how, before)
    elif len(before.users) == 1:
        for own, added in _terms(before):
            if (found := _only_read_here(net, own)) is not None:
                _replace(net, node, convolution_relu, (*found[0], added), before, own)
                return


def _replace_sum(net: GraphModule, node: Node) -> None:
    """Replaces a sum with a matrix product that has no bias, if it may be written over the other term."""
    for own, added in _terms(node):
        found = _only_read_here(net, own)
        earlier = (user.target in _OURS and user < node for user in added.users if user is not node)
        if found and is_product(*found) and found[0].bias is None and added.target in _OURS and all(earlier):
            _replace(net, node, pointwise_into, (found[0].x, found[0].weight, added), own)
            return


def _replace_pointwise(net: GraphModule, node: Node) -> None:
    """Replaces a convolution by a matrix product."""
    found = convolution(net, node)
    if found is not None and is_product(*found):
        node.target, node.args = pointwise, found[0][:3]


def _add_doubled(net: GraphModule, node: Node) -> None:
    """Replaces a sum with a picture of twice the size by one that reads the smaller one."""
    for own, added in _terms(node):
        if _is_doubling(own) and len(own.users) == 1:
            _replace(net, node, sum_with_doubled, (added, own.args[0]), own)
            return


def _double(net: GraphModule, node: Node) -> None:
    """Replaces what repeats each place in 2 x 2 by a faster form."""
    if _is_doubling(node):
        node.target, node.args = doubled, node.args[:1]


def _pool_one_channel(net: GraphModule, node: Node) -> None:
    """Replaces a pool of a convolution's only channel by a faster form."""
    if node.target is POOL and not node.kwargs:
        found = convolution(net, node.all_input_nodes[0])
        if found is not None and len(found[1]) == 1:
            node.target = pool_of_one_channel


def _replace(net: GraphModule, last: Node, call: object, arguments: tuple[object, ...], *before: Node) -> None:
    """Puts a call in the place of `last`, and drops the nodes `before` it, which nothing else reads, in that order."""
    with net.graph.inserting_after(last):
        new = net.graph.call_function(call, arguments)
    last.replace_all_uses_with(new)
    for node in dict.fromkeys((last, *before)):
        net.graph.erase_node(node)


def _terms(node: Node) -> tuple[tuple[Node, Node], ...]:
    """Returns the two terms of a sum in both orders, nothing for other nodes."""
    terms = node.all_input_nodes
    if node.target is not SUM or node.kwargs or len(terms) != 2:
        return ()
    return (terms[0], terms[1]), (terms[1], terms[0])


def _only_user(node: Node) -> Node:
    """Returns the node that alone reads another; that one itself where none or several do."""
    return next(iter(node.users)) if len(node.users) == 1 else node


def _halves(node: Node) -> bool:
    """Returns whether a node keeps the highest of each 2 x 2 places."""
    how = [list(one) if isinstance(one, Sequence) else one for one in node.args[1:]]
    return node.target is POOL and not node.kwargs and len(how) > 1 and how == _HALVING[: len(how)]


def _is_doubling(node: Node) -> bool:
    """Returns whether a node repeats each place in 2 x 2."""
    return node.target is UPSAMPLING and tuple(node.args[1:]) == (None, [2.0, 2.0])


def _bounds(node: Node) -> Bounds | None:
    """Returns what a node brings the values within that it is given, `None` if it does something else."""
    if node.target is RELU:
        return 0.0, math.inf
    if node.target in CLIPS and len(node.args) == 3 and not node.kwargs and None not in node.args:
        low, high = cast("Bounds", node.args[1:])
        return float(low), float(high)
    return None


def _is_conversion(node: Node) -> bool:
    """Returns whether a node brings the network's input to another type, and does no more."""
    return node.target is CONVERSION and not node.kwargs and [one.op for one in node.all_input_nodes] == ["placeholder"]


def _is_stem(how: Convolution, weight: torch.Tensor) -> bool:
    """Returns whether a convolution is the first one, of a picture and in FP16, that our kernel can do."""
    count, *form = weight.shape
    return (
        weight.dtype is torch.float16
        and form == [PLANES, SIDE, SIDE]
        and count % EIGHT == 0
        and (*how.stride, *how.dilation, how.groups) == (STRIDE, STRIDE, 1, 1, 1)
        and not isinstance(how.padding, str)
        and how.padding[0] == how.padding[-1]
        and _is_conversion(how.x)
    )


def _is_depthwise(how: Convolution, weight: torch.Tensor) -> bool:
    """Returns whether a convolution is one of each channel by itself, in FP16, that our kernel can do."""
    count, per_group, height, width = weight.shape
    return (
        weight.dtype is torch.float16
        and per_group == 1
        and count == how.groups
        and count % EIGHT == 0
        and not isinstance(how.padding, str)
        and all(pair[0] == pair[-1] for pair in ((height, width), how.stride, how.padding, how.dilation))
        and _form(how, weight) in DEPTHWISE
    )


def _only_read_here(net: GraphModule, node: Node) -> tuple[Convolution, torch.Tensor] | None:
    """Returns an FP16 convolution without groups, see `convolution`, that one node reads; `None` for other nodes.

    Convolutions in groups are slower when fused.
    """
    found = convolution(net, node)
    fits = found is not None and len(node.users) == 1 and found[0].groups == 1 and found[1].dtype is torch.float16
    return found if fits else None
