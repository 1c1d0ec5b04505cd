"""The network's input of every implementation agrees with FFmpeg's swscale."""

import math
from dataclasses import replace

import av
import cv2
import numpy as np
import pytest
from drawn import MODEL, ORIENTATIONS, batch_of, make_info, planes_of, smooth_rgb
from numpy.typing import NDArray
from stages import SIDES, preprocess

from segmentation.frames import FORMATS, FULL, LIMITED, Color, Planes
from segmentation.frames.orientation import Orientation
from segmentation.media.opening.stream_properties import shown_as
from segmentation.media.planes import plane_view
from segmentation.models.detection import Detection
from segmentation.stages.preprocess.opencv import shrink
from segmentation.stages.preprocess.resampling import shrinking

TOLERANCE = 2  # levels of 8 bits
SWSCALE_MATRIX = {1: "ITU709", 6: "ITU601", 9: 9}  # 9: BT.2020 by FFmpeg's own number


def swscale_rgb(planes: Planes, pix_fmt: str, color: Color) -> NDArray[np.uint8]:
    """Returns (H, W, 3), converted at full size by FFmpeg. From 4:2:0 directly, FFmpeg is 3 levels off."""
    frame = av.VideoFrame(planes[0].shape[1], planes[0].shape[0], pix_fmt)
    for i, plane in enumerate(planes):
        plane_view(frame, i, FORMATS[pix_fmt].dtype)[:] = plane
    span = {"src_color_range": color.range}
    whole = frame.reformat(
        format=pix_fmt.replace("420", "444").replace("422", "444"), dst_color_range=color.range, **span
    )
    matrix = SWSCALE_MATRIX[color.matrix]
    return whole.reformat(format="rgb24", src_colorspace=matrix, dst_color_range=FULL, **span).to_ndarray()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("range_", [LIMITED, FULL])
@pytest.mark.parametrize("matrix", SWSCALE_MATRIX)
def test_colors_are_swscales(side: str, matrix: int, range_: int, pix_fmt: str) -> None:
    """On flat patches, where resampling and the place of the chroma samples make no difference."""
    color = Color(matrix=matrix, range=range_)
    patches = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
    picture = patches.repeat(32, axis=0).repeat(32, axis=1)  # four times the network's size
    planes = planes_of(picture, pix_fmt, color)
    info = make_info(picture.shape[1], picture.shape[0], color)
    tensor = preprocess(side, info, pix_fmt, MODEL, batch_of(planes))[0]
    ours = tensor.transpose(1, 2, 0)[4::8, 4::8] * 255
    theirs = swscale_rgb(planes, pix_fmt, color)[16::32, 16::32]
    assert np.abs(ours - theirs).max() <= TOLERANCE
    assert np.abs(ours - patches).max() <= TOLERANCE  # both could agree and be wrong


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [(1920, 1080), (638, 358), (161, 121), (120, 72)])
def test_any_size_is_squeezed_to_the_networks(side: str, size: tuple[int, int]) -> None:
    color = Color(matrix=1, range=LIMITED)
    width, height = size
    planes = planes_of(smooth_rgb(height, width), "yuv420p", color)
    tensor = preprocess(side, make_info(width, height, color), "yuv420p", MODEL, batch_of(planes, planes))
    assert tensor.shape == (2, 3, MODEL.height, MODEL.width)
    assert tensor.dtype == np.float32
    expected = cv2.resize(smooth_rgb(height, width), (MODEL.width, MODEL.height), interpolation=cv2.INTER_AREA)
    difference = np.abs(tensor[1].transpose(1, 2, 0) * 255 - expected)
    assert difference.mean() < TOLERANCE


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_the_network_sees_the_picture_upright(side: str, shown: Orientation) -> None:
    color = Color(matrix=6, range=LIMITED)
    upright = smooth_rgb(MODEL.height, MODEL.width)
    stored = np.ascontiguousarray(shown.stored(upright))
    info = make_info(stored.shape[1], stored.shape[0], color, shown)
    tensor = preprocess(side, info, "yuv444p", MODEL, batch_of(planes_of(stored, "yuv444p", color)))
    assert np.abs(tensor[0].transpose(1, 2, 0) * 255 - upright).mean() < TOLERANCE


@pytest.mark.parametrize("side", SIDES)
def test_normalisation_and_channel_order(side: str) -> None:
    color = Color(matrix=1, range=LIMITED)
    batch = batch_of(planes_of(smooth_rgb(96, 160), "yuv420p", color))
    info = make_info(160, 96, color)
    plain = preprocess(side, info, "yuv420p", MODEL, batch)[0]
    mean, std = (0.5, 0.4, 0.3), (0.25, 0.2, 0.1)
    changed = replace(MODEL, mean=mean, std=std, channel_order="bgr", dtype=np.float16)
    tensor = preprocess(side, info, "yuv420p", changed, batch)[0]
    assert tensor.dtype == np.float16
    for channel in range(3):
        expected = (plain[channel] - mean[channel]) / std[channel]
        np.testing.assert_allclose(tensor[2 - channel], expected, atol=0.01)


def test_shrinking_keeps_the_mean() -> None:
    plane = np.random.default_rng(0).integers(0, 256, (540, 960), dtype=np.uint8)
    for size in ((120, 68), (256, 256), (960, 540)):
        small = shrink(plane, size)
        assert small.shape == size[::-1]
        assert abs(float(small.mean()) - float(plane.mean())) < 1


