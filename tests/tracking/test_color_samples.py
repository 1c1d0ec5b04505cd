"""Small pictures of a batch have the colors in the middle of each place, on the CPU and on a GPU alike."""

import numpy as np
import pytest
from drawn import ORIENTATIONS, batch_of, make_info, noise
from stages import BATCH, GPU_SIDES, gpu_stages

from segmentation.frames import FORMATS, Color, Frame
from segmentation.frames.orientation import Orientation
from segmentation.tracking.color_samples import color_samples

SIZE = (101, 75)


def test_a_sample_lies_in_the_middle_of_its_place() -> None:
    luma = np.arange(8 * 12, dtype=np.uint8).reshape(8, 12)
    chroma = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6)
    batch = batch_of(Frame(planes=(luma, chroma, chroma + 100), pts=0, duration=1).planes)
    levels = color_samples(batch, make_info(12, 8, Color()), (2, 3))
    assert levels.shape == (3, 1, 2, 3)
    np.testing.assert_array_equal(levels[0, 0], luma[[2, 6]][:, [2, 6, 10]])
    np.testing.assert_array_equal(levels[1, 0], chroma[[1, 3]][:, [1, 3, 5]])
    np.testing.assert_array_equal(levels[2], levels[1] + 100)


def test_samples_of_10_bits_are_levels_of_8() -> None:
    planes = noise("yuv420p10le", *SIZE, 1)
    levels = color_samples(batch_of(planes), make_info(*SIZE, Color()), SIZE[::-1])
    np.testing.assert_array_equal(levels[0, 0], planes[0] >> 2)


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_a_gpus_samples_are_the_cpus(side: str, pix_fmt: str, shown: Orientation) -> None:
    device, there = gpu_stages(side)
    from segmentation.tracking.cuda_color_samples import CudaColorSamples

    info = make_info(*SIZE, Color(), shown)
    transfer = there.GpuTransfer(device, info, FORMATS[pix_fmt], BATCH)
    batch = batch_of(*(noise(pix_fmt, *SIZE, seed) for seed in range(BATCH - 1)))
    shape = shown.size(24, 42)
    levels, _ = transfer.on_host(CudaColorSamples(info, pix_fmt, device)(transfer.frames(batch, "cuda"), shape))
    expected = color_samples(batch, info, shape)
    assert levels.dtype == expected.dtype == np.uint8
    np.testing.assert_array_equal(levels, expected)
