"""The mask's edge is drawn along the picture's own."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import Synthetic, pictures
from numpy.typing import NDArray
from test_preprocess import batch_of, make_info

from segmentation import segment
from segmentation.frames import FORMATS, Colour
from segmentation.refine import LONGER_SIDE, Refiner, refined

SAMPLE = Path(__file__).parent.parent / "samples" / "astronaut.mp4"
Map = NDArray[np.float32]


def disk(size: tuple[int, int], radius: float) -> Map:
    """A disk in the middle of (h, w) whose radius is this share of the height; squeezed as the picture is."""
    height, width = size
    y, x = np.mgrid[:height, :width].astype(np.float32)
    apart = np.hypot((y + 0.5) / height - 0.5, ((x + 0.5) / width - 0.5) * 16 / 9) - radius
    return np.clip(0.5 - apart * height, 0, 1).astype(np.float32)


def test_an_edge_beside_the_pictures_is_drawn_to_it() -> None:
    truth = disk((360, 640), 0.3)
    guide = 0.2 + 0.6 * truth
    mask = cv2.GaussianBlur(disk((128, 128), 0.31), (0, 0), 1.2)  # too large by a place, and soft
    plain = cv2.resize(mask, (640, 360), interpolation=cv2.INTER_LINEAR)
    # As the postprocessor sharpens them.
    before, after = (np.abs(np.clip(2 * m - 0.5, 0, 1) - truth) for m in (plain, refined(mask, guide)))
    assert after.mean() < 0.5 * before.mean()
    assert (after > 0.5).sum() < 0.2 * (before > 0.5).sum()


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_without_contrast_the_mask_is_only_enlarged_and_blurred(level: float) -> None:
    mask = disk((64, 64), 0.3)
    found = refined(mask, np.full((180, 320), level, np.float32))
    blurred = cv2.blur(cv2.blur(mask, (5, 5)), (5, 5))
    assert found == pytest.approx(cv2.resize(blurred, (320, 180)), abs=1e-4)


def test_the_formula_is_that_of_the_paper() -> None:
    """Against the sums over windows, written out place by place."""
    generator = np.random.default_rng(1)
    mask, guide = generator.random((12, 10)).astype(np.float32), generator.random((12, 10)).astype(np.float32)
    pad_m, pad_g = (np.pad(x.astype(np.float64), 2, mode="edge") for x in (mask, guide))
    a, b = np.zeros((12, 10)), np.zeros((12, 10))
    for i in range(12):
        for j in range(10):
            m, g = pad_m[i : i + 5, j : j + 5], pad_g[i : i + 5, j : j + 5]
            a[i, j] = (np.mean(g * m) - g.mean() * m.mean()) / (g.var() + 1e-3)
            b[i, j] = m.mean() - a[i, j] * g.mean()
    around = [np.pad(x, 2, mode="edge") for x in (a, b)]
    mean_a, mean_b = (np.lib.stride_tricks.sliding_window_view(x, (5, 5)).mean(axis=(2, 3)) for x in around)
    assert refined(mask, guide) == pytest.approx(np.clip(mean_a * guide + mean_b, 0, 1), abs=1e-4)


def test_what_is_sure_stays_so() -> None:
    noise = np.random.default_rng(0).random((360, 640)).astype(np.float32)
    for value in (0.0, 1.0):
        found = refined(np.full((64, 64), value, np.float32), noise)
        assert np.abs(found - value).max() < 1e-4


@pytest.mark.parametrize(("pix_fmt", "turn"), [("yuv420p", 0), ("yuv420p", 90), ("yuv420p10le", 0), ("yuv444p", 270)])
def test_frames_of_every_kind_guide_upright_masks(pix_fmt: str, turn: int) -> None:
    layout = FORMATS[pix_fmt]
    truth = disk((360, 640), 0.3)
    stored = np.rot90((0.2 + 0.6 * truth) * ((1 << layout.bits) - 1), -(turn // 90)).astype(layout.dtype)
    height, width = stored.shape
    chroma = np.zeros((-(-height >> layout.shift_y), -(-width >> layout.shift_x)), layout.dtype)
    refiner = Refiner(make_info(width, height, Colour(), turn), pix_fmt)
    found = refiner(batch_of((np.ascontiguousarray(stored), chroma, chroma)), disk((128, 128), 0.31)[None])
    assert found.shape == (1, 360, 640)
    assert found[0] == pytest.approx(refined(disk((128, 128), 0.31), 0.2 + 0.6 * truth), abs=0.02)


@pytest.mark.parametrize(
    ("picture", "mask", "expected"),
    [
        ((1920, 1080), (256, 256), (360, LONGER_SIDE)),
        ((1080, 1920), (256, 256), (LONGER_SIDE, 360)),
        ((320, 180), (128, 128), (180, 320)),
        ((1920, 1080), (512, 512), (512, LONGER_SIDE)),
        ((320, 180), (256, 256), (256, 256)),  # larger than the picture is high: as it was
    ],
)
def test_sizes(picture: tuple[int, int], mask: tuple[int, int], expected: tuple[int, int]) -> None:
    width, height = picture
    planes = tuple(np.zeros((height >> s, width >> s), np.uint8) for s in (0, 1, 1))
    found = Refiner(make_info(width, height, Colour(), 0), "yuv420p")(batch_of(planes), np.ones((1, *mask), np.float32))  # type: ignore[arg-type]
    assert found.shape == (1, *expected)
    assert found.dtype == np.float32


def test_edges_of_the_sample_are_sharper_and_can_be_left_alone(tmp_path: Path) -> None:
    soft = {}
    for refine in (True, False):
        segment(SAMPLE, tmp_path / f"{refine}.mkv", refine=refine, effect="mask", codec="ffv1", max_frames=3)
        luma = next(pictures(tmp_path / f"{refine}.mkv")).planes[0]
        soft[refine] = np.mean((luma > 30) & (luma < 220))
    assert 0 < soft[True] < 0.9 * soft[False]


def test_small_videos_pass(tmp_path: Path) -> None:
    clip = replace(Synthetic(), size=(16, 16)).write(tmp_path / "a.mkv")
    assert segment(clip, tmp_path / "out.mkv", codec="ffv1", smooth=0.5, refine=True).frames == 25
