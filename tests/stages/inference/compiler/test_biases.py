"""Biases that move on: results stay what they were, and those that cannot move stay where they are."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import Tensor, nn  # noqa: E402

from segmentation.stages.inference.compiler.biases import carry_biases  # noqa: E402
from segmentation.stages.inference.compiler.fx_nodes import convolution  # noqa: E402
from segmentation.stages.inference.compiler.recorded import record  # noqa: E402


class Layers(nn.Module):
    """Five convolutions with numbers at random."""

    def __init__(self, sides: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4, 4, side, padding=side // 2) for side in sides)


class Chain(Layers):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Residuals(Layers):
    def forward(self, x: Tensor) -> Tensor:
        first, second, third, fourth, last = self.layers
        a = first(x)
        b = a + third(second(a).relu())
        return last(b + fourth(b.relu() if fourth.kernel_size == (3, 3) else x)) - second(b)


class Rectified(Layers):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


@pytest.mark.parametrize(
    "kind, sides, left",
    [
        (Chain, (1, 1, 1, 1, 1), "00001"),
        (Chain, (3, 3, 1, 3, 1), "10101"),  # zeros around a picture have no bias
        (Residuals, (1, 1, 1, 1, 1), "010011"),
        (Residuals, (3, 1, 1, 3, 1), "111011"),  # a ReLU reads the first sum
        (Rectified, (1, 3, 1, 1, 1), "11111"),
    ],
)
def test_results_stay(kind: type[Layers], sides: tuple[int, ...], left: str) -> None:
    torch.manual_seed(sides[0])
    example = torch.randn(2, 4, 6, 5)
    with torch.inference_mode():
        net = record(kind(sides), example)
        before = net(example)
        carry_biases(net)
        net.recompile()
        torch.testing.assert_close(net(example), before)
    net.graph.lint()
    found = (convolution(net, node) for node in net.graph.nodes)
    assert "".join(str(int(one[0].bias is not None)) for one in found if one) == left
