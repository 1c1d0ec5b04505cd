"""The first convolution of a network of pictures: our kernel against PyTorch, on the host and on a GPU."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_kernels import HostKernels  # noqa: E402

from segmentation.frames import FORMATS  # noqa: E402
from segmentation.frames.orientation import UPRIGHT  # noqa: E402
from segmentation.stages.inference.compiler.depthwise import UNBOUNDED, Bounds  # noqa: E402
from segmentation.stages.inference.compiler.network_kernels import STEM  # noqa: E402
from segmentation.stages.inference.compiler.stem import launched, stem, taps_of  # noqa: E402

CASES = [((20, 133), 16, 1), ((7, 21), 8, 1), ((9, 10), 24, 0), ((3, 3), 8, 0), ((1, 1), 8, 1)]  # (H, W), C, padding
BOUNDS = [UNBOUNDED, (0.0, math.inf), (0.0, 1.5)]  # of nothing, a ReLU, and a clip


def given(size: tuple[int, int], channels: int, device: str) -> tuple[Any, Any, Any]:
    random = torch.Generator().manual_seed(channels)
    weight = (torch.randn((channels, 3, 3, 3), generator=random) / 100).half()
    x, bias = torch.rand((3, 3, *size), generator=random) * 255, torch.randn(channels, generator=random).half()
    return x.to(device), weight.to(device), bias.to(device)


def expected(x: Any, weight: Any, bias: Any, padding: int, bounds: Bounds) -> Any:
    """By sums in FP32, rounded once."""
    found = torch.conv2d(x.half().float(), weight.float(), bias.float(), 2, padding)
    return found.clamp(*bounds).half()


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("size, channels, padding", CASES)
def test_on_the_host(size: tuple[int, int], channels: int, padding: int, bounds: Bounds) -> None:
    x, weight, bias = given(size, channels, "cpu")
    kernels: Any = HostKernels(STEM, FORMATS["yuv420p"], UPRIGHT)
    found = launched(kernels, x, taps_of(weight), bias, padding, bounds)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected(x, weight, bias, padding, bounds), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size, channels, padding", CASES)
def test_a_mirrored_picture_is_read_as_one_that_was_mirrored(
    size: tuple[int, int], channels: int, padding: int
) -> None:
    x, weight, bias = given(size, channels, "cpu")
    kernels: Any = HostKernels(STEM, FORMATS["yuv420p"], UPRIGHT)
    found = launched(kernels, x, taps_of(weight), bias, padding, UNBOUNDED, mirrored=True)
    assert torch.equal(found, launched(kernels, x.flip(3), taps_of(weight), bias, padding, UNBOUNDED))


@pytest.mark.gpu
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("size, channels, padding", [*CASES, ((544, 960), 16, 1)])
def test_on_a_gpu(size: tuple[int, int], channels: int, padding: int, bounds: Bounds) -> None:
    x, weight, bias = given(size, channels, "cuda")
    found = stem(x, taps_of(weight), bias, padding, bounds)
    assert found.is_contiguous(memory_format=torch.channels_last)
    with torch.backends.cudnn.flags(allow_tf32=False):
        wanted = expected(x, weight, bias, padding, bounds)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)
    mirrored = stem(x, taps_of(weight), bias, padding, bounds, mirrored=True)
    assert torch.equal(mirrored, stem(x.flip(3), taps_of(weight), bias, padding, bounds))
