"""Effects on YUV planes, on every implementation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drawn import ORIENTATIONS, batch_of, make_info, noise, planes_of, smooth_rgb
from numpy.typing import NDArray
from stages import SIDES, postprocess

from segmentation.frames import FORMATS, FULL, LIMITED, Color, Planes
from segmentation.frames.orientation import Orientation
from segmentation.stages.postprocess.opencv import composite

HD = Color(matrix=1, range=LIMITED)
FULL_HD = Color(matrix=1, range=FULL)  # in which the luma of the effect `mask` is alpha
Mask = NDArray[np.float32]  # (1, h, w)
Run = Callable[..., Planes]


def half_mask(size: int = 64) -> NDArray[np.float32]:
    """(1, size, size): the left half is kept."""
    mask = np.zeros((1, size, size), np.float32)
    mask[:, :, : size // 2] = 1
    return mask


@pytest.fixture(params=SIDES)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an effect on one picture, on either side."""

    def work(
        effect: str,
        planes: Planes,
        mask: Mask,
        pix_fmt: str = "yuv420p",
        color: Color = HD,
        turn: Orientation | int = 0,
        **options: Any,
    ) -> Planes:
        height, width = planes[0].shape
        info = make_info(width, height, color, turn)
        return postprocess(request.param, info, pix_fmt, effect, batch_of(planes), mask, **options).frames[0].planes

    return work


@pytest.mark.parametrize("bits", [8, 10])
def test_compositing_is_exact_at_both_ends_and_near_between(bits: int) -> None:
    dtype: Any = np.uint8 if bits == 8 else np.uint16
    top = (1 << bits) - 1
    values = np.arange(1 << bits, dtype=dtype)[None]
    other = values[:, ::-1].copy()
    for a in range(256):
        alpha = np.full(values.shape, a, np.uint8)
        exact = (values.astype(float) * a + other.astype(float) * (255 - a)) / 255
        mixed = composite(values, other, alpha)
        assert np.abs(mixed - exact).max() <= 1
        assert mixed.max() <= top
    assert np.array_equal(composite(values, other, np.full(values.shape, 255, np.uint8)), values)
    assert np.array_equal(composite(values, other, np.zeros(values.shape, np.uint8)), other)


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("effect", ["blur:30", "blur:10", "pixelate:60", "color:#ff0000", "cutout"])
@pytest.mark.parametrize("size", [(322, 182), (161, 121)])
def test_kept_pixels_are_bit_exact(run: Run, effect: str, pix_fmt: str, size: tuple[int, int]) -> None:
    planes = noise(pix_fmt, *size)
    result = run(effect, planes, half_mask(), pix_fmt)
    for before, after in zip(planes, result, strict=False):  # a cut-out has alpha too
        assert after.dtype == before.dtype
        assert after.shape == before.shape
        kept = before.shape[1] // 2 - before.shape[1] // 16  # the edge is as wide as a pixel of the mask
        assert np.array_equal(before[:, :kept], after[:, :kept])
        assert not np.array_equal(before[:, -kept:], after[:, -kept:])


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p10le"])
@pytest.mark.parametrize("effect", ["blur", "pixelate", "color", "cutout"])
def test_inverted_effects_keep_the_other_half_bit_for_bit(run: Run, effect: str, pix_fmt: str) -> None:
    planes = noise(pix_fmt)
    result = run(effect, planes, half_mask(), pix_fmt, invert=True)
    for before, after in zip(planes, result, strict=False):
        kept = before.shape[1] // 2 - before.shape[1] // 16
        assert np.array_equal(before[:, -kept:], after[:, -kept:])
        assert not np.array_equal(before[:, :kept], after[:, :kept])


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.8, 0.95])
def test_the_edge_lies_at_the_threshold(run: Run, threshold: float) -> None:
    """A mask that rises evenly from 0 to 1: half opaque where it is as high as the threshold, and 0 and 1 stay."""
    mask = np.tile(np.linspace(0, 1, 256, dtype=np.float32), (256, 1))[None]
    row = run("mask", noise("yuv420p", 1024, 1024), mask, color=FULL_HD, threshold=threshold)[0][512].astype(float)
    assert (row[0], row[-1]) == (0, 255)
    assert np.interp(127.5, row, np.arange(1024)) / 1023 == pytest.approx(threshold, abs=0.01)


