"""Convolutions of each channel by itself: our kernel against PyTorch, on the host and on a GPU."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_kernels import HostKernels  # noqa: E402

from segmentation.frames import FORMATS  # noqa: E402
from segmentation.frames.orientation import UPRIGHT  # noqa: E402
from segmentation.stages.inference.compiler.depthwise import UNBOUNDED, Bounds, depthwise, launched, taps_of  # noqa: E402
from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, LayerForm  # noqa: E402

CASES = [  # (C, H, W), (side, stride, dilation), padding
    ((8, 5, 7), (3, 1, 1), 1),
    ((16, 9, 4), (3, 2, 1), 1),
    ((24, 6, 11), (5, 1, 1), 2),
    ((8, 12, 13), (5, 2, 1), 2),
    ((40, 3, 3), (3, 1, 1), 0),
    ((8, 4, 9), (3, 1, 1), 2),
    ((8, 1, 1), (5, 1, 1), 2),
    ((16, 7, 10), (3, 1, 2), 2),
    ((8, 6, 5), (3, 1, 2), 1),
]
# Of the built-in networks.
LARGE = [
    ((192, 24, 42), (3, 1, 1), 1),
    ((144, 48, 84), (3, 2, 1), 1),
    ((960, 12, 21), (3, 1, 2), 2),
]
CASES, LARGE = ([(shape, LayerForm(*form), padding) for shape, form, padding in cases] for cases in (CASES, LARGE))
BOUNDS = [UNBOUNDED, (0.0, math.inf), (0.0, 1.5)]  # of nothing, a ReLU, and a clip


def given(shape: tuple[int, int, int], side: int, device: str) -> tuple[Any, Any, Any]:
    random = torch.Generator().manual_seed(side)
    x = torch.randn((3, *shape), generator=random).half().to(memory_format=torch.channels_last)
    weight = torch.randn((shape[0], 1, side, side), generator=random).half()
    return x.to(device), weight.to(device), torch.randn(shape[0], generator=random).half().to(device)


def expected(
    x: Any, weight: Any, bias: Any, form: LayerForm, padding: int, bounds: Bounds, limit: float = math.inf
) -> Any:
    """By sums in FP32, rounded once."""
    x = x.clamp(max=limit)
    found = torch.conv2d(x.float(), weight.float(), bias.float(), form.stride, padding, form.dilation, len(weight))
    return found.clamp(*bounds).half()


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("shape, form, padding", CASES)
def test_on_the_host(shape: Any, form: LayerForm, padding: int, bounds: Bounds) -> None:
    x, weight, bias = given(shape, form[0], "cpu")
    kernels: Any = HostKernels(DEPTHWISE[form], FORMATS["yuv420p"], UPRIGHT)
    found = launched(kernels, x, taps_of(weight), bias, form, padding, bounds)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected(x, weight, bias, form, padding, bounds), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape, form, padding", CASES[:4])
def test_what_is_read_is_clipped(shape: Any, form: LayerForm, padding: int) -> None:
    x, weight, bias = given(shape, form[0], "cpu")
    kernels: Any = HostKernels(DEPTHWISE[form], FORMATS["yuv420p"], UPRIGHT)
    found = launched(kernels, x, taps_of(weight), bias, form, padding, UNBOUNDED, 0.25)
    torch.testing.assert_close(found, expected(x, weight, bias, form, padding, UNBOUNDED, 0.25), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -2.5, 65504.0, 70000.0, float("inf"), 6e-8, 3.1e-5, 0.1, 1 / 3])
def test_numbers_of_the_host_are_rounded_as_pytorch_rounds(value: float) -> None:
    kernels: Any = HostKernels(DEPTHWISE[LayerForm(3, 1, 1)], FORMATS["yuv420p"], UPRIGHT)
    x, weight = torch.zeros((1, 8, 1, 1)).half(), torch.zeros((8, 1, 3, 3)).half()
    bias = torch.full((8,), value).half()
    found = launched(kernels, x, taps_of(weight), bias, LayerForm(3, 1, 1), 1, UNBOUNDED)
    assert torch.equal(found.flatten(), bias + 0)


@pytest.mark.gpu
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("shape, form, padding", [*CASES, *LARGE])
def test_on_a_gpu(shape: Any, form: LayerForm, padding: int, bounds: Bounds) -> None:
    x, weight, bias = given(shape, form[0], "cuda")
    found = depthwise(x, taps_of(weight), bias, form, padding, bounds, 1.25)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected(x, weight, bias, form, padding, bounds, 1.25), rtol=2e-3, atol=1e-3)
