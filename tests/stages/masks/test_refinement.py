"""The mask's edge is drawn along the picture's own."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from drawn import batch_of, disk, make_info
from numpy.typing import NDArray
from paths import SAMPLE
from videos import Synthetic, pictures

from segmentation import segment
from segmentation.frames import FORMATS, Color
from segmentation.stages.masks import refinement
from segmentation.stages.masks.refinement import BOX, DOUBT, EPSILON, LONGER_SIDE, MISFIT, SMALL, Refiner, refine

Map = NDArray[np.float32]


def test_an_edge_beside_the_pictures_is_drawn_to_it() -> None:
    truth = disk((360, 640), 0.3)
    guide = 0.2 + 0.6 * truth
    mask = cv2.GaussianBlur(disk((128, 128), 0.31), (0, 0), 1.2)  # too large by a pixel, and soft
    plain = cv2.resize(mask, (640, 360), interpolation=cv2.INTER_LINEAR)
    # Sharpened like the postprocessor does.
    before, after = (np.abs(np.clip(2 * m - 0.5, 0, 1) - truth) for m in (plain, refine(mask, guide)))
    assert after.mean() < 0.5 * before.mean()
    assert (after > 0.5).sum() < 0.25 * (before > 0.5).sum()


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_without_contrast_the_edge_stays_where_it_is(level: float) -> None:
    mask = disk((64, 64), 0.3)
    plain = cv2.resize(mask, (320, 180))
    found = refine(mask, np.full((180, 320), level, np.float32))
    assert ((found > 0.5) != (plain > 0.5)).mean() < 0.002
    around = cv2.blur(plain, (71, 71))
    assert (
        np.abs(found - plain)[(around < 1e-3) | (around > 1 - 1e-3)].max() < 1e-4
    )  # far from the edge nothing changes


def test_an_edge_of_the_picture_beside_the_masks_does_not_pull_it() -> None:
    """A soft mask whose own edge shows in the picture faintly, and a strong stripe inside the subject."""
    truth = disk((360, 640), 0.3)
    guide = np.clip(0.3 + 0.3 * truth, 0, 1)
    x = np.arange(640)
    guide[:, (x > 225) & (x < 232)] = 1  # the subject begins at 212
    mask = cv2.GaussianBlur(disk((256, 256), 0.3), (0, 0), 2)
    rows = slice(150, 210)
    found = np.clip(2 * refine(mask, guide) - 0.5, 0, 1)
    assert found[rows, 222:420].min() > 0.9
    assert (
        np.abs(found - truth)[rows].sum()
        < 0.7 * np.abs(np.clip(2 * cv2.resize(mask, (640, 360)) - 0.5, 0, 1) - truth)[rows].sum()
    )


def test_a_mask_that_is_all_doubt_takes_on_nothing_of_the_picture() -> None:
    generator = np.random.default_rng(3)
    mask = (0.5 + 0.2 * (generator.random((64, 64)) - 0.5)).astype(np.float32)
    guide = generator.random((180, 320)).astype(np.float32)
    assert refine(mask, guide) == pytest.approx(cv2.resize(mask, (320, 180)), abs=1e-6)


def test_people_who_are_small_are_only_enlarged() -> None:
    """Between the limits, the mask is a mixture of refined and enlarged, by how much of it shows people."""
    mask = cv2.GaussianBlur(disk((192, 336), 0.05), (0, 0), 1.2)
    guide = cv2.GaussianBlur(np.random.default_rng(5).random((270, 480)).astype(np.float32), (0, 0), 1)
    plain = cv2.resize(mask, (480, 270), interpolation=cv2.INTER_LINEAR)
    assert mask.mean() < SMALL[0]
    assert np.array_equal(refine(mask, guide), plain)

    larger = cv2.GaussianBlur(disk((192, 336), 0.09), (0, 0), 1.2)
    assert SMALL[0] < larger.mean() < SMALL[1]
    share = (float(larger.mean()) - SMALL[0]) / (SMALL[1] - SMALL[0])
    plain = cv2.resize(larger, (480, 270), interpolation=cv2.INTER_LINEAR)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refinement, "SMALL", (-1.0, 0.0))
        whole = refine(larger, guide)
    assert np.abs(whole - plain).max() > 0.1
    assert refine(larger, guide) == pytest.approx(plain + share * (whole - plain), abs=1e-3)  # the mixture is clipped


def test_the_formula() -> None:
    """Against sums over windows, place by place, with a doubt between the limits, so that all terms count."""
    generator = np.random.default_rng(1)
    guide = generator.random((20, 16)).astype(np.float32)
    mask = generator.random((20, 16)).astype(np.float32)
    mask[:, :8] = np.round(mask[:, :8])
    doubt = np.mean(1 - 2 * np.abs(mask - 0.5))
    assert DOUBT[0] < doubt < DOUBT[1]
    r = BOX // 2
    padded_m, padded_g = (np.pad(x.astype(np.float64), r, mode="edge") for x in (mask, guide))
    a, b, u = np.zeros((3, 20, 16))
    for i in range(20):
        for j in range(16):
            m, g = padded_m[i : i + BOX, j : j + BOX], padded_g[i : i + BOX, j : j + BOX]
            covariance = np.mean(g * m) - g.mean() * m.mean()
            a[i, j] = covariance / (g.var() + EPSILON)
            b[i, j] = m.mean() - a[i, j] * g.mean()
            u[i, j] = 1 / (m.var() - a[i, j] * covariance + MISFIT)

    def mean(layer: NDArray[np.float64]) -> NDArray[np.float64]:
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(layer, r, mode="edge"), (BOX, BOX))
        return windows.mean(axis=(2, 3))

    drawn = mean(u * a) / mean(u) * guide + mean(u * b) / mean(u)
    share = (DOUBT[1] - doubt) / (DOUBT[1] - DOUBT[0])
    assert refine(mask, guide) == pytest.approx(np.clip(mask + share * (drawn - mask), 0, 1), abs=1e-4)


def test_what_is_sure_stays_so() -> None:
    noise = np.random.default_rng(0).random((360, 640)).astype(np.float32)
    for value in (0.0, 1.0):
        found = refine(np.full((64, 64), value, np.float32), noise)
        assert np.abs(found - value).max() < 1e-4


@pytest.mark.parametrize(("pix_fmt", "turn"), [("yuv420p", 0), ("yuv420p", 90), ("yuv420p10le", 0), ("yuv444p", 270)])
def test_frames_of_every_kind_guide_upright_masks(pix_fmt: str, turn: int) -> None:
    layout = FORMATS[pix_fmt]
    truth = disk((360, 640), 0.3)
    stored = np.rot90((0.2 + 0.6 * truth) * ((1 << layout.bits) - 1), -(turn // 90)).astype(layout.dtype)
    height, width = stored.shape
    chroma = np.zeros((-(-height >> layout.shift_y), -(-width >> layout.shift_x)), layout.dtype)
    refiner = Refiner(make_info(width, height, Color(), turn), pix_fmt)
    found = refiner(batch_of((np.ascontiguousarray(stored), chroma, chroma)), disk((128, 128), 0.31)[None])
    assert found.shape == (1, 270, 480)
    guide = 0.2 + 0.6 * cv2.resize(truth, (480, 270), interpolation=cv2.INTER_LINEAR)
    assert found[0] == pytest.approx(refine(disk((128, 128), 0.31), guide), abs=0.02)


@pytest.mark.parametrize(
    ("picture", "mask", "expected"),
    [
        ((1920, 1080), (256, 256), (270, LONGER_SIDE)),
        ((1080, 1920), (256, 256), (LONGER_SIDE, 270)),
        ((1920, 1080), (192, 336), (270, LONGER_SIDE)),  # the built-in network's sizes
        ((1080, 1920), (336, 192), (LONGER_SIDE, 270)),
        ((1080, 1080), (256, 256), (LONGER_SIDE, LONGER_SIDE)),
        ((1920, 1080), (448, 256), (448, LONGER_SIDE)),  # an engine for the other kind of video
        ((320, 180), (128, 128), (180, 320)),
        ((1920, 1080), (512, 512), (512, 512)),
        ((320, 180), (256, 256), (256, 256)),  # larger than the picture is high: as it was
    ],
)
def test_sizes(picture: tuple[int, int], mask: tuple[int, int], expected: tuple[int, int]) -> None:
    width, height = picture
    planes = tuple(np.zeros((height >> s, width >> s), np.uint8) for s in (0, 1, 1))
    found = Refiner(make_info(width, height, Color(), 0), "yuv420p")(batch_of(planes), np.ones((1, *mask), np.float32))  # type: ignore[arg-type]
    assert found.shape == (1, *expected)
    assert found.dtype == np.float32


def test_edges_of_the_sample_follow_the_picture_and_can_be_left_alone(tmp_path: Path) -> None:
    luma = next(pictures(SAMPLE)).planes[0].astype(np.float32)
    slope = np.hypot(cv2.Sobel(luma, cv2.CV_32F, 1, 0), cv2.Sobel(luma, cv2.CV_32F, 0, 1))
    found = {}
    for on in (True, False):
        segment(SAMPLE, tmp_path / f"{on}.mkv", refine=on, effect="mask", codec="ffv1", max_frames=3)
        mask = (next(pictures(tmp_path / f"{on}.mkv")).planes[0] > 125).astype(np.uint8)
        outline = cv2.morphologyEx(mask, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) > 0
        found[on] = slope[outline].mean()
    assert found[True] > 1.1 * found[False]


def test_small_videos_pass(tmp_path: Path) -> None:
    clip = replace(Synthetic(), size=(16, 16)).write(tmp_path / "a.mkv")
    assert segment(clip, tmp_path / "out.mkv", codec="ffv1", smooth=0.5, refine=True).frames == 25
