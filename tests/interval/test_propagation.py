"""Masks between two keys follow what moves, and come from the key that looks the same."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation.interval.propagation import (
    FrameBetween,
    FrameMask,
    HostLuma,
    HostPropagation,
    change,
    flow_to,
    propagate,
    small_luma,
)
from segmentation.models.model import load_model
from segmentation.options.config import Config

Map = NDArray[np.float32]
MODEL = load_model(Config())
SIDE = 256


def _texture(seed: int) -> Map:
    """Returns a picture (512, 512, 3) in 0..1 with details of a few pixels and of many."""
    noise = np.random.default_rng(seed).random((512, 512)).astype(np.float32) - 0.5
    details = [cv2.GaussianBlur(noise, (0, 0), sigma) for sigma in (3, 12)]
    picture = np.float32(0.5) + sum(np.float32(0.1) * detail / detail.std() for detail in details)
    return np.repeat(np.clip(picture, 0, 1)[..., None], 3, axis=2)


GROUND, OBJECT = _texture(1), _texture(2)


def luma_of(picture: Map) -> HostLuma:
    """Returns the small luma of a picture (h, w, 3) in 0..1."""
    return small_luma((picture.transpose(2, 0, 1) - 0.5) / 0.5, MODEL)


def scene(x: int | None, shift: tuple[int, int] = (0, 0)) -> tuple[HostLuma, Map]:
    """Returns the luma and mask of a textured square with its left side at column `x`, or nowhere, on a texture that
    is shifted."""
    picture = GROUND[128 + shift[1] : 128 + shift[1] + SIDE, 128 + shift[0] : 128 + shift[0] + SIDE].copy()
    mask = np.zeros((SIDE, SIDE), np.float32)
    if x is not None:
        picture[80:176, x : x + 96] = OBJECT[80:176, 128:224]
        mask[80:176, x : x + 96] = 1
    return luma_of(picture), mask


def between(luma: HostLuma, first: tuple[HostLuma, Map], last: tuple[HostLuma, Map], share: float = 0.5) -> Map:
    keys = tuple(FrameMask(mask, None) for _, mask in (first, last))
    found, _ = propagate(FrameBetween(luma, (first[0], last[0]), keys, share))  # type: ignore[arg-type]
    assert isinstance(found.mask, np.ndarray)
    return found.mask


def iou(a: Map, b: Map) -> float:
    return float(((a > 0.5) & (b > 0.5)).sum() / ((a > 0.5) | (b > 0.5)).sum())


@pytest.mark.parametrize("shift", [(0, 0), (2, 0), (-8, 6), (16, -12), (-24, 24)])
def test_flow_is_where_the_picture_has_gone(shift: tuple[int, int]) -> None:
    """In places of half the picture: a shift of the whole picture by an even number of pixels is found exactly."""
    (here, _), (there, _) = scene(None), scene(None, shift)
    right, down = flow_to(here, there)
    inside = np.s_[16:-16, 16:-16]  # what lies farther out is not in the other picture
    for part, pixels in ((right, shift[0]), (down, shift[1])):
        assert np.median(part[inside]) == pytest.approx(-pixels / 2, abs=0.05)
        assert np.mean(np.abs(part[inside] + pixels / 2) < 1) > 0.75


def test_a_picture_without_texture_stays_where_it_is() -> None:
    flat = luma_of(np.full((SIDE, SIDE, 3), 0.4, np.float32))
    right, down = flow_to(flat, flat)
    assert not right.any() and not down.any()


@pytest.mark.parametrize("speed", [2, 6, 12])
def test_a_mask_moves_along(speed: int) -> None:
    """The frame in the middle is far from both keys, whose masks overlap it ever less."""
    first, (luma, truth), last = scene(80 - 2 * speed), scene(80), scene(80 + 2 * speed)
    found = between(luma, first, last)
    assert iou(found, truth) > 0.9
    assert iou(found, truth) > iou((first[1] + last[1]) / 2 + 0.01, truth) + 0.03


@pytest.mark.parametrize("shown", ["first", "last"])
def test_what_one_key_does_not_show_comes_from_the_other(shown: str) -> None:
    """The object comes or goes between the keys: the key in which the place looks the same decides."""
    with_object, without, (luma, truth) = scene(80), scene(None), scene(80)
    keys = (with_object, without) if shown == "first" else (without, with_object)
    assert iou(between(luma, *keys, share=0.2 if shown == "first" else 0.8), truth) > 0.95
    gone = between(without[0], *keys)
    assert (gone > 0.5).mean() < 0.01


def test_the_nearer_key_counts_more() -> None:
    """In a picture at rest the weights are the shares."""
    luma, mask = scene(80)
    found = between(luma, (luma, mask), (luma, np.zeros_like(mask)), share=0.75)
    assert found[120, 120] == pytest.approx(0.75, abs=1e-5)


def test_keys_disagree_by_the_share_of_the_area() -> None:
    luma, mask = scene(80)
    half = mask.copy()
    half[:, :128] = 0
    empty = np.zeros_like(mask)

    def disagreement(first: Map, last: Map) -> float:
        return propagate(FrameBetween(luma, (luma, luma), (FrameMask(first, None), FrameMask(last, None)), 0.5))[
            1
        ].disagreement

    assert disagreement(mask, mask) == 0
    assert disagreement(mask, half) == pytest.approx(0.5, abs=0.01)
    assert disagreement(empty, mask) == pytest.approx(1)
    speck = empty.copy()
    speck[0, 0] = 1
    assert disagreement(empty, speck) < 0.1  # less than a ten thousandth of the picture


def test_what_neither_key_shows_is_in_doubt() -> None:
    (ground, empty), (luma, _) = scene(None), scene(80)
    share = 96 * 96 / SIDE**2
    keys = (FrameMask(empty, None), FrameMask(empty, None))
    assert share / 2 < propagate(FrameBetween(luma, (ground, ground), keys, 0.5))[1].unseen < 1.5 * share
    assert propagate(FrameBetween(luma, (ground, luma), keys, 0.5))[1].unseen == 0
    assert propagate(FrameBetween(ground, (ground, ground), keys, 0.5))[1] == (0, 0)


def test_a_class_map_has_no_classes_in_between() -> None:
    luma, mask = scene(80)
    maps = (np.full(mask.shape, 3, np.uint8), np.full(mask.shape, 7, np.uint8))
    keys = (FrameMask(mask, maps[0]), FrameMask(mask, maps[1]))
    for share, expected in ((0.9, 3), (0.1, 7)):
        found, _ = propagate(FrameBetween(luma, (luma, luma), keys, share))
        assert found.class_map is not None and np.all(np.asarray(found.class_map) == expected)


def test_masks_may_have_another_size_than_the_network() -> None:
    first, (luma, truth), last = scene(68), scene(80), scene(92)
    small = [mask[::4, ::4] for mask in (first[1], last[1], truth)]
    assert iou(between(luma, (first[0], small[0]), (last[0], small[1])), small[2]) > 0.85


def test_a_change_is_the_mean_difference_of_luma() -> None:
    dark, light = (luma_of(np.full((SIDE, SIDE, 3), value, np.float32)) for value in (0.2, 0.6))
    assert change(dark.pyramid[0], light.pyramid[0]) == pytest.approx(0.4, abs=0.005)
    assert HostPropagation(MODEL).changes([dark, dark, light])() == [0, pytest.approx(0.4, abs=0.005)]
