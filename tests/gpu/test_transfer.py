"""What `GpuTransfer` brings to the host is what lies on the GPU, in 8 bits and in 10."""

import numpy as np
import pytest
from drawn import make_info

from segmentation.frames import FORMATS, Color

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le"])
def test_chosen_rows_and_columns_come_as_they_are(pix_fmt: str) -> None:
    torch = pytest.importorskip("torch")
    from stages import gpu

    from segmentation.gpu.transfer import GpuTransfer

    device = gpu()
    device.enter()
    transfer = GpuTransfer(device, make_info(64, 48, Color()), FORMATS[pix_fmt], 4)
    values = np.random.default_rng(1).integers(0, 1024, (4, 48, 64)).astype(FORMATS[pix_fmt].dtype)
    array = torch.from_numpy(values).to(device.device)
    torch.cuda.synchronize()
    for places in ([2, 0],), ([2], [0, 3]), ([1, 2], [5, 40], [63, 0, 7]), (range(4), range(3, 48, 5), range(0, 64, 9)):
        found = transfer.chosen(array, *places)
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values[np.ix_(*places)])
    np.testing.assert_array_equal(transfer.rows(array, "host", 3), values[:3])
    queued = transfer.rows(array, "host", 3, wait=False)
    device.record_event().synchronize()
    np.testing.assert_array_equal(queued, values[:3])
