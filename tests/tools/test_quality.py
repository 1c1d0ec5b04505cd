"""The measures of tools/quality/quality.py, on small masks whose answers are known."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "quality"))  # the tools are programs, not a package
sys.path.insert(0, str(ROOT / "tools" / "support"))

import measures
import quality
import synthetic

Alpha = NDArray[np.float32]


def box(left: float, size: int = 64) -> Alpha:
    """A square of 24 pixels whose left edge lies at `left`, its edge pixels covered in part."""
    x = np.arange(size, dtype=np.float32)
    across = np.clip(x + 1 - left, 0, 1) - np.clip(x + 1 - left - 24, 0, 1)
    down = ((x >= 20) & (x < 44)).astype(np.float32)
    return np.outer(down, across).astype(np.float32)


def texture(shift: int, size: int = 128) -> NDArray[np.uint8]:
    """A smooth random picture, moved right by `shift` pixels."""
    clouds = cv2.GaussianBlur(np.random.default_rng(3).normal(0, 1, (size, size + 64)).astype(np.float32), (0, 0), 3)
    clouds = (clouds - clouds.min()) / np.ptp(clouds) * 255
    return clouds[:, 32 - shift : 32 - shift + size].astype(np.uint8)


def test_a_mask_that_moves_with_the_picture_does_not_flicker() -> None:
    motion = measures.Motion(texture(0), texture(5))
    before = cv2.GaussianBlur(box(40, 128), (0, 0), 3)
    moved = cv2.GaussianBlur(box(45, 128), (0, 0), 3)
    assert measures.flicker(before, moved, motion) < 0.1 * measures.flicker(before, before, motion)


def test_flicker_is_the_mean_difference_of_a_still_picture() -> None:
    motion = measures.Motion(texture(0), texture(0))
    assert motion.visible.all()
    assert measures.flicker(np.zeros((128, 128), np.float32), np.full((128, 128), 0.25, np.float32), motion) == 0.25


def test_what_is_covered_does_not_count_as_flicker() -> None:
    before, now = texture(0), texture(0)
    now[40:80, 40:80] = texture(11).T[40:80, 40:80]  # something else has come before it
    visible = measures.Motion(before, now).visible
    assert visible[45:75, 45:75].mean() < 0.5
    assert visible[:30].mean() > 0.9


def test_boundary_f_forgives_what_lies_within_the_tolerance() -> None:
    truth = np.zeros((300, 400), bool)  # 0.008 of the diagonal of 500: 4 pixels
    truth[100:200, 100:250] = True
    assert measures.boundary_f(np.roll(truth, 4, axis=1), truth) == 1
    # Further off, the two upright sides of the outline (202 of 502 pixels) miss each other.
    assert measures.boundary_f(np.roll(truth, 6, axis=1), truth) == pytest.approx(0.6, abs=0.03)


def test_boundary_f_is_the_harmonic_mean() -> None:
    truth = np.zeros((300, 400), bool)
    truth[50:100, 50:100] = True
    found = truth.copy()
    found[200:250, 250:300] = True  # of the same size: precision 1/2, recall 1
    assert measures.boundary_f(found, truth) == pytest.approx(2 / 3)
    nothing = np.zeros_like(truth)
    assert measures.boundary_f(nothing, nothing) == 1
    assert measures.boundary_f(nothing, truth) == measures.boundary_f(truth, nothing) == 0


def test_sad_and_mse_of_a_moved_square() -> None:
    # Half a pixel to the right: 24 rows in which two pixels differ by a half.
    assert measures.sad(box(10.5), box(10)) == pytest.approx(24 / 1000)
    assert measures.mse(box(10.5), box(10)) == pytest.approx(1000 * 24 * 2 * 0.25 / 64**2)


def test_gradient_error_of_a_step_is_that_of_the_gaussian() -> None:
    step = np.zeros((10, 64), np.float32)
    step[:, 32:] = 1
    # The slope of a step is the Gaussian itself; its square has the integral 1 / (2 sqrt(pi) sigma).
    expected = 10 / (2 * np.sqrt(np.pi) * measures.GRADIENT_SIGMA) / 1000
    assert measures.gradient_error(step, np.zeros_like(step)) == pytest.approx(expected, rel=0.03)
    assert measures.gradient_error(1 - step, step) == pytest.approx(0, abs=1e-9)  # magnitudes: the sign is lost


def test_dtssd_sees_what_changes_and_not_what_is_wrong() -> None:
    wrong = box(10) * 0.5
    assert measures.dtssd(wrong, wrong, box(10), box(10)) == 0
    jumped = measures.dtssd(box(10), box(12), box(10), box(10))
    assert jumped == pytest.approx(100 * np.sqrt(24 * 4 / 64**2))


@pytest.mark.parametrize("speed", [2, 5])
def test_lag_is_that_of_a_mask_which_comes_late(speed: int) -> None:
    truth = [cv2.GaussianBlur(box(6 + speed * abs(4 - t % 8)), (0, 0), 1.5) for t in range(24)]
    assert measures.lag(truth, truth) == pytest.approx(0, abs=0.05)
    assert measures.lag([truth[0], *truth[:-1]], truth) == pytest.approx(1, abs=0.05)
    assert measures.lag([*truth[1:], truth[-1]], truth) == pytest.approx(-1, abs=0.05)
    assert measures.lag(list(quality.causal(np.stack(truth), np.empty(0))), truth) > 0.4


def test_lag_needs_frames_and_motion() -> None:
    with pytest.raises(ValueError, match="6 frames"):
        measures.lag([box(3)] * 6, [box(3)] * 6)
    with pytest.raises(ValueError, match="nothing moves"):
        measures.lag([box(3)] * 9, [box(3)] * 9)


def test_the_band_of_the_halo_lies_outside_at_its_distance() -> None:
    alpha = np.zeros((1080, 1920), np.float32)
    alpha[:, :1000] = 1
    row = np.flatnonzero(measures.band_outside(alpha)[500])
    assert (row[0], row[-1]) == (999 + 4, 999 + 24)
    white, grey = np.full((1080, 1920, 3), 255, np.uint8), np.full((1080, 1920, 3), 55.5, np.float32)
    assert measures.color_error(white, grey, measures.band_outside(alpha)) == pytest.approx(199.5)


def test_synthetic_frames_are_composed_as_their_alpha_says(corpus: Path) -> None:
    move = synthetic.Move(100, 0, 8)
    made = list(synthetic.frames(corpus / "bottle-detection.mp4", move, 3))
    person = [frame.alpha.mean() for frame in made]
    assert min(person) > 0.2 and max(person) < 0.6
    for frame in made:
        assert np.array_equal(frame.picture[frame.alpha == 0], frame.background[frame.alpha == 0])
        soft = (frame.alpha > 0.05) & (frame.alpha < 0.95)
        assert 0.002 < soft.mean() < 0.05
    moved = cv2.warpAffine(made[0].alpha, np.array([[1, 0, 50.0], [0, 1, 0]]), synthetic.SIZE)
    assert np.abs(moved - made[1].alpha)[:, 100:].max() < 0.02  # a triangle wave of 100 and period 8: 50 a frame


def test_quality_says_what_is_missing(tmp_path: Path) -> None:
    output = tmp_path / "quality.json"
    command = [sys.executable, ROOT / "tools" / "quality" / "quality.py", "--shared", tmp_path, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert f"{quality.TEACHER}: not here, left out" in done.stdout
    results = json.loads(output.read_text())
    assert set(results["missing"]) >= set(quality.REAL)
    assert {"date", "command", "hardware", "versions"} <= set(results)


@pytest.mark.slow
def test_quality_measures_a_real_and_a_synthetic_clip(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = quality.measure_real(corpus / "selfie_segmentation_web.mp4", 4, None)
    assert real["frames"] == 4
    for variant in ("causal", "smooth 1"):
        assert 0 < real[variant]["flicker_percent"] < real["off"]["flicker_percent"] < 5
    monkeypatch.setattr(quality, "SYNTHETIC_FRAMES", 10)
    clip = quality.measure_synthetic(corpus / "bottle-detection.mp4", synthetic.Move(160, 0, 20), 1, tmp_path / "a.mkv")
    for variant in ("off", "smooth 0.5", "smooth 1"):
        assert clip[variant]["lag_frames"] == pytest.approx(0, abs=0.1)
    assert clip["causal"]["lag_frames"] > 0.4
    assert clip["off"]["boundary_f"] > 0.7
    for halo in clip["halo"].values():
        assert halo["ours"] < halo["plain"] / 2  # what the blur of the background alone is for
