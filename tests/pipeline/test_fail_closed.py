"""No picture is shown raw for want of a mask."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from marks import DEVICES, first
from networks import nothing
from numpy.typing import NDArray
from program import cli, report
from videos import Synthetic, video_info

from segmentation import Config, Segmenter
from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import FrameInstances
from segmentation.options.effect import Effect
from segmentation.pipeline.fail_closed import FailClosed
from segmentation.tracking.anonymize.cover import around
from segmentation.tracking.components import components
from segmentation.tracking.selected_masks import with_selected_masks

PLANE = np.zeros((4, 4), np.uint8)


def grey(luma: int) -> av.VideoFrame:
    planes = np.vstack([np.full((120, 160), luma, np.uint8), np.full((60, 160), 128, np.uint8)])
    return av.VideoFrame.from_ndarray(planes, "yuv420p")


def batch(masks: NDArray[np.float32], *, repeated: bool = False) -> MaskedBatch:
    frame = Frame(planes=(PLANE, PLANE, PLANE), pts=0, duration=1)
    return MaskedBatch(frames=FrameBatch(frames=(frame,) * len(masks), index=0, repeated=repeated), masks=masks)


def covered(given: MaskedBatch, config: Config) -> MaskedBatch:
    return FailClosed(config, video_info(), HostTransfer(), "host", None)(given)


@pytest.mark.parametrize(("invert", "everywhere"), [(False, 0.0), (True, 1.0)])
def test_the_effect_is_everywhere_where_the_mask_is_unknown(invert: bool, everywhere: float) -> None:
    masks = np.full((3, 5, 7), 0.5, np.float32)
    masks[1, 2, 3] = np.nan
    config = Config(invert=invert)
    found = covered(batch(masks), config).masks
    assert (found[1] == everywhere).all() and (found[[0, 2]] == 0.5).all() and found.dtype == np.float32
    assert (covered(batch(masks[:1], repeated=True), config).masks == everywhere).all()
    assert covered(batch(masks[:1]), config).masks is not None and np.isnan(masks).sum() == 1  # the input is only read


@pytest.mark.parametrize("effect", ["blur@face", "blur"])
def test_repeated_frames_are_covered_whoever_is_to_be_seen(effect: str) -> None:
    """Also by an effect on some instances alone: nobody knows where these are."""
    found = FrameInstances(instances=(), first_map=np.zeros((5, 7), np.uint8))
    repeated = replace(batch(np.ones((1, 5, 7), np.float32), repeated=True), instances=(found,))
    closed = covered(repeated, Config())
    shown = with_selected_masks(closed, Effect.parse(effect), 0.5, HostTransfer(), keeping=effect == "blur")
    assert (np.asarray(shown.masks) == 0).all()


@pytest.mark.parametrize(
    "options",
    [{}, {"smooth": 0.0, "refine": False}, {"feather": 20.0}, {"interval": 2}, {"keep": "largest"}],
)
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_a_network_that_returns_no_numbers_shows_nothing(
    device: str, options: dict[str, Any], invert: bool, tmp_path: Path
) -> None:
    """In the middle of a video, whatever the masks go through on the way."""
    frames = [grey(120 if 4 <= number < 8 else 100) for number in range(12)]
    Synthetic(frames=frames, pts=range(12)).write(tmp_path / "in.mkv")

    network = nothing(tmp_path / "network.onnx", 0.0 if invert else 1.0)
    given: dict[str, Any] = {"effect": "color:#000000", "device": device, "activation": "none", "invert": invert}
    with Segmenter(model=network, **given, **options) as segmenter:
        segmenter.run(tmp_path / "in.mkv", tmp_path / "out.mkv", codec="ffv1")
    with av.open(str(tmp_path / "out.mkv")) as file:
        brightest = [frame.to_ndarray(format="gray").max() for frame in file.decode(video=0)]
    hidden = [luma < 20 for luma in brightest]
    assert not any(hidden[:2]) and not hidden[-1]  # a network that works is not distrusted
    assert all(hidden[4:8])


def test_an_effect_on_instances_is_everywhere_where_none_could_be_found() -> None:
    masks = np.full((2, 60, 60), np.nan, np.float32)
    masks[1] = 0
    masks[1, 20:40, 20:40] = 1
    found = tuple(components(mask, None, ["person"], 0.5) for mask in masks)
    closed = covered(replace(batch(masks), instances=found), Config())
    unknown, known = np.asarray(
        with_selected_masks(closed, Effect.parse("blur@person"), 0.5, HostTransfer(), keeping=False).masks
    )
    assert (unknown == 0).all()
    assert known[30, 30] == 0 and known[5, 5] == 1  # the person alone is blurred


OVERFLOWS = {"nan": (1.0, -1.0), "inf": (np.inf, 1.0), "-inf": (-np.inf, 1.0)}  # `value` and `limit` of `nothing`


@pytest.mark.parametrize("options", [[], ["--workers", "local:2"], ["--activation", "sigmoid"]], ids=str)
@pytest.mark.parametrize("kind", first(1, OVERFLOWS))
def test_a_network_that_returns_no_numbers_is_named(kind: str, options: list[str], tmp_path: Path) -> None:
    """The file has all frames, each with the effect everywhere, and the exit code is not 0."""
    Synthetic(frames=[grey(100)] * 12, pts=range(12)).write(tmp_path / "in.mkv")
    network = nothing(tmp_path / "network.onnx", *OVERFLOWS[kind])
    given = ["-o", "out.mkv", "--codec", "ffv1", "--effect", "color:#000000", "--model", network, "--device", "cpu"]
    options = options if "--activation" in options else ["--activation", "none", *options]
    done = cli("in.mkv", *given, *options, "--json", cwd=tmp_path)
    made = report(done, complete=False)
    assert (made["frames"], made["unknown"], made["found"]) == (12, 12, 0)
    assert f"the network {network} returned NaN or infinite scores for 12 of 12 frames" in done.stderr
    assert "was found in" not in done.stderr and ", no mask for 12" in done.stderr
    with av.open(str(tmp_path / "out.mkv")) as file:
        assert max(frame.to_ndarray(format="gray").max() for frame in file.decode(video=0)) < 20


@pytest.mark.parametrize("kind", OVERFLOWS)
def test_a_picture_without_a_mask_is_refused(kind: str, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "in.png"), np.full((64, 96, 3), 100, np.uint8))
    network = nothing(tmp_path / "network.onnx", *OVERFLOWS[kind])
    given = ["-o", "out.png", "--model", network, "--activation", "none", "--device", "cpu"]
    done = cli("in.png", *given, cwd=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "out.png").exists()
    assert f"in.png: the network {network} returned NaN or infinite scores for it" in done.stderr


def test_frames_of_a_loop_have_masks_that_are_no_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frames = [grey(100), grey(200), grey(200), grey(100)]
    Synthetic(frames=frames, pts=range(4)).write(tmp_path / "in.mkv")
    network = nothing(tmp_path / "network.onnx", 1.0, 0.6)
    with Segmenter(model=network, activation="none", smooth=0, device="cpu") as segmenter:
        seen = [np.isnan(frame.mask).all() for frame in segmenter.frames(tmp_path / "in.mkv")]
    assert seen == [False, True, True, False]
    assert "returned NaN or infinite scores for 2 of 4 frames;" in caplog.text


def test_masks_that_grow_keep_what_is_no_number() -> None:
    masks = np.zeros((3, 40, 60), np.float32)
    masks[1, 20, 30] = np.nan
    assert np.isnan(around([], masks, [], HostTransfer())).any(axis=(1, 2))[1]
