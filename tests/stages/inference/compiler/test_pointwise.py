"""Convolutions of 1x1 as matrix products, against PyTorch's convolution."""

from typing import Any

import pytest
from marks import DEVICES

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from segmentation.stages.inference.compiler.pointwise import pointwise, pointwise_into  # noqa: E402

LAST = torch.channels_last


def given(device: str, *shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])).half().to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("shape", [(3, 16, 5, 7), (1, 8, 1, 1), (2, 24, 1, 1), (1, 16, 12, 3)])
@pytest.mark.parametrize("order", [torch.contiguous_format, LAST])
def test_product(shape: tuple[int, ...], rectified: bool, order: Any, device: str) -> None:
    x, weight, bias = given(device, *shape).to(memory_format=order), given(device, 8, shape[1], 1, 1), given(device, 8)
    expected = torch.conv2d(x.float(), weight.float(), bias.float())
    found = pointwise(x, weight, bias, rectified)
    assert found.is_contiguous(memory_format=LAST) and found.dtype is torch.float16
    torch.testing.assert_close(found.float(), expected.relu() if rectified else expected, rtol=2e-3, atol=4e-3)
    plain = pointwise(x, weight, None).float()
    torch.testing.assert_close(plain, expected - bias.float().view(1, -1, 1, 1), rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("places", [(5, 7), (1, 1)])
@pytest.mark.parametrize("order", [torch.contiguous_format, LAST])
def test_sum(places: tuple[int, int], order: Any, device: str) -> None:
    x, weight = given(device, 2, 16, 5, 7).to(memory_format=LAST), given(device, 8, 16, 1, 1)
    total = given(device, 2, 8, *places).to(memory_format=order)
    expected = torch.conv2d(x.float(), weight.float()) + total.float()
    found = pointwise_into(x, weight, total)
    torch.testing.assert_close(found.float(), expected, rtol=2e-3, atol=4e-3)
    assert (found.data_ptr() == total.data_ptr()) == (places == (5, 7) and order is LAST)