def test_a_plane_is_halved_once_for_all_who_shrink_it() -> None:
    plane = np.random.default_rng(0).integers(0, 256, (540, 960), dtype=np.uint8)
    frame = batch_of((plane, plane, plane)).frames[0]
    shrink(plane, (300, 200), frame.halvings[0])
    (size, halved), *more = frame.halvings[0].items()
    assert size == (480, 270) and not more
    for size in ((300, 200), (120, 100), (480, 270), (960, 540)):
        assert np.array_equal(shrink(plane, size, frame.halvings[0]), shrink(plane, size))
    assert frame.halvings[0][480, 270] is halved
    assert frame.halvings[1] == {} and replace(frame, planes=(plane + 1,) * 3).halvings[0] == {}


@pytest.mark.parametrize("target", [(160, 96), (256, 256), (96, 96), (640, 360)])
@pytest.mark.parametrize("size", [(1920, 1080), (1918, 1078), (638, 358), (161, 121), (120, 72), (96, 96), (2000, 80)])
def test_the_tables_are_the_steps(size: tuple[int, int], target: tuple[int, int]) -> None:
    """The tables for the GPU do the steps of the CPU at once, but for the rounding of each step."""
    plane = np.random.default_rng(0).integers(0, 256, size[::-1], dtype=np.uint8)
    once = plane.astype(np.float32)
    for axis, table in zip((1, 0), shrinking(size[::-1], target), strict=True):
        samples = table[:, :1].astype(int) + np.arange(table.shape[1] - 1)
        taken = np.take(once, samples, axis=axis)  # (h, places, taps) or (places, taps, w)
        once = np.einsum("hpt,pt->hp" if axis else "ptw,pt->pw", taken, table[:, 1:])
    assert np.abs(once - shrink(plane, target)).max() <= 1.6


MATRICES = [
    ((1, 0, 0, 1), 0, False),
    ((0, 1, -1, 0), 270, False),
    ((-1, 0, 0, -1), 180, False),
    ((0, -1, 1, 0), 90, False),
    ((-1, 0, 0, 1), 0, True),
    ((1, 0, 0, -1), 180, True),
    ((0, 1, 1, 0), 270, True),
    ((0, -1, -1, 0), 90, True),
]


@pytest.mark.parametrize(("matrix", "rotation", "mirrored"), MATRICES)
def test_frames_are_seen_as_players_show_them(
    matrix: tuple[int, ...], rotation: int, mirrored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, c, d = (65536 * n for n in matrix)
    assert shown_as((a, b, 0, c, d, 0, 20971520, 0, 1 << 30), "a.mp4") == {"rotation": rotation, "mirrored": mirrored}
    assert not caplog.messages
    stored, shown = np.array([[1, 2], [3, 4]]), np.zeros((2, 2), int)
    for y, x in np.ndindex(2, 2):  # from the middle: -1 or 1
        across, down = (matrix[i] * (2 * x - 1) + matrix[i + 2] * (2 * y - 1) for i in (0, 1))
        shown[(down + 1) // 2, (across + 1) // 2] = stored[y, x]
    assert np.array_equal(Orientation(rotation // 90, mirrored).upright(stored), shown)


@pytest.mark.parametrize(("degrees", "rotation"), [(10, 0), (50, 90), (170, 180), (-80, 270)])
def test_a_turn_that_is_no_quarter_is_said(degrees: int, rotation: int, caplog: pytest.LogCaptureFixture) -> None:
    cos, sin = (round(f(math.radians(degrees)) * 65536) for f in (math.cos, math.sin))
    found = shown_as((cos, -sin, 0, sin, cos, 0, 0, 0, 1 << 30), "a.mp4")
    assert found == {"rotation": rotation, "mirrored": False}
    assert "a.mp4: its display matrix is no quarter turn" in caplog.text and f"by {rotation} degrees" in caplog.text


def test_tables_that_a_caller_changes_are_not_kept() -> None:
    before = [table.copy() for table in shrinking((90, 160), (40, 24))]
    for table in shrinking((90, 160), (40, 24)):
        table /= 255
    assert all(map(np.array_equal, shrinking((90, 160), (40, 24)), before))


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("side", SIDES)
def test_a_letterbox_is_the_whole_picture_amid_gray(side: str, rotation: int) -> None:
    """The border is the gray that networks of boxes were trained with, 114 of 255."""
    color = Color(matrix=1, range=LIMITED)
    info = make_info(96, 48, color, rotation)
    model = replace(MODEL, height=64, width=64, detection=Detection(task="yolo", outputs=("y",), fit="letterbox"))
    model = model.for_video(info)
    upright = rotation % 180 != 0
    assert model.picture == ((16, 0, 32, 64) if upright else (0, 16, 64, 32))
    planes = planes_of(np.full((48, 96, 3), 200, np.uint8), "yuv420p", color)
    tensor = preprocess(side, info, "yuv420p", model, batch_of(planes))[0]
    mean, std = (np.array(value, np.float32)[:, None, None] for value in (model.mean, model.std))
    rgb = (tensor * std + mean) * 255
    if upright:
        rgb = rgb.transpose(0, 2, 1)
    assert np.abs(rgb[:, 16:48] - 200).max() <= TOLERANCE
    assert np.abs(rgb[:, :16] - 114).max() < 0.01 and np.abs(rgb[:, 48:] - 114).max() < 0.01
