"""Masks are smoothed over time without lagging behind, and every frame comes out once."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from drawn import batch_of
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli
from videos import Synthetic, times

from segmentation import segment
from segmentation.frames import FrameBatch, MaskedBatch
from segmentation.models.model import load_model
from segmentation.options.config import Config
from segmentation.stages.masks.smoothing import (
    REACH,
    HostSmoothing,
    TemporalSmoother,
    small_lumas,
    smooth,
    smooth_masks,
)

SIZE = 64
Map = NDArray[np.float32]


def still(count: int = 2 * REACH + 1, luma: float = 0.5) -> list[Map]:
    return [np.full((SIZE // 2, SIZE // 2), luma, np.float32)] * count


def edge(at: float, size: int = SIZE, soft: float = 3) -> Map:
    """Returns a mask that is full left of column `at`, with a slope `soft` columns wide."""
    row = np.clip((at - np.arange(size, dtype=np.float32)) / soft + 0.5, 0, 1)
    return np.tile(row, (size, 1)).astype(np.float32)


def moving(speed: float, count: int = 2 * REACH + 1) -> tuple[list[Map], list[Map]]:
    """Returns masks and lumas of a bright object on a dark ground, whose edge is at 32 in the middle frame."""
    places = [32 + speed * (k - count // 2) for k in range(count)]
    lumas = [edge(at)[::2, ::2] * np.float32(0.8) for at in places]
    return [edge(at) for at in places], lumas


def place(mask: Map) -> float:
    """Returns the column of the edge: the number of full columns, parts included."""
    return float(mask.sum(axis=1).mean())


def test_what_wavers_in_a_still_picture_becomes_the_mean() -> None:
    masks = [np.full((SIZE, SIZE), value, np.float32) for value in (0.2, 0.9, 0.4, 0.7, 0.8)]
    assert smooth(masks, still(), 1.0) == pytest.approx(0.6, abs=1e-6)
    # A neighbour counts half: (0.4 + 0.5 * 2.6) / 3.
    assert smooth(masks, still(), 0.5) == pytest.approx(1.7 / 3, abs=1e-6)
    assert np.array_equal(smooth(masks, still(), 0.0), masks[2])


@pytest.mark.parametrize("speed", [1, 4, 12])
def test_an_edge_that_moves_stays_where_it_is(speed: float) -> None:
    masks, lumas = moving(speed)
    found = smooth(masks, lumas, 1.0)
    assert place(found) == pytest.approx(place(masks[2]), abs=0.02)
    assert np.abs(found - masks[2]).max() < 0.2
    # The mean of past frames alone lags by almost the way of one frame.
    assert place(np.mean(masks[:3], axis=0)) < place(masks[2]) - 0.9 * speed


def test_a_hand_that_is_there_in_one_frame_only_is_kept() -> None:
    masks, lumas = [np.zeros((SIZE, SIZE), np.float32) for _ in range(5)], still()
    masks[2][20:44, 20:44] = 1
    lumas[2] = lumas[2].copy()
    lumas[2][10:22, 10:22] = 0.9
    assert smooth(masks, lumas, 1.0)[24:40, 24:40].min() > 0.95


def test_a_dropout_in_a_still_picture_is_filled() -> None:
    masks = [edge(32) for _ in range(5)]
    masks[2] = masks[2].copy()
    masks[2][20:40, 4:28] = 0.1
    assert smooth(masks, still(), 1.0)[24:36, 8:24].min() > 0.75


def test_more_change_is_let_pass_where_the_network_is_in_doubt() -> None:
    lumas = still()
    lumas[0] = lumas[0] + np.float32(0.08)
    for value, counts in ((0.5, True), (0.98, False)):
        masks = [np.full((SIZE, SIZE), value, np.float32) for _ in range(5)]
        masks[0] = np.zeros((SIZE, SIZE), np.float32)
        assert (np.abs(smooth(masks, lumas, 1.0) - value).max() > 0.05) == counts


def test_nothing_comes_over_from_another_scene() -> None:
    lumas = [
        *still(3),
        *still(2, luma=0.62),
    ]  # so little passes where the network doubts, unless the whole picture changes
    masks = [np.full((SIZE, SIZE), 0.5, np.float32)] * 3 + [np.ones((SIZE, SIZE), np.float32)] * 2
    assert np.array_equal(smooth(masks, lumas, 1.0), masks[2])


@pytest.mark.parametrize("shape", [(64, 64), (61, 47), (5, 3), (144, 256)])
def test_masks_may_have_any_size(shape: tuple[int, int]) -> None:
    masks = [np.full(shape, value, np.float32) for value in (0.2, 0.9, 0.4, 0.7, 0.8)]
    tensor = np.zeros((5, 3, 128, 96), np.float32)
    lumas = small_lumas(tensor, load_model(Config()), shape)
    assert lumas.shape == (5, -(-shape[0] // 2), -(-shape[1] // 2))
    found = smooth(masks, list(lumas), 1.0)
    assert found.shape == shape and found.dtype == np.float32
    assert found == pytest.approx(0.6, abs=1e-6)


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_luma_is_that_of_the_picture(order: str) -> None:
    model = load_model(Config(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.125), channel_order=order))  # type: ignore[arg-type]
    rgb = np.random.default_rng(2).random((2, 8, 8, 3))
    normalised = (rgb - model.mean) / model.std
    tensor = (normalised if order == "rgb" else normalised[..., ::-1]).transpose(0, 3, 1, 2).astype(np.float32)
    found = small_lumas(tensor, model, (8, 8))
    exact = (rgb @ (0.2126, 0.7152, 0.0722)).reshape(2, 4, 2, 4, 2).mean(axis=(2, 4))
    assert np.ptp(found - exact) < 1e-5  # but for a constant


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 11])
def test_every_frame_comes_out_once_with_its_own_surroundings(size: int, count: int) -> None:
    generator = np.random.default_rng(4)
    masks = generator.random((count, 8, 8)).astype(np.float32)
    lumas = (0.5 + 0.01 * generator.random((count, 4, 4))).astype(np.float32)
    plane = np.zeros((2, 2), np.uint8)
    frames = [batch_of((plane, plane, plane)).frames[0] for _ in range(count)]
    starts = range(0, count, size)
    batches = [FrameBatch(frames=tuple(frames[i : i + size]), index=i) for i in starts]
    history = list(zip(masks, lumas, strict=True))
    given = (
        (MaskedBatch(frames=b, masks=masks[i : i + size]), history[i : i + size])
        for b, i in zip(batches, starts, strict=True)
    )
    out = list(smooth_masks(given, HostSmoothing(load_model(Config()), 0.7)))
    assert [batch.frames for batch in out] == batches
    found = np.concatenate([np.asarray(batch.masks) for batch in out])
    for t in range(count):
        around = [min(max(t + k, 0), count - 1) for k in range(-REACH, REACH + 1)]
        assert np.array_equal(found[t], smooth(masks[around], lumas[around], 0.7))


def test_no_more_than_its_reach_is_waited_for() -> None:
    smoother = TemporalSmoother(HostSmoothing(load_model(Config()), 1.0))
    plane = np.zeros((2, 2), np.uint8)
    for number in range(200):
        frames = FrameBatch(frames=batch_of((plane, plane, plane)).frames, index=number)
        mask = np.zeros((8, 8), np.float32)
        ready = smoother.push(MaskedBatch(frames=frames, masks=mask[None]), [(mask, np.zeros((4, 4), np.float32))])
        assert [b.frames.index for b in ready] == ([number - REACH] if number >= REACH else [])
        assert len(smoother._known or []) <= 2 * REACH + 1 and len(smoother._waiting) <= REACH
    assert [b.frames.index for b in smoother.flush()] == [198, 199]


def test_all_but_the_masks_stays_with_the_batch() -> None:
    plane = np.zeros((2, 2), np.uint8)
    frames = FrameBatch(frames=batch_of((plane, plane, plane)).frames, index=0)
    mask = np.zeros((8, 8), np.float32)
    given = MaskedBatch(frames=frames, masks=mask[None], class_map=np.ones((1, 8, 8), np.uint8))
    backend = HostSmoothing(load_model(Config()), 1.0)
    (found,) = smooth_masks([(given, [(mask, np.zeros((4, 4), np.float32))])], backend)
    assert found.frames is frames and found.class_map is given.class_map and found.masks is not given.masks


def test_smoothing_steadies_a_real_clip_and_nothing_is_lost(corpus: Path, tmp_path: Path) -> None:
    clip = corpus / "selfie_segmentation_web.mp4"
    areas = {}
    for strength in (0.0, 1.0):
        output, results = tmp_path / f"{strength}.mp4", tmp_path / f"{strength}.jsonl"
        segment(clip, output, smooth=strength, max_frames=30, results=results, effect="mask", batch_size=4)
        areas[strength] = [line["area"] for line in map(json.loads, results.read_text().splitlines())]
        assert times(output) == times(clip, limit=30)
    assert np.abs(np.diff(areas[1.0])).sum() < 0.7 * np.abs(np.diff(areas[0.0])).sum()
    assert np.mean(areas[1.0]) == pytest.approx(np.mean(areas[0.0]), rel=0.01)


def test_a_stopped_run_puts_out_the_frames_that_wait(tmp_path: Path) -> None:
    stop = threading.Event()
    clip = Synthetic(pts=range(60)).write(tmp_path / "in.mkv")

    def progress(done: int, _: int) -> None:
        if done == 5:
            stop.set()

    run = segment(clip, tmp_path / "out.mkv", stop=stop, progress=progress, smooth=0.5)
    assert 5 < run.frames < 60
    assert len(times(tmp_path / "out.mkv")) == run.frames


def test_the_option_is_checked() -> None:
    refused = cli(SAMPLE, "--smooth", "1.5")
    assert refused.returncode == 2 and "0 (off) to 1" in refused.stderr
    planned = cli(SAMPLE, "-o", "/dev/null/x", "--plan", "--json", "--smooth", "0", "--no-refine")
    assert json.loads(planned.stdout)["infer"]
