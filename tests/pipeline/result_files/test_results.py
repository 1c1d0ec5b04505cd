"""The file of what was found in each frame."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli
from videos import Synthetic, times

from segmentation import Config, ConfigError, OutputError, segment
from segmentation.pipeline.result_files.results import measured
from segmentation.pipeline.result_files.run_lengths import rle


def unpacked(counts: str, height: int, width: int) -> NDArray[np.bool_]:
    """COCO's compressed run lengths read back, character by character, as its maskApi.c does."""
    runs: list[int] = []
    at = 0
    while at < len(counts):
        value = shift = 0
        more = True
        while more:
            group = ord(counts[at]) - 48
            value |= (group & 31) << shift
            more, at, shift = bool(group & 32), at + 1, shift + 5
        if group & 16:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
    assert sum(runs) == height * width
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width, order="F")


def masks() -> list[NDArray[np.bool_]]:
    generator = np.random.default_rng(5)
    some = [
        generator.random((height, width)) < share for height, width, share in ((9, 5, 0.5), (64, 33, 0.1), (1, 1, 1))
    ]
    corner = np.zeros((300, 500), bool)
    corner[-1, -1] = True  # a run of more than 2^17
    block = np.zeros((256, 256), bool)
    block[30:200, 50:90] = True
    return [*some, corner, ~corner, block, np.zeros((7, 6), bool), np.ones((7, 6), bool)]


@pytest.mark.parametrize("mask", masks(), ids=lambda mask: f"{mask.shape[0]}x{mask.shape[1]}-{mask.sum()}")
def test_run_lengths_read_back(mask: NDArray[np.bool_]) -> None:
    assert np.array_equal(unpacked(rle(mask), *mask.shape), mask)


@pytest.mark.parametrize("mask", masks(), ids=lambda mask: f"{mask.shape[0]}x{mask.shape[1]}-{mask.sum()}")
def test_run_lengths_are_those_of_pycocotools(mask: NDArray[np.bool_]) -> None:
    coco = pytest.importorskip("pycocotools.mask")
    assert rle(mask) == coco.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()


def test_area_and_box_are_those_of_the_picture() -> None:
    mask = np.zeros((10, 20), bool)
    mask[2:5, 4:6] = True
    assert measured(mask, 640, 360) == {"area": 0.03, "pixels": 6912, "box": [128, 72, 64, 108]}
    assert measured(mask, 31, 15) == {"area": 0.03, "pixels": 14, "box": [6, 3, 4, 5]}  # parts count
    assert measured(np.zeros((10, 20), bool), 640, 360) == {"area": 0, "pixels": 0, "box": None}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_a_frame_with_the_times_of_the_output(tmp_path: Path) -> None:
    output, results = tmp_path / "out.mkv", tmp_path / "out.jsonl"
    # 30 fps in Matroska's milliseconds: the output's times are not the input's.
    report = segment(SAMPLE, output, start=1.0, max_frames=20, results=results, rle=True, batch_size=3)
    found = lines(results)
    assert [line["index"] for line in found] == list(range(report.frames)) == list(range(20))
    assert [line["pts"] for line in found] == [float(time) for time in times(output)]
    for line in found:
        assert list(line) == ["index", "pts", "classes", "area", "pixels", "box", "rle"]
        assert line["classes"] == ["person"]
        mask = unpacked(line["rle"]["counts"], *line["rle"]["size"])
        assert mask.mean() == pytest.approx(line["area"], abs=1e-6) and 0.2 < line["area"] < 0.6
        x, y, width, height = line["box"]
        assert 0 <= x < x + width <= 640 and 0 <= y < y + height <= 360 and width * height >= line["pixels"]


def test_classes_are_those_that_are_found(tmp_path: Path) -> None:
    clip = Synthetic(pts=range(3)).write(tmp_path / "a.mkv")
    for value, found in ((0.2, ([], 0.0)), (0.9, (["person"], 1.0))):
        results, model = tmp_path / f"{value}.jsonl", str(constant(tmp_path, value))
        segment(clip, tmp_path / f"{value}.mp4", results=results, model=model)
        assert [(line["classes"], line["area"]) for line in lines(results)] == [found] * 3


def test_results_are_upright(tmp_path: Path) -> None:
    clip = Synthetic(size=(64, 48), pts=range(3), codec="libx264", rotation=90).write(tmp_path / "a.mov")
    # All is kept, so that the box is the picture.
    segment(clip, tmp_path / "out.mp4", results=tmp_path / "a.jsonl", model=str(constant(tmp_path, 1.0)))
    assert [line["box"] for line in lines(tmp_path / "a.jsonl")] == [[0, 0, 48, 64]] * 3


def constant(folder: Path, value: float) -> Path:
    """A network to which everything is a person, with this probability."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    shape = ["N", 3, 32, 32]
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["m"], keepdims=1),
        helper.make_node("Mul", ["m", "zero"], ["z"]),
        helper.make_node("Add", ["z", "value"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "constant",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1, 32, 32])],
        [
            helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
            helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("value", TensorProto.FLOAT, [], [value]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "constant.onnx")
    return folder / "constant.onnx"


@pytest.mark.slow
def test_nothing_is_left_of_results_when_the_run_fails(tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    data = bytearray(SAMPLE.read_bytes())
    data[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    broken.write_bytes(data)
    failed = cli(broken, "-o", tmp_path / "out.mp4", "--results", tmp_path / "a.jsonl", "--strict")
    assert failed.returncode == 1 and "damaged" in failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["broken.mp4"]


def test_results_are_not_written_over(tmp_path: Path) -> None:
    results = tmp_path / "a.jsonl"
    results.write_text("mine")
    with pytest.raises(
        OutputError, match="exists already; use -y \\(overwrite=True\\) to replace it, or --results to name another"
    ):
        segment(SAMPLE, tmp_path / "out.mp4", max_frames=2, results=results)
    assert results.read_text() == "mine"
    assert not (tmp_path / "out.mp4").exists()
    segment(SAMPLE, tmp_path / "out.mp4", max_frames=2, results=results, overwrite=True)
    assert len(lines(results)) == 2


def test_a_name_that_is_too_long_is_told_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written \(File name too long\)"):
        segment(SAMPLE, tmp_path / "out.mp4", results=tmp_path / f"{'a' * 300}.jsonl")
    assert not list(tmp_path.iterdir())


def test_results_are_neither_the_input_nor_the_output(tmp_path: Path) -> None:
    clip = Synthetic().write(tmp_path / "a.mkv")
    for other in (clip, tmp_path / "out.mkv"):
        with pytest.raises(ConfigError, match=r"is the (input itself|output too)"):
            segment(clip, tmp_path / "out.mkv", results=other, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mkv"]


def test_several_inputs_put_their_results_into_a_folder(tmp_path: Path) -> None:
    clips = [Synthetic(pts=range(n)).write(tmp_path / f"{n}.mkv") for n in (2, 3)]
    refused = cli(*clips, "-o", tmp_path, "--results", tmp_path / "a.jsonl")
    assert refused.returncode == 2 and "need a folder" in refused.stderr
    assert cli(*clips, "-o", tmp_path, "--results", tmp_path).returncode == 0
    assert [len(lines(tmp_path / f"{n}.segmented.jsonl")) for n in (2, 3)] == [2, 3]


def test_masks_need_results_to_go_into() -> None:
    with pytest.raises(ConfigError, match="--results"):
        Config(rle=True)
