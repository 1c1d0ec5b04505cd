"""Several classes at once: which is where, in the overlay, its legend and the results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converter import need_onnx2torch
from drawn import batch_of, make_info, noise, shown
from networks import make_model
from numpy.typing import NDArray
from stages import SIDES, gpu, postprocess
from videos import Synthetic, pictures

from segmentation import Config, segment
from segmentation.frames import FORMATS, LIMITED, Color
from segmentation.models.model import Model, load_model
from segmentation.stages.inference import InferenceResult
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.postprocess.legend import legend, palette

HD = Color(1, LIMITED)
CLASSES = ("tomato", "leaf", "sea")


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """A network that tells red, green and blue from black."""
    weights = [[0.0, 0, 0], [8.0, -8, -8], [-8, 8.0, -8], [-8, -8, 8.0]]
    path = make_model(tmp_path / "rgb.onnx", weights, bias=[4.0, 0, 0, 0], activation="Softmax")
    return {"model": str(path), "labels": ("background", *CLASSES), "classes": CLASSES, "activation": "none"}


def stripes() -> NDArray[np.uint8]:
    """(48, 64, 3): black at the left, then red above green above blue."""
    picture = np.zeros((48, 64, 3), np.uint8)
    for i in range(3):
        picture[16 * i : 16 * i + 16, 16:, i] = 250
    return picture


def inference(name: str, model: Model, config: Config) -> Any:
    if name == "onnxruntime":
        return OnnxRuntimeInference(model, config)
    need_onnx2torch()
    if name == "torch":
        from segmentation.stages.inference.torch import TorchInference

        return TorchInference(model, replace(config, device="cpu"))
    from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

    return TorchFp16Inference(model, replace(config, batch_size=1), gpu())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["onnxruntime", "torch", pytest.param("torch-fp16", marks=pytest.mark.gpu)])
def test_which_class_is_where(options: dict[str, Any], name: str) -> None:
    config = Config(**options, effect="overlay")
    model = load_model(config)
    tensor: Any = np.zeros((1, 3, 32, 48), np.float32)
    for channel in range(3):
        tensor[0, channel, :, 16 * channel : 16 * channel + 16] = 1
    if name == "torch-fp16":
        import torch

        tensor = torch.from_numpy(tensor).to(gpu().device)
    found = inference(name, model, config)(tensor)
    if name == "torch-fp16":
        gpu().stream.synchronize()  # the network's stream, on which reading the masks does not wait
    assert isinstance(found, InferenceResult)
    masks, class_map = (a if isinstance(a, np.ndarray) else a.cpu().numpy() for a in found[:2])
    assert class_map.dtype == np.uint8 and class_map.shape == masks.shape == (1, 16, 24)
    assert masks.min() > 0.9
    assert np.array_equal(class_map[0], np.tile(np.repeat([0, 1, 2], 8).astype(np.uint8), (16, 1)))


@pytest.mark.parametrize(
    "more", [{"effect": "blur"}, {"effect": "overlay:#ff0000"}, {"effect": "overlay", "classes": ("sea",)}]
)
def test_nobody_asks_which_where_it_is_not_wanted(options: dict[str, Any], more: dict[str, Any]) -> None:
    config = Config(**options | more)
    found = OnnxRuntimeInference(load_model(config), config)(np.zeros((1, 3, 32, 48), np.float32))
    assert found.masks.shape == (1, 16, 24) and found.class_map is None


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p"])
@pytest.mark.parametrize("side", SIDES)
def test_each_class_has_its_own_color(side: str, pix_fmt: str, rotation: int) -> None:
    size = (640, 360) if rotation % 180 == 0 else (360, 640)
    info = make_info(*size, HD, rotation)
    layout = FORMATS[pix_fmt]
    grey = tuple(np.full_like(plane, 128 << (layout.bits - 8)) for plane in noise(pix_fmt, *size))
    columns = np.repeat(np.arange(3, dtype=np.uint8), 16)  # of the upright picture
    class_map = columns[None, None].repeat(36, axis=1)
    mask = np.ones((1, 36, 48), np.float32)
    mask[:, :12] = 0
    planes = postprocess(side, info, pix_fmt, "overlay", batch_of(grey), mask, CLASSES, class_map).frames[0].planes
    rgb = shown(planes, pix_fmt, HD, rotation // 90)
    base = shown(grey, pix_fmt, HD, rotation // 90)[0, 0]
    for i, color in enumerate(palette(3)):
        middle = np.s_[200:260, 213 * i + 60 : 213 * i + 150]
        assert np.abs(rgb[middle] - (base + color) / 2).max() <= 5
    assert np.abs(rgb[10:100] - base).max() <= 3
    for color in palette(3):
        assert np.abs(rgb[-60:, 16] - color).max(axis=1).min() <= 4


@pytest.mark.gpu
@pytest.mark.parametrize("rotation", [0, 90])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p10le"])
def test_overlays_look_the_same(pix_fmt: str, rotation: int) -> None:
    from drawn import compare, soft_mask

    class_map = np.random.default_rng(2).integers(0, 3, (2, 8, 12), np.uint8).repeat(8, axis=1).repeat(8, axis=2)
    batch = batch_of(noise(pix_fmt, 641, 359), noise(pix_fmt, 641, 359, seed=1))
    args = make_info(641, 359, HD, rotation), pix_fmt, "overlay", batch, soft_mask(64, 96), CLASSES, class_map
    compare(postprocess("cuda", *args), postprocess("opencv", *args), pix_fmt, most=6)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_the_legend_is_at_the_bottom_left(pix_fmt: str, rotation: int) -> None:
    info = make_info(641, 363, HD, rotation)
    made = legend(CLASSES, info, pix_fmt)
    area = np.zeros((363, 641), bool)
    area[made.boxes(pix_fmt)[0]] = True
    rows, columns = (np.flatnonzero(np.rot90(area, rotation // 90).any(axis)) for axis in (1, 0))
    height = 363 if rotation % 180 == 0 else 641
    assert 4 <= columns[0] <= 12 and 4 <= height - 1 - rows[-1] <= 12
    assert 3 * 15 <= len(rows) <= 3 * 17 and 40 < len(columns) < 120
    for part, box, plane in zip(made.planes, made.boxes(pix_fmt), noise(pix_fmt, 641, 363), strict=True):
        assert plane[box].shape == part.shape and plane.dtype == part.dtype


def test_a_legend_that_has_no_room_is_cut(options: dict[str, Any]) -> None:
    made = legend(tuple(f"a class with a long name {i}" for i in range(20)), make_info(64, 48, HD), "yuv420p")
    assert made.planes[0].shape[0] <= 48 and made.planes[0].shape[1] <= 64


def test_colors_differ() -> None:
    colors = palette(20)
    assert len(set(colors)) == 20 and palette(3) == colors[:3]


@pytest.mark.parametrize("refine", [False, True])
def test_results_name_the_classes_that_are_there(tmp_path: Path, options: dict[str, Any], refine: bool) -> None:
    import av

    first, second = stripes(), stripes()
    second[:32] = 0
    frames = [av.VideoFrame.from_ndarray(picture, format="rgb24") for picture in (first, second, np.zeros_like(first))]
    clip = Synthetic(frames=frames, pts=range(3), pix_fmt="yuv444p").write(tmp_path / "a.mkv")
    segment(clip, tmp_path / "out.mkv", results=tmp_path / "a.jsonl", refine=refine, codec="ffv1", **options)
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert found[0]["classes"] == list(CLASSES) and found[2]["classes"] == []
    assert found[1]["classes"] == ["sea"] or refine  # at its refined edge, "sea" may look like another
    assert [list(line["by_class"]) for line in found] == [line["classes"] for line in found]
    for i, name in enumerate(CLASSES):
        area = found[0]["by_class"][name]
        assert area["box"] == pytest.approx([16, 16 * i, 48, 16], abs=2 if not refine else 5)
        assert area["area"] == pytest.approx(0.25, abs=0.05)
    assert sum(a["pixels"] for a in found[0]["by_class"].values()) == pytest.approx(found[0]["pixels"], abs=2)
    assert found[2]["box"] is None and found[2]["pixels"] == 0


def test_the_whole_way(tmp_path: Path, options: dict[str, Any]) -> None:
    import av

    picture = np.kron(stripes(), np.ones((8, 8, 1), np.uint8))
    frames = [av.VideoFrame.from_ndarray(picture, format="rgb24")]
    clip = Synthetic(frames=frames, pts=[0], pix_fmt="yuv444p", color=(1, 1, 1), range=1).write(tmp_path / "a.mkv")
    given = shown(next(pictures(clip)).planes, "yuv444p", HD)
    segment(clip, tmp_path / "out.mkv", effect="overlay", codec="ffv1", **options)
    rgb = shown(next(pictures(tmp_path / "out.mkv")).planes, "yuv444p", HD)
    for i, color in enumerate(palette(3)):
        place = 64 + 128 * i, 400
        assert np.abs(rgb[place] - (given[place] + color) / 2).max() <= 4
    assert np.abs(rgb[20, 20] - given[20, 20]).max() <= 2
