"""Networks that can be run at several sizes: which one a video gets, and that everything is made for that size."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import onnx
import pytest
from converter import need_onnx2torch
from drawn import make_info
from networks import RED, make_model
from unet import SIZES, make_unet
from videos import Synthetic

from segmentation import Config, ModelError, segment
from segmentation.frames import Color
from segmentation.models.graph.fp16 import masks
from segmentation.models.graph.fp16_cache import fp16_graph
from segmentation.models.graph.onnx_graph import prepare, session_of
from segmentation.models.model import load_model
from segmentation.models.sample_picture import picture_inputs
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return make_unet(tmp_path / "unet.onnx")


@pytest.mark.parametrize(
    ("size", "rotation", "pixels", "expected"),
    [
        ((1920, 1080), 0, None, (48, 80)),
        ((1920, 1080), 90, None, (80, 48)),
        ((1920, 1080), 270, None, (80, 48)),
        ((1920, 1080), 180, None, (48, 80)),
        ((1080, 1920), 0, None, (80, 48)),
        ((1080, 1920), 90, None, (48, 80)),
        ((500, 500), 0, None, (64, 64)),
        ((500, 500), 90, None, (64, 64)),
        ((1440, 1080), 0, None, (48, 80)),  # 4:3 is 0.29 from a square, 0.22 from 5:3
        ((1440, 1080), 90, None, (80, 48)),
        ((1250, 1000), 0, None, (64, 64)),
        ((4000, 500), 0, None, (48, 80)),
        ((720, 576), 0, Fraction(64, 45), (48, 80)),  # stored as 5:4, shown as 16:9
        ((720, 576), 90, Fraction(64, 45), (80, 48)),
    ],
)
def test_the_size_nearest_in_shape_is_taken(
    network: Path, size: tuple[int, int], rotation: int, pixels: Fraction | None, expected: tuple[int, int]
) -> None:
    info = replace(make_info(*size, Color(), rotation), sample_aspect_ratio=pixels)
    model = load_model(Config(model=network), info)
    assert (model.height, model.width) == expected


def test_without_a_video_it_is_the_first_and_an_option_overrides(network: Path) -> None:
    model = load_model(Config(model=network))
    assert (model.height, model.width) == tuple(SIZES[0])
    model = load_model(Config(model=network, input_size=(32, 40)), make_info(500, 500, Color()))
    assert (model.height, model.width) == (32, 40)


def test_the_json_beside_the_model_may_name_sizes_too(tmp_path: Path) -> None:
    path = make_unet(tmp_path / "unet.onnx", sizes=None)
    path.with_suffix(".json").write_text(json.dumps({"input_size": [[32, 64], [64, 32]]}))
    model = load_model(Config(model=path), make_info(1080, 1920, Color()))
    assert (model.height, model.width) == (64, 32)
    path.with_suffix(".json").write_text(json.dumps({"input_size": [40, 48]}))
    model = load_model(Config(model=path), make_info(1080, 1920, Color()))
    assert (model.height, model.width) == (40, 48)


@pytest.mark.parametrize(
    "said",
    [[], [256], [[]], [[256]], [[256, 448], 336], [[256, 448], [336]], [256, 448, 3], ["256", "448"], [[4, 256]],
     [[256.5, 448]], [True, 256], 256, "256x448", {"h": 256}, None],
    ids=str,
)  # fmt: skip
def test_a_wrong_list_is_one_line(tmp_path: Path, said: Any) -> None:
    path = make_unet(tmp_path / "unet.onnx", metadata={"input_size": json.dumps(said)}, sizes=None)
    with pytest.raises(ModelError) as caught:
        load_model(Config(model=path))
    assert "its input_size is" in str(caught.value) and "[height, width] is needed" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fixed_size_is_not_changed(tmp_path: Path) -> None:
    path = make_model(tmp_path / "m.onnx", RED)
    assert load_model(Config(model=path, input_size=(32, 48))).width == 48
    with pytest.raises(ModelError, match="its input is 32x48 and can't be changed; leave out --input-size"):
        load_model(Config(model=path, input_size=(64, 96)))


def test_a_run_uses_it_and_saves_masks_of_it(network: Path, tmp_path: Path) -> None:
    """A landscape that a player turns upright: half of the upright picture is bright."""
    frames = []
    for _ in range(6):
        picture = np.zeros((48, 96, 3), np.uint8)
        picture[:, 48:] = 235  # right as stored
        frames.append(av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p"))
    source = Synthetic(frames=frames, pts=tuple(range(6)), rotation=90).write(tmp_path / "in.mkv")
    saved, out = tmp_path / "masks.mkv", tmp_path / "out.mkv"
    options: dict[str, Any] = {"effect": "mask", "codec": "ffv1", "mode": "baseline", "device": "cpu"}
    report = segment(source, out, model=network, save_masks=saved, **options)
    assert report.frames == 6
    with av.open(str(saved)) as container:
        stream = container.streams.video[0]
        assert (stream.height, stream.width) == (80, 48)
        mask = next(container.decode(stream)).to_ndarray()
    half = (mask > 127).mean()
    assert 0.4 < half < 0.6
    again = tmp_path / "again.mkv"
    segment(source, again, masks=saved, effect="mask", codec="ffv1", device="cpu")
    with av.open(str(out)) as one, av.open(str(again)) as two:
        for left, right in zip(one.decode(video=0), two.decode(video=0), strict=True):
            assert np.array_equal(left.to_ndarray(), right.to_ndarray())


@pytest.mark.parametrize("batch", [None, 1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_graph_is_made_for_it(network: Path, size: list[int], batch: int | None) -> None:
    model = load_model(Config(model=network, input_size=(size[0], size[1])))
    graph = prepare(model, batch)
    sides = [d.dim_value for d in graph.graph.input[0].type.tensor_type.shape.dim]
    assert sides == [batch or 0, 3, *size]
    pictures = picture_inputs(model)
    assert pictures.shape[2:] == tuple(size)
    expected = masks(session_of(onnx.load(model.path)), model, pictures)
    assert 0.02 < (expected > 0.5).mean() < 0.98
    np.testing.assert_allclose(masks(session_of(graph), model, pictures), expected, atol=1e-5)


def test_each_size_has_its_own_fp16_graph_and_pytorch_runs_it(network: Path, folder: Path) -> None:
    torch = pytest.importorskip("torch", minversion="2")
    need_onnx2torch()
    from segmentation.stages.inference.compiler.onnx_to_torch import convert, probabilities
    from segmentation.stages.inference.torch import TorchInference

    paths = set()
    for shape in ((1920, 1080), (500, 500), (1080, 1920)):
        model = load_model(Config(model=network), make_info(*shape, Color()))
        pictures = picture_inputs(model)[:2]
        expected = OnnxRuntimeInference(model, Config())(pictures).masks
        path = fp16_graph(model, 2)
        paths.add(path)
        with torch.inference_mode():
            found = probabilities(convert(path, torch.device("cpu"))(torch.from_numpy(pictures)), model).numpy()
        assert found.shape == expected.shape == (2, model.height, model.width)
        assert ((found > 0.5) == (expected > 0.5)).mean() > 0.99
        eager = TorchInference(model, Config(infer="torch", device="cpu"))(pictures).masks
        np.testing.assert_allclose(eager, expected, atol=1e-4)
    assert len(paths) == 3


def test_engines_of_two_sizes_are_two(network: Path, folder: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    from segmentation.engines.build import obtain
    from segmentation.engines.spec import EngineOptions, EngineSpec
    from segmentation.engines.variant import choose, installed

    variant = choose(None, installed(), "tensorrt_rtx", build=True)
    engines = []
    for shape in ((1920, 1080), (500, 500)):
        model = load_model(Config(model=network), make_info(*shape, Color()))
        engine, built = obtain(EngineSpec(model=model, options=EngineOptions(batch=(1, 2, 4)), variant=variant))
        assert built
        read = load_model(Config(model=engine), make_info(1080, 1920, Color()))  # of one size, whatever the video
        assert (read.height, read.width, read.batch) == (model.height, model.width, None)
        engines.append(engine)
    assert len(set(engines)) == 2
