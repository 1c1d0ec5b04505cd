"""What `GpuTransfer` brings to the host is what lies on the GPU, in 8 bits and in 10."""

from typing import Any

import numpy as np
import pytest
from drawn import make_info
from mask_sides import SIDES, gpu_of

from segmentation.frames import FORMATS, Color

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def transfer_of(side: str, pix_fmt: str) -> Any:
    if side == "gpu":
        from segmentation.gpu.transfer import GpuTransfer as Transfer
    else:
        from host_kernels import host_stages

        Transfer = host_stages().GpuTransfer
    device = gpu_of(side)
    device.enter()
    return Transfer(device, make_info(64, 48, Color()), FORMATS[pix_fmt], 4)


@pytest.mark.parametrize("side", SIDES)
def test_arrays_come_together_from_wherever_they_are(side: str) -> None:
    transfer, device = transfer_of(side, "yuv420p"), gpu_of(side).device
    generator = np.random.default_rng(1)
    levels, masks = generator.integers(0, 256, (3, 4, 9), np.uint8), generator.random((4, 9), np.float32)
    there = torch.from_numpy(levels).to(device), torch.from_numpy(masks).to(device)
    if side == "gpu":
        torch.cuda.synchronize()
    first, more = transfer.on_host(there[0], masks, there[1])
    for array, expected in zip([first, *more], (levels, masks, masks), strict=True):
        assert isinstance(array, np.ndarray)
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("side", SIDES)
def test_arrays_that_are_on_the_host_wait_for_no_gpu(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transfer, masks = transfer_of(side, "yuv420p"), np.ones((2, 3), np.float32)
    monkeypatch.setattr(transfer._gpu, "download", None)
    found, (nothing,) = transfer.on_host(masks, None)
    assert found is masks and nothing is None


@pytest.mark.gpu
def test_rows_come_as_they_are() -> None:
    transfer, device = transfer_of("gpu", "yuv420p"), gpu_of("gpu")
    values = np.random.default_rng(1).integers(0, 256, (4, 48, 64)).astype(np.uint8)
    array = torch.from_numpy(values).to(device.device)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(transfer.rows(array, "host", 3), values[:3])
    queued = transfer.rows(array, "host", 3, wait=False)
    device.record_event().synchronize()
    np.testing.assert_array_equal(queued, values[:3])
