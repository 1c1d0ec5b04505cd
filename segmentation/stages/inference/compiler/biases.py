"""Moves biases of convolutions to where adding them costs nothing."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from segmentation.stages.inference.compiler.fx_nodes import SUM, add_constant, constant, convolution, is_pointwise


def carry_biases(net: GraphModule) -> None:
    """Moves biases into the 1x1 convolutions that read the results, where nothing but sums lies between.

    W(x + b) + c = Wx + (Wb + c). In networks of inverted residuals, such as MobileNetV2, the sums then have nothing to
    add but what a matrix product adds by itself, see `pointwise_into`.
    """
    lacking: dict[Node, torch.Tensor] = {}  # what has yet to be added to the value of a node: (C,), float32
    for node in list(net.graph.nodes):
        terms = [lacking[source] for source in node.all_input_nodes if source in lacking]
        if node.target is SUM and terms:
            lacking[node] = sum(terms[1:], terms[0])
        elif (found := convolution(net, node)) is not None:
            how, weight = found
            bias = constant(net, how.bias)
            for term in terms:  # that of x
                more = (weight.flatten(1).float() * term).sum(1)
                bias = more if bias is None else bias + more
            if bias is not None and _is_carried(net, node):
                lacking[node] = bias.float()
                node.args = how._replace(bias=None)
            elif terms and bias is not None:
                with net.graph.inserting_before(node):
                    kept = add_constant(net, f"{node.name}_bias", bias.to(weight.dtype))
                node.args = how._replace(bias=kept)


def _is_carried(net: GraphModule, node: Node) -> bool:
    """Returns whether all that read a value are 1x1 convolutions, or sums whose readers are."""
    return bool(node.users) and all(_takes(net, user, node) for user in node.users)


def _takes(net: GraphModule, user: Node, value: Node) -> bool:
    if user.target is SUM:
        return len(user.all_input_nodes) == 2 and not user.kwargs and _is_carried(net, user)
    found = convolution(net, user)
    return found is not None and found[0].x is value and is_pointwise(*found)
