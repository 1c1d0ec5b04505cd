"""What `GpuTransfer` brings to the host is what lies on the GPU, in 8 bits and in 10."""

from typing import Any

import numpy as np
import pytest
from drawn import make_info
from mask_sides import SIDES, gpu_of

from segmentation.frames import FORMATS, Color, Places

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
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_samples_are_those_of_their_rows_and_columns(side: str, pix_fmt: str) -> None:
    transfer, device = transfer_of(side, pix_fmt), gpu_of(side).device
    places: list[Places] = [((5, 40), (63, 0, 7)), ((1,), tuple(range(0, 32, 9))), (tuple(range(3, 24, 5)), (31, 0))]
    generator = np.random.default_rng(1)
    for _ in range(2):  # the places are known the second time
        values = [
            generator.integers(0, 1024, (4, *shape)).astype(FORMATS[pix_fmt].dtype)
            for shape in FORMATS[pix_fmt].shapes(64, 48)
        ]
        planes = [torch.from_numpy(plane).to(device)[:3] for plane in values]
        if side == "gpu":
            torch.cuda.synchronize()
        for found, plane, (rows, columns) in zip(transfer.samples(planes, places), values, places, strict=True):
            assert found.dtype == plane.dtype
            np.testing.assert_array_equal(found, plane[np.ix_(range(3), rows, columns)])


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
