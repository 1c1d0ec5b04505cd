"""Crops show what the box shows of the upright picture, in all layouts and rotations, on the CPU and on a GPU alike."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import MODEL, ORIENTATIONS, batch_of, make_info, noise, planes_of, smooth_rgb
from numpy.typing import NDArray
from stages import BATCH, GPU_SIDES, gpu_stages

from segmentation.frames import FORMATS, FULL, LIMITED, Color, Frame, FrameBatch, VideoInfo
from segmentation.frames.instances import Box
from segmentation.frames.orientation import Orientation
from segmentation.models.detection import Detection
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.preprocess.crops import AT_ONCE, Crop, crop_of, cut
from segmentation.stages.preprocess.opencv_crops import OpenCVCrops

COLOR = Color(matrix=1, range=LIMITED)
BOXES: list[Box] = [(0.21, 0.3, 0.62, 0.71), (-0.2, 0.5, 0.33, 1.4), (0.5, 0.5, 0.5, 0.5)]


@pytest.mark.parametrize("box", [(0.1, 0.2, 0.5, 0.4), (0.0, 0.0, 1.0, 1.0), (0.9, 0.05, 0.93, 0.99)])
def test_turning_is_undone_by_turning_back(box: Box) -> None:
    for shown in ORIENTATIONS:
        assert shown.inverse.box(shown.box(box)) == pytest.approx(box)
    corner = (0.0, 0.0, 0.25, 0.5)
    assert Orientation(1).box(corner) == (0.0, 0.75, 0.5, 1.0)  # the upper left corner goes to the lower left
    assert Orientation(1, mirrored=True).box(corner) == (0.5, 0.75, 1.0, 1.0)


def numbered(shape: tuple[int, int]) -> NDArray[np.int64]:
    """A plane in which each sample says where it is."""
    return np.arange(shape[0])[:, None] * 1000 + np.arange(shape[1])


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p"])
@pytest.mark.parametrize("box", BOXES)
def test_a_crop_is_that_part_of_the_upright_picture(box: Box, pix_fmt: str, shown: Orientation) -> None:
    layout, info = FORMATS[pix_fmt], make_info(101, 75, COLOR, shown)
    planes = tuple(map(numbered, layout.shapes(101, 75)))
    crop = crop_of(0, box, info, layout)
    part = cut(Frame(planes=planes, pts=7, duration=1), crop, layout)
    assert part.pts == 7
    whole = shown.upright(planes[0])
    size = np.array(whole.shape[::-1] * 2)
    left, top, right, bottom = np.rint(np.array(crop.shown(info)) * size).astype(int)
    assert (shown.upright(part.planes[0]) == whole[top:bottom, left:right]).all()
    asked = np.clip(np.array(box) * size, 0, size)
    assert np.abs(asked - [left, top, right, bottom]).max() <= 2, "to whole samples of chroma"
    assert left <= asked[0] and top <= asked[1] and right >= asked[2] and bottom >= asked[3]
    y, x = divmod(int(part.planes[0][0, 0]), 1000)
    assert y % (1 << layout.shift_y) == 0 and x % (1 << layout.shift_x) == 0
    shapes = layout.shapes(part.planes[0].shape[1], part.planes[0].shape[0])
    for plane, shape in zip(part.planes[1:], shapes[1:], strict=True):
        assert plane.shape == shape
        assert divmod(int(plane[0, 0]), 1000) == (y >> layout.shift_y, x >> layout.shift_x)
        assert np.shares_memory(plane, planes[1]) or np.shares_memory(plane, planes[2])


def both(
    side: str, info: VideoInfo, pix_fmt: str, model: Model, batch: FrameBatch, crops: list[Crop]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns what a side and the CPU make of crops, as RGB of 0..255 where the model normalizes nothing."""
    device, there = gpu_stages(side)
    transfer = there.GpuTransfer(device, info, FORMATS[pix_fmt], BATCH)
    ours = there.CudaCrops(info, pix_fmt, model, device)(transfer.frames(batch, "cuda"), crops)
    theirs = OpenCVCrops(info, pix_fmt, model, Config())(batch, crops)
    assert ours.dtype == theirs.dtype == model.dtype
    assert ours.shape == theirs.shape == (len(crops), 3, model.height, model.width)
    return ours.astype(np.float32) * 255, theirs.astype(np.float32) * 255


# Of a frame of 1278x720, in a network's input of 160x96: smaller than the input; larger in one direction; halved once
# and twice and interpolated; of odd size, so that areas are averaged; at the frame's edges.
CROPS = [
    Crop(0, 100, 50, 40, 30),
    Crop(1, 0, 0, 400, 60),
    Crop(2, 0, 8, 400, 240),
    Crop(3, 0, 0, 1278, 720),
    Crop(0, 420, 200, 840, 512),
    Crop(1, 600, 118, 322, 602),
    Crop(2, 1276, 718, 2, 2),
    Crop(3, 638, 358, 160, 96),
]


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_crops_of_all_sizes_are_the_cpus(side: str, pix_fmt: str) -> None:
    """The CPU rounds samples after each step, and the matrix enlarges that; a GPU rounds nothing."""
    assert len(CROPS) == AT_ONCE
    info = make_info(1278, 720, Color(matrix=9, range=FULL))
    batch = batch_of(*(noise(pix_fmt, 1278, 720, seed) for seed in range(4)))
    ours, theirs = both(side, info, pix_fmt, MODEL, batch, CROPS)
    scale = 1 << (FORMATS[pix_fmt].bits - 8)
    assert np.abs(ours - theirs).max() < 4 / scale
    assert np.abs(ours - theirs).mean() < 0.7 / scale


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_crops_of_pictures_are_the_cpus_upright_amid_gray(side: str, shown: Orientation) -> None:
    detection = Detection(task="yolo", outputs=("y",), fit="letterbox")
    model = replace(MODEL, detection=detection, channel_order="bgr", mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    info = make_info(333, 251, COLOR, shown)
    batch = batch_of(*(planes_of(smooth_rgb(251, 333, seed), "yuv420p", COLOR) for seed in range(3)))
    crops = [crop_of(row, box, info, FORMATS["yuv420p"]) for row in range(3) for box in BOXES[:2]]
    ours, theirs = both(side, info, "yuv420p", model, batch, crops)
    assert np.abs(ours - theirs).max() < 8  # 4 levels, divided by the smallest deviation
    border = (114 / 255 - 0.3) / 0.7 * 255
    assert all(
        (np.abs(one[0, :, :2] - border) < 0.1).all() or (np.abs(one[0, :2] - border) < 0.1).all() for one in ours
    )


@pytest.mark.parametrize("side", GPU_SIDES)
def test_a_call_gives_what_its_own_crops_show_in_the_networks_type(side: str) -> None:
    info, model = make_info(640, 360, COLOR), replace(MODEL, dtype=np.float16)
    batch = batch_of(planes_of(smooth_rgb(360, 640), "yuv420p", COLOR))
    for crops in ([Crop(0, 0, 0, 320, 200)] * 3, [Crop(0, 300, 100, 320, 200)]):
        ours, theirs = both(side, info, "yuv420p", model, batch, crops)
        assert np.abs(ours - theirs).max() < 4
