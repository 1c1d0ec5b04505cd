"""Where the background is cut away, edges are drawn by color: they keep nothing of it."""

from typing import Any

import cv2
import numpy as np
import pytest
from drawn import batch_of, disk, make_info
from numpy.typing import NDArray

from segmentation import Config
from segmentation.frames import Color, FrameBatch, HostTransfer, MaskedBatch
from segmentation.options.effect import Effect
from segmentation.pipeline.compositor import Compositor
from segmentation.stages.masks.color_edge import COLORS, ENOUGH, FLOOR, NEAR, SURE, draw_by_color
from segmentation.stages.masks.refinement import Refiner

Map = NDArray[np.float32]
SHAPE = 180, 320


def mixed(alpha: Map, front: tuple[float, ...], behind: tuple[float, ...]) -> list[Map]:
    """The planes of a picture of two colors."""
    return [(b + (f - b) * alpha).astype(np.float32) for f, b in zip(front, behind, strict=True)]


@pytest.mark.parametrize("radius", [0.295, 0.305])
def test_a_mask_that_is_too_large_or_too_small_gets_the_true_edge(radius: float) -> None:
    truth, mask = disk(SHAPE, 0.3), cv2.GaussianBlur(disk(SHAPE, radius), (0, 0), 1.5)
    colors = mixed(truth, (0.4, 0.5, 0.5), (0.4, 0.3, 0.7))  # as bright as what is behind
    assert np.abs(draw_by_color(mask, colors, 1) - truth).sum() < 0.25 * np.abs(mask - truth).sum()


def test_without_a_difference_in_color_the_mask_stays() -> None:
    mask = disk(SHAPE, 0.3)
    noise = 0.5 + 0.02 * np.random.default_rng(1).standard_normal((3, *SHAPE)).astype(np.float32)
    assert np.abs(draw_by_color(mask, list(noise), 1) - mask).max() < 0.02
    stripes = np.zeros(SHAPE, np.float32)
    stripes[:, ::8] = stripes[:, 1::8] = 1  # on both sides of the edge
    assert np.abs(draw_by_color(mask, [stripes] * 3, 1) - mask).max() < 0.02


def test_it_is_drawn_as_far_as_it_is_asked_for() -> None:
    mask = disk(SHAPE, 0.32)
    colors = mixed(disk(SHAPE, 0.3), (0.8, 0.5, 0.5), (0.2, 0.5, 0.5))
    none, half, whole = (draw_by_color(mask, colors, share) for share in (0, 0.5, 1))
    assert np.array_equal(none, mask) and np.abs(whole - mask).max() > 0.5
    assert half == pytest.approx((mask + whole) / 2, abs=1e-5)


def test_the_formula() -> None:
    """Against sums over windows, place by place."""
    random = np.random.default_rng(2)
    mask = cv2.GaussianBlur((random.random((24, 20)) > 0.5).astype(np.float32), (0, 0), 3)
    mask = np.clip((mask - 0.5) * 20 + 0.5, 0, 1)
    colors = [c + 0.1 * random.random(mask.shape).astype(np.float32) for c in mixed(mask, (0.9, 0.4, 0.3), (0.1,) * 3)]

    def around(layer: NDArray[np.float64], side: int) -> NDArray[np.float64]:
        return np.lib.stride_tricks.sliding_window_view(np.pad(layer, side // 2, mode="edge"), (side, side))

    near = around(mask.astype(np.float64), NEAR).mean((2, 3))
    sides = np.clip(2 - (1 - near) / SURE, 0, 1), np.clip(2 - near / SURE, 0, 1)
    own = np.stack(colors, -1).astype(np.float64)
    found = []
    for side in sides:
        weights = around(side, COLORS)
        total = weights.sum((2, 3)) + 1e-12
        windows = np.stack([around(own[..., i], COLORS) for i in range(3)], -1)
        mean = (weights[..., None] * windows).sum((2, 3)) / total[..., None]
        squares = (weights * (windows**2).sum(-1)).sum((2, 3)) / total
        found.append((mean, squares - (mean**2).sum(-1), np.minimum(weights.mean((2, 3)) / ENOUGH, 1)))
    (front, front_spread, front_enough), (behind, behind_spread, behind_enough) = found
    apart = front - behind
    distance = (apart**2).sum(-1)
    drawn = np.clip(((own - behind) * apart).sum(-1) / (distance + 1e-6), 0, 1)
    trust = np.clip(2 * distance / (distance + front_spread + behind_spread + FLOOR) - 1, 0, 1)
    trust *= (1 - sides[0]) * (1 - sides[1]) * front_enough * behind_enough
    assert (trust > 0.5).any()
    assert draw_by_color(mask, colors, 1) == pytest.approx(mask + trust * (drawn - mask), abs=1e-3)


class Keeping:
    """A postprocessor that keeps the masks which it is given."""

    def __call__(self, batch: MaskedBatch) -> FrameBatch:
        self.masks = np.array(batch.masks)
        return batch.frames


@pytest.mark.parametrize("effects", [("color:red",), ("mask",), ("blur", "cutout"), ("cutout", "blur", "image:a.png")])
def test_outputs_get_it_where_their_effect_cuts_the_background_away(effects: tuple[str, ...]) -> None:
    """Each as if it were alone; the masks that results state are the same with every effect."""
    planes = mixed(disk((360, 640), 0.3), (100, 90, 160), (100, 160, 90))
    y, u, v = (plane.astype(np.uint8) for plane in (planes[0], planes[1][::2, ::2], planes[2][::2, ::2]))
    info = make_info(640, 360, Color(), 0)
    outputs: list[Any] = [(Effect.parse(effect), Keeping()) for effect in effects]
    compositor = Compositor(outputs, "host", info, "yuv420p", Config(verify=True), None, HostTransfer())
    batch, masks = batch_of((y, u, v)), cv2.GaussianBlur(disk((192, 336), 0.305), (0, 0), 1.5)[None]
    composed = compositor(MaskedBatch(frames=batch, masks=masks))
    refiner = Refiner(info, "yuv420p")
    plain = refiner(batch, masks)
    drawn = refiner.by_color(batch, masks, plain)
    assert np.array_equal(np.asarray(composed.refined.masks), plain) and np.abs(drawn - plain).max() > 0.3
    for (effect, keeping), shown in zip(outputs, composed.shown, strict=True):
        assert np.array_equal(shown, keeping.masks)
        assert np.array_equal(keeping.masks, plain if effect.kind == "blur" else drawn)