@pytest.mark.parametrize("turn", [0, 90])
@pytest.mark.parametrize("width", [8.0, 20.0, 60.0])
@pytest.mark.parametrize("height", [1080, 360])
def test_a_feathered_edge_is_as_wide_as_asked(run: Run, height: int, width: float, turn: int) -> None:
    """From 10 % to 90 %, in pixels of a picture of 1080; it stays where it was."""
    planes = noise("yuv420p", height * 16 // 9, height)
    mask = half_mask(256)
    luma = run("mask", planes, mask, color=FULL_HD, turn=turn, feather=width)[0]
    row = np.rot90(luma, turn // 90)[len(luma) // 3].astype(float) / 255
    begin, middle, end = np.interp([-0.9, -0.5, -0.1], -row, np.arange(len(row)))
    steep = 3 / 1080 * len(row) / 1.7  # of the mask's own pixels, which are enlarged
    assert end - begin == pytest.approx(np.hypot(width * height / 1080, steep), rel=0.08)
    assert middle == pytest.approx(len(row) / 2 - 0.5, abs=0.5)


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p"])
def test_blocks_are_the_mean_of_their_background(run: Run, pix_fmt: str) -> None:
    """Blocks of 20 pixels; those across the edge take nothing from the subject, and they end sharply."""
    layout = FORMATS[pix_fmt]
    planes = noise(pix_fmt, 330, 180)
    alpha = run("mask", planes, half_mask(), pix_fmt, color=FULL_HD)[0][0] >> (layout.bits - 8)
    result = run("pixelate:120", planes, half_mask(), pix_fmt)
    for index, (before, after) in enumerate(zip(planes, result, strict=True)):
        across, down = (20, 20) if index == 0 else (20 >> layout.shift_x, 20 >> layout.shift_y)
        weight = 255 - (alpha if index == 0 else alpha.reshape(-1, 1 << layout.shift_x).max(1)).astype(float)
        for top in range(0, before.shape[0], down):
            for left in range(0, before.shape[1], across):
                part = np.s_[top : top + down, left : left + across]
                w = np.broadcast_to(weight[left : left + across], before[part].shape)
                shown = after[part][w == 255]
                if shown.size:
                    assert len(np.unique(shown)) == 1
                    assert shown[0] == pytest.approx((before[part] * w).sum() / w.sum(), abs=0.51)


def soft_edge(run: Run) -> tuple[Mask, NDArray[np.float64], Planes]:
    """A mask, the alpha that becomes of it in 640x360, and a grey subject of luma 100 before white with that alpha."""
    mask = np.clip(0.5 - np.linspace(-20, 20, 64, dtype=np.float32), 0, 1)[None, None].repeat(64, axis=1)
    alpha = run("mask", noise("yuv420p", 640, 360), mask, color=FULL_HD)[0] / 255
    grey = np.full((180, 320), 128, np.uint8)
    return mask, alpha, (np.rint(100 * alpha + 255 * (1 - alpha)).astype(np.uint8), grey, grey)


def test_the_old_background_does_not_shine_through_the_edge(run: Run) -> None:
    mask, alpha, planes = soft_edge(run)
    luma = run("color:#000000", planes, mask, color=FULL_HD)[0]
    edge = (alpha > 0) & (alpha < 1)
    blended = composite(planes[0], np.zeros_like(planes[0]), np.rint(alpha * 255).astype(np.uint8))
    ours, plain = (np.abs(shown - 100 * alpha)[edge].mean() for shown in (luma, blended))
    assert ours < 0.6 * plain


@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_a_cut_out_has_alpha_and_nothing_where_it_is_zero(run: Run, pix_fmt: str) -> None:
    layout = FORMATS[pix_fmt]
    y, u, v, alpha = run("cutout", noise(pix_fmt, 321, 181), half_mask(), pix_fmt)  # type: ignore[misc]
    mask = run("mask", noise(pix_fmt, 321, 181), half_mask(), pix_fmt, color=FULL_HD)[0]
    assert alpha.dtype == layout.dtype and alpha.shape == y.shape
    assert np.array_equal(alpha, mask) if layout.bits == 8 else np.abs(alpha.astype(int) - mask).max() <= 1
    assert alpha.max() == (1 << layout.bits) - 1
    assert (y[alpha == 0] == 16 << (layout.bits - 8)).all()
    assert (u[:, -10:] == 128 << (layout.bits - 8)).all() and (v[:, -10:] == 128 << (layout.bits - 8)).all()


def test_a_cut_out_shows_the_subjects_own_color(run: Run) -> None:
    mask, alpha, planes = soft_edge(run)
    luma = run("cutout", planes, mask, color=FULL_HD)[0]
    edge = (alpha > 0.3) & (alpha < 1)
    ours, mixed = (np.abs(shown[edge] - 100.0).mean() for shown in (luma, planes[0]))
    assert ours < 0.6 * mixed


def test_a_soft_cut_out_keeps_the_picture_as_it_is(run: Run) -> None:
    """A feathered edge's alpha does not say what its samples are mixtures of."""
    planes = noise("yuv420p")
    y, u, v, alpha = run("cutout", planes, half_mask(), feather=100.0)  # type: ignore[misc]
    assert np.array_equal(y[alpha > 0], planes[0][alpha > 0])
    assert ((alpha > 0) & (alpha < 255)).sum(axis=1).min() > 20
    shared = alpha[::2, ::2] > 0
    assert np.array_equal(u[shared], planes[1][shared]) and np.array_equal(v[shared], planes[2][shared])


def test_the_input_is_only_read(run: Run) -> None:
    planes = noise("yuv420p")
    copies = [p.copy() for p in planes]
    run("blur", planes, half_mask())
    for before, after in zip(copies, planes, strict=True):
        assert np.array_equal(before, after)


def test_blur_takes_nothing_from_the_subject(run: Run) -> None:
    """A white subject before a black background: no light of it may show beside it."""
    black, white = HD.from_rgb((0, 0, 0), 8)[0], HD.from_rgb((255, 255, 255), 8)[0]
    luma = np.full((360, 640), black, np.uint8)
    luma[:, :320] = white
    grey = np.full((180, 320), 128, np.uint8)
    result = run("blur:40", (luma, grey, grey), half_mask(128))[0]
    beyond_the_edge = result[:, 320 + 10 :]
    assert beyond_the_edge.max() <= black + 2
    assert result[:, :310].min() == white


def test_blur_is_a_gaussian_of_the_stated_width(run: Run) -> None:
    """A step edge blurred with standard deviation s has its 16 % and 84 % points at -s and +s."""
    height = 1080
    luma = np.full((height, 1920), 40, np.uint8)
    luma[:, 960:] = 200
    grey = np.full((540, 960), 128, np.uint8)
    row = run("blur:25", (luma, grey, grey), np.zeros((1, 64, 64), np.float32))[0][540].astype(float)
    level = (row - 40) / 160
    left, right = np.interp([0.1587, 0.8413], level, np.arange(1920))
    assert (right - left) / 2 == pytest.approx(25, rel=0.1)
    assert (right + left) / 2 == pytest.approx(959.5, abs=1)


def test_blur_looks_the_same_at_any_resolution(run: Run) -> None:
    nothing = np.zeros((1, 64, 64), np.float32)
    small, large = (
        run("blur:25", planes_of(smooth_rgb(h, w), "yuv420p", HD), nothing)[0] for w, h in ((480, 270), (1920, 1080))
    )
    assert np.abs(large[2::4, 2::4].astype(int) - small).mean() < 2


@pytest.mark.parametrize("range_", [LIMITED, FULL])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p10le"])
def test_color_replaces_the_background(run: Run, pix_fmt: str, range_: int) -> None:
    color = Color(matrix=1, range=range_)
    result = run("color:#2080e0", noise(pix_fmt), half_mask(), pix_fmt, color)
    to_rgb = color.yuv_to_rgb(FORMATS[pix_fmt].bits)
    yuv = np.array([*(float(p[5, -5]) for p in result), 1.0])
    np.testing.assert_allclose((to_rgb @ yuv) * 255, [0x20, 0x80, 0xE0], atol=2)


@pytest.mark.parametrize(("range_", "black", "white"), [(LIMITED, 16, 235), (FULL, 0, 255)])
def test_mask_is_a_grey_picture_of_the_mask(run: Run, range_: int, black: int, white: int) -> None:
    luma, u, v = run("mask", noise("yuv420p"), half_mask(), color=Color(matrix=1, range=range_))
    assert (luma[:, :140] == white).all()
    assert (luma[:, -140:] == black).all()
    assert (u == 128).all() and (v == 128).all()


def test_overlay_tints_the_kept_part_only(run: Run) -> None:
    planes = noise("yuv420p")
    luma = run("overlay:#ff0000", planes, half_mask())[0]
    assert np.array_equal(luma[:, -140:], planes[0][:, -140:])
    tint = HD.from_rgb((255, 0, 0), 8)[0]
    expected = (planes[0][:, :140].astype(float) + tint) / 2
    assert np.abs(luma[:, :140] - expected).max() <= 2


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_masks_are_turned_back(run: Run, shown: Orientation) -> None:
    upright = np.zeros((1, 64, 64), np.float32)
    upright[:, :16, :24] = 1  # top left, as the network sees it
    luma = run("mask", noise("yuv420p", 320, 320), upright, turn=shown)[0]
    corner = shown.upright(luma)[20, 20]
    assert corner == 235
    assert (luma == 235).mean() == pytest.approx(16 * 24 / 64**2, abs=0.02)


def test_the_edge_is_a_line_not_the_steps_of_the_small_mask(run: Run) -> None:
    """A diagonal mask of 64 pixels enlarged to 1024: the edge runs within a pixel of the mask of the true line."""
    mask = np.tri(64, dtype=np.float32)[None]
    luma = run("mask", noise("yuv420p", 1024, 1024), mask)[0]
    position = (luma[64:-64] > 125).sum(axis=1)  # how many pixels of each row are kept
    true = np.arange(64, 1024 - 64)
    assert np.abs(position - true - 8).max() <= 8
