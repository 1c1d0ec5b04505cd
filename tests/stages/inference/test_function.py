"""A Python function as the network."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from paths import ROOT, SAMPLE
from program import run_tool
from videos import Synthetic, pictures

from segmentation import ConfigError, ModelError, Segmenter, segment

PERSON = ROOT / "segmentation" / "models" / "person.onnx"
NORMALIZED = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "input_size": (192, 336)}
Pictures = NDArray[np.float32]


def left_half(batch: Pictures) -> Pictures:
    masks = np.zeros((len(batch), 32, 32), np.float32)
    masks[:, :, :16] = 1
    return masks


def test_a_function_that_calls_a_file_gives_the_masks_of_the_file() -> None:
    session = ort.InferenceSession(PERSON)
    frame = next(iter(pictures(SAMPLE, limit=1))).frame.to_ndarray(format="rgb24")
    with Segmenter(device="cpu") as file:
        wanted = file.masks(frame)
    with Segmenter(device="cpu", model=lambda batch: session.run(None, {"input": batch})[0], **NORMALIZED) as own:
        assert np.abs(own.masks(frame) - wanted).max() < 1e-6


def test_what_it_gets(tmp_path: Path) -> None:
    seen: list[Pictures] = []

    def watch(batch: Pictures) -> Pictures:
        seen.append(batch)
        return left_half(batch)

    report = segment(
        SAMPLE, tmp_path / "out.mp4", device="cpu", model=watch, input_size=(90, 160), batch_size=4, max_frames=6
    )
    assert report.plan["infer"] == "function"
    assert [batch.shape for batch in seen] == [(1, 3, 90, 160), (4, 3, 90, 160), (2, 3, 90, 160)]  # noise comes first
    assert all(batch.dtype == np.float32 and batch.min() >= 0 and batch.max() <= 1 for batch in seen)


def test_one_thread_calls_at_a_time_and_arrays_may_be_used_again(tmp_path: Path) -> None:
    """Runs with and without a class map have other objects for the inference."""
    inside, most = [0], list[int]()
    own = np.zeros((1, 2, 32, 32), np.float32)

    def slow(batch: Pictures) -> Pictures:
        inside[0] += 1
        most.append(inside[0])
        own[:, 0] = left_half(batch)
        own[:, 1] = 1 - own[:, 0]
        time.sleep(0.002)
        inside[0] -= 1
        return own

    labels = ("left", "right")
    with Segmenter(device="cpu", model=slow, labels=labels, classes=labels) as segmenter, ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(segmenter.run, SAMPLE, tmp_path / f"{effect}.mp4", effect=effect, max_frames=12)
            for effect in ("overlay", "blur")
        ]
        assert [run.result().frames for run in runs] == [12, 12]
    assert max(most) == 1 and len(most) == 1 + 2 * 12


def test_its_channels_are_the_classes_of_the_labels() -> None:
    frame = np.zeros((64, 96, 3), np.uint8)

    def two(batch: Pictures) -> Pictures:
        left = left_half(batch)
        return np.stack([left, 1 - left], 1)

    with Segmenter(device="cpu", model=two, labels=("left", "right"), classes=("right",), refine=False) as segmenter:
        mask = segmenter.masks(frame)
    assert mask[:, :40].max() < 0.01 and mask[:, 56:].min() > 0.99


@pytest.mark.parametrize(
    "result, message",
    [
        (lambda batch: None, "a NoneType is no array"),
        (lambda batch: np.zeros((2, 8, 8)), r"returned \(2, 8, 8\) float64 for 1 pictures; \(1, h, w\) or"),
        (lambda batch: np.zeros((1, 8)), "is needed"),
        (lambda batch: np.full((1, 8, 8), np.nan), "no numbers"),
        (lambda batch: np.full((1, 8, 8), "a"), "is needed"),
    ],
)
def test_what_is_no_score_is_an_error_of_one_line(result: object, message: str) -> None:
    with Segmenter(device="cpu", model=result) as segmenter, pytest.raises(ModelError, match=message) as raised:  # type: ignore[arg-type]
        segmenter.masks(np.zeros((64, 64, 3), np.uint8))
    assert str(raised.value).startswith("function <lambda>: ") and "\n" not in str(raised.value)


def test_another_number_of_channels_than_at_first_is_an_error() -> None:
    counts = iter([1, 2])
    with (
        Segmenter(device="cpu", model=lambda batch: np.zeros((1, next(counts), 8, 8))) as segmenter,
        pytest.raises(ModelError, match="returned 2 channels, and 1 at first"),
    ):
        segmenter.masks(np.zeros((64, 64, 3), np.uint8))


def test_what_it_raises_ends_the_run_and_leaves_no_file(tmp_path: Path) -> None:
    calls = iter(range(10))

    def fails(batch: Pictures) -> Pictures:
        if next(calls) == 3:
            raise ZeroDivisionError("of the user")
        return left_half(batch)

    with pytest.raises(ZeroDivisionError, match="of the user"):
        segment(SAMPLE, tmp_path / "out.mp4", device="cpu", model=fails)
    assert not list(tmp_path.iterdir())


def test_options_of_files_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model type: function .*left_half is a function, not a file"):
        Segmenter(model=left_half, model_type="u2net")
    with pytest.raises(ConfigError, match="model 5: must be the name of a file, or a function"):
        Segmenter(model=5)  # type: ignore[arg-type]
    with Segmenter(model=left_half, infer="torch") as segmenter, pytest.raises(ConfigError, match="--infer torch"):
        segmenter.masks(np.zeros((64, 64, 3), np.uint8))


def test_sample_runs(tmp_path: Path) -> None:
    clip = Synthetic(codec="libx264", pts=range(8)).write(tmp_path / "in.mp4")
    assert run_tool("samples/own_network.py", clip, tmp_path / "out.mp4").endswith("8 frames, function\n")
