"""Convolutions of each channel by itself: our kernel against PyTorch, on the host and on a GPU."""

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_kernels import HostKernels  # noqa: E402

from segmentation.frames import FORMATS  # noqa: E402
from segmentation.stages.inference.depthwise import depthwise, launched, taps_of  # noqa: E402
from segmentation.stages.inference.network_kernels import DEPTHWISE  # noqa: E402

CASES = [  # (C, H, W), side, stride, padding
    ((8, 5, 7), 3, 1, 1),
    ((16, 9, 4), 3, 2, 1),
    ((24, 6, 11), 5, 1, 2),
    ((8, 12, 13), 5, 2, 2),
    ((40, 3, 3), 3, 1, 0),
    ((8, 4, 9), 3, 1, 2),
    ((8, 1, 1), 5, 1, 2),
]

LARGE = [((192, 32, 56), 3, 1, 1), ((144, 64, 112), 3, 2, 1), ((96, 16, 28), 5, 1, 2)]  # of the built-in network


def given(shape: tuple[int, int, int], side: int, device: str) -> tuple[Any, Any, Any]:
    random = torch.Generator().manual_seed(side)
    x = torch.randn((3, *shape), generator=random).half().to(memory_format=torch.channels_last)
    weight = torch.randn((shape[0], 1, side, side), generator=random).half()
    return x.to(device), weight.to(device), torch.randn(shape[0], generator=random).half().to(device)


def expected(x: Any, weight: Any, bias: Any, stride: int, padding: int, rectify: bool) -> Any:
    """By sums in FP32, rounded once."""
    found = torch.conv2d(x.float(), weight.float(), bias.float(), stride, padding, groups=len(weight))
    return (found.relu() if rectify else found).half()


@pytest.mark.parametrize("rectify", [True, False])
@pytest.mark.parametrize("shape, side, stride, padding", CASES)
def test_on_the_host(shape: Any, side: int, stride: int, padding: int, rectify: bool) -> None:
    x, weight, bias = given(shape, side, "cpu")
    kernels: Any = HostKernels(DEPTHWISE, FORMATS["yuv420p"], 0)
    found = launched(kernels, x, taps_of(weight), bias, side, stride, padding, rectify)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected(x, weight, bias, stride, padding, rectify), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -2.5, 65504.0, 70000.0, float("inf"), 6e-8, 3.1e-5, 0.1, 1 / 3])
def test_numbers_of_the_host_are_rounded_as_pytorch_rounds(value: float) -> None:
    kernels: Any = HostKernels(DEPTHWISE, FORMATS["yuv420p"], 0)
    x, weight = torch.zeros((1, 8, 1, 1)).half(), torch.zeros((8, 1, 3, 3)).half()
    bias = torch.full((8,), value).half()
    found = launched(kernels, x, taps_of(weight), bias, 3, 1, 1, False)
    assert torch.equal(found.flatten(), bias + 0)


@pytest.mark.gpu
@pytest.mark.parametrize("rectify", [True, False])
@pytest.mark.parametrize(
    "shape, side, stride, padding",
    [*CASES, ((192, 32, 56), 3, 1, 1), ((144, 64, 112), 3, 2, 1), ((96, 16, 28), 5, 1, 2)],
)
def test_on_a_gpu(shape: Any, side: int, stride: int, padding: int, rectify: bool) -> None:
    x, weight, bias = given(shape, side, "cuda")
    found = depthwise(x, taps_of(weight), bias, side, stride, padding, rectify)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected(x, weight, bias, stride, padding, rectify), rtol=2e-3, atol=1e-3)
