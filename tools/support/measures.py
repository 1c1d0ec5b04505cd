"""Measures of masks and of pictures in motion, each a function of arrays; tools/quality/quality.py applies them.

Alphas are (H, W) float32 in 0..1, pictures (H, W, 3) uint8 or float32 in 0..255, lumas (H, W) uint8. "1080p scale"
means pixels of a picture whose shorter side has 1080.
"""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

Alpha = NDArray[np.float32]
Luma = NDArray[np.uint8]
Picture = NDArray[np.generic]
Area = NDArray[np.bool_]

F_TOLERANCE = 0.008  # of the picture's diagonal: DAVIS's
GRADIENT_SIGMA = 1.4  # pixels: Rhemann et al.
BAND = (4, 24)  # pixels outside the edge at 1080p scale: where a halo is seen
EDGE = 12  # pixels to either side of the soft edge at 1080p scale: where a rim is seen


class Motion:
    """Optical flow from each luma to the one before it: what was where.

    Dense inverse search (Kroeger et al., ECCV 2016, as in OpenCV), both ways; where the two do not lead back to the
    start, something was covered or uncovered, or the flow is wrong (Sundaram, Brox and Keutzer, ECCV 2010).
    """

    def __init__(self, before: Luma, now: Luma) -> None:
        search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        back, forth = search.calc(now, before, None), search.calc(before, now, None)
        height, width = now.shape
        grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)
        self._source = grid + back
        there = cv2.remap(forth, self._source, None, cv2.INTER_LINEAR)
        apart = np.square(back + there).sum(-1)
        allowed = 0.01 * (np.square(back).sum(-1) + np.square(there).sum(-1)) + 0.5
        inside = ((self._source >= 0) & (self._source <= (width - 1, height - 1))).all(-1)
        self.visible: Area = (apart <= allowed) & inside

    def carried(self, before: Alpha) -> Alpha:
        """The alpha of the frame before, moved along to where its contents are now."""
        return cv2.remap(before, self._source, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def flicker(before: Alpha, now: Alpha, motion: Motion) -> float:
    """Mean absolute difference of successive alphas after motion compensation, where nothing is covered."""
    if not motion.visible.any():
        return 0.0
    return float(np.abs(now - motion.carried(before))[motion.visible].mean())


def boundary_f(found: Area, truth: Area, tolerance: float = F_TOLERANCE) -> float:
    """Boundary F-score: harmonic mean of the shares of either outline that lies near the other.

    F of Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for Video Object Segmentation", CVPR 2016, as
    in DAVIS's own code: near is `tolerance` of the diagonal, rounded up. Two empty masks score 1, one against none 0.
    """
    ours, theirs = outline(found), outline(truth)
    if not ours.any() or not theirs.any():
        return float(ours.any() == theirs.any())
    radius = np.ceil(tolerance * np.hypot(*truth.shape))
    precision = (_distance_to(theirs)[ours] <= radius).mean()
    recall = (_distance_to(ours)[theirs] <= radius).mean()
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


def _distance_to(area: Area) -> Alpha:
    return cv2.distanceTransform((~area).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)


def outline(mask: Area) -> Area:
    """The pixels whose right, lower or lower right neighbour is on the other side (DAVIS's seg2bmap)."""
    padded = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    here = padded[:-1, :-1]
    return (here != padded[:-1, 1:]) | (here != padded[1:, :-1]) | (here != padded[1:, 1:])


def sad(found: Alpha, truth: Alpha) -> float:
    """Sum of absolute differences, in thousands of pixels. Rhemann et al., "A Perceptually Motivated Online Benchmark
    for Image Matting", CVPR 2009."""
    return float(np.abs(found - truth).sum(dtype=np.float64) / 1000)


def mse(found: Alpha, truth: Alpha) -> float:
    """Mean squared error, in thousandths. Rhemann et al."""
    return float(np.square(found - truth).mean(dtype=np.float64) * 1000)


def gradient_error(found: Alpha, truth: Alpha) -> float:
    """Sum of the squared differences of the gradients' magnitudes, in thousands; the gradient is that of a Gaussian of
    1.4 pixels. Rhemann et al., with q = 2."""
    return float(np.square(_slope(found) - _slope(truth)).sum(dtype=np.float64) / 1000)


def _slope(alpha: Alpha) -> Alpha:
    radius = int(np.ceil(3 * GRADIENT_SIGMA))
    x = np.arange(-radius, radius + 1, dtype=np.float64)
    bell = np.exp(-(x**2) / (2 * GRADIENT_SIGMA**2))
    bell /= bell.sum()
    derived = -x / GRADIENT_SIGMA**2 * bell
    across = cv2.sepFilter2D(alpha, cv2.CV_32F, derived, bell, borderType=cv2.BORDER_REPLICATE)
    down = cv2.sepFilter2D(alpha, cv2.CV_32F, bell, derived, borderType=cv2.BORDER_REPLICATE)
    return np.hypot(across, down)


def dtssd(before: Alpha, now: Alpha, truth_before: Alpha, truth_now: Alpha) -> float:
    """How differently two alphas change from one frame to the next, in hundredths.

    dtSSD of Erofeev et al., "Perceptually Motivated Benchmark for Video Matting", BMVC 2015; the root of the mean over
    the pixels instead of their sum, so that it does not grow with the picture.
    """
    change = (now - before) - (truth_now - truth_before)
    return float(np.sqrt(np.square(change).mean(dtype=np.float64)) * 100)


def lag(found: Sequence[Alpha], truth: Sequence[Alpha], reach: int = 3) -> float:
    """By how many frames `found` comes after `truth`: the shift in time at which the two differ least.

    Mean squared difference at each whole shift up to `reach`; between them, the vertex of the parabola through the best
    and its neighbours. Negative: it comes before. Raises `ValueError` if there are too few frames or nothing moves.
    """
    times = range(reach, len(found) - reach)
    if not times:
        raise ValueError(f"{len(found)} frames: a lag of up to {reach} needs more than {2 * reach}")
    errors = [np.mean([mse(found[t], truth[t - shift]) for t in times]) for shift in range(-reach, reach + 1)]
    if max(errors) == min(errors):
        raise ValueError("nothing moves: any lag fits")
    best = int(np.argmin(errors))
    if best in (0, 2 * reach):
        return float(best - reach)
    left, middle, right = errors[best - 1 : best + 2]
    bend = left - 2 * middle + right
    return float(best - reach + ((left - right) / (2 * bend) if bend else 0.0))


def band_outside(truth: Alpha) -> Area:
    """The pixels outside the subject, but near its edge: where the colors of the subject may be seen in the blur."""
    far = _distance_to(truth > 0)
    scale = min(truth.shape) / 1080
    return (far >= BAND[0] * scale) & (far <= BAND[1] * scale)


def edge_band(truth: Alpha) -> Area:
    """The pixels at the subject's edge and near it, on both sides."""
    soft = (truth > 0.01) & (truth < 0.99)
    return _distance_to(soft | outline(truth > 0.5)) <= EDGE * min(truth.shape) / 1080


def rim(found: Alpha, truth: Alpha) -> tuple[float, float]:
    """How wide the rim of background is that is kept along the subject's outline, and that of the subject that is lost.

    Both in pixels at 1080p scale, means along the outline, of what lies in `edge_band`; 0 if there is no outline.
    """
    length = int(outline(truth > 0.5).sum()) * min(truth.shape) / 1080
    difference = (found.astype(np.float32) - truth)[edge_band(truth)]
    if not length:
        return 0.0, 0.0
    kept, lost = np.maximum(difference, 0), np.maximum(-difference, 0)
    return tuple(float(part.sum(dtype=np.float64) / length) for part in (kept, lost))  # type: ignore[return-value]


def color_error(found: Picture, wanted: Picture, area: Area) -> float:
    """Mean absolute difference of two pictures within `area`, over the colors, in levels of 0 to 255."""
    return float(np.abs(found[area].astype(np.float32) - wanted[area]).mean()) if area.any() else 0.0
