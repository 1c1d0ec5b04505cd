"""A convolution of 1x1 with one of each channel by itself behind it: our kernel against PyTorch, on both sides."""

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_kernels import HostKernels  # noqa: E402

from segmentation.frames import FORMATS  # noqa: E402
from segmentation.frames.orientation import UPRIGHT  # noqa: E402
from segmentation.stages.inference.compiler.depthwise import UNBOUNDED, Bounds, taps_of  # noqa: E402
from segmentation.stages.inference.compiler.network_kernels import SEPARABLE, SeparableForm  # noqa: E402
from segmentation.stages.inference.compiler.separable import launched, separable  # noqa: E402

SIZES = [(1, 1), (7, 33), (13, 30), (10, 31), (23, 130)]  # height and width: of one tile and of several
LARGE = [(544, 960), (34, 60), (68, 121)]
RELU = 0.0, math.inf


def given(form: SeparableForm, size: tuple[int, int], device: str) -> tuple[Any, ...]:
    random = torch.Generator().manual_seed(form.outputs)
    x = torch.randn((2, form.inputs, *size), generator=random).half().to(memory_format=torch.channels_last)
    weight = (torch.randn((form.outputs, form.inputs, 1, 1), generator=random) / form.inputs**0.5).half()
    taps = torch.randn((form.outputs, 1, 3, 3), generator=random).half()
    biases = [torch.randn(form.outputs, generator=random).half() for _ in range(2)]
    return tuple(one.to(device) for one in (x, weight, biases[0], taps_of(taps), biases[1]))


def expected(form: SeparableForm, bounds: Bounds, x: Any, weight: Any, point_bias: Any, taps: Any, bias: Any) -> Any:
    """By sums in FP32, rounded after each convolution."""
    between = torch.conv2d(x.float(), weight.float(), point_bias.float()).half().float()
    depth = taps.t().reshape(form.outputs, 1, 3, 3).float()
    found = torch.conv2d(between, depth, bias.float(), padding=1, groups=form.outputs)
    return torch.max_pool2d(found.clamp(*bounds).half(), form.pool)


@pytest.mark.parametrize("bounds", [RELU, UNBOUNDED, (0.0, 1.5)])
@pytest.mark.parametrize("form", SEPARABLE, ids=str)
def test_on_the_host(form: SeparableForm, bounds: Bounds) -> None:
    kernels: Any = HostKernels(SEPARABLE[form], FORMATS["yuv420p"], UPRIGHT)
    for size in SIZES[1 if form.pool > 1 else 0 :]:
        arguments = given(form, size, "cpu")
        found = launched(kernels, *arguments, form, bounds)
        assert found.is_contiguous(memory_format=torch.channels_last)
        # A sum in another order may be rounded to the FP16 beside it, which nine taps then see.
        torch.testing.assert_close(found, expected(form, bounds, *arguments), rtol=2e-3, atol=8e-3)


@pytest.mark.parametrize("form", SEPARABLE, ids=str)
def test_a_number_that_is_none_stays_where_it_is(form: SeparableForm) -> None:
    kernels: Any = HostKernels(SEPARABLE[form], FORMATS["yuv420p"], UPRIGHT)
    x, *factors = given(form, (12, 36), "cpu")
    x[1, 3, 5, 31] = math.nan
    found = launched(kernels, x, *factors, form, RELU)
    places = torch.zeros((2, 12, 36), dtype=torch.bool)
    places[1, 4:7, 30:33] = True
    places = torch.max_pool2d(places.float(), form.pool) > 0
    assert torch.equal(found.isnan(), places[:, None].expand_as(found))


@pytest.mark.gpu
@pytest.mark.parametrize("form", SEPARABLE, ids=str)
@pytest.mark.parametrize("size", [*SIZES, *LARGE], ids=str)
def test_on_a_gpu(size: tuple[int, int], form: SeparableForm) -> None:
    if form.pool > min(size):
        pytest.skip("nothing is left")
    arguments = given(form, size, "cuda")
    found = separable(*arguments, form, RELU)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected(form, RELU, *arguments), rtol=2e-3, atol=8e-3)
