"""Networks that carry states from frame to frame, such as RobustVideoMatting."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from forms import make_rvm
from numpy.typing import NDArray
from program import cli
from videos import Synthetic

from segmentation import BackendError, Config, ModelError, segment
from segmentation.frames import MaskedBatch
from segmentation.media.opening.probe import probe
from segmentation.models.model import Model, load_model
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.masks.quantize import quantize
from segmentation.stages.masks.saved import MaskReader
from segmentation.stages.masks.smoothing import HostSmoothing, smooth_masks
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

COUNT = 11  # frames of the clip
CPU: dict[str, Any] = {"mode": "baseline", "device": "cpu"}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return make_rvm(tmp_path / "rvm.onnx")


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Pictures that get brighter and darker by a few levels, brighter at the right."""
    frames = []
    for number in range(COUNT):
        row = np.linspace(40, 180, 64) + 30 * np.sin(number)
        picture = np.repeat(np.repeat(row[None, :, None], 48, axis=0), 3, axis=2).astype(np.uint8)
        frames.append(av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p"))
    return Synthetic(frames=frames, pts=tuple(range(COUNT))).write(tmp_path / "clip.mkv")


def by_hand(pictures: NDArray[Any], share: float = 0.5, ratio: float = 1.0) -> NDArray[np.float32]:
    """The masks (N, H, W) that the network makes of pictures (N, 3, H, W) in this order."""
    state, found = np.zeros(pictures.shape[2:], np.float32), []
    for picture in pictures:
        state = share * picture.mean(axis=0) + (1 - share) * state
        found.append(np.clip(state * ratio, 0, 1))
    return np.stack(found)


def inputs_of(clip: Path, model: Model) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Batches of one frame with what the network is given of them."""
    info = probe(str(clip))
    preprocess = OpenCVPreprocessor(info, "yuv420p", model, Config())
    for batch in PyAVDecoder(info, "yuv420p", Config()):
        yield batch, preprocess(batch)


def test_it_is_recognised_by_its_inputs(network: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    model = load_model(Config(model=network))
    assert "is of the type rvm, by the names and shapes of its inputs and outputs" in caplog.text
    assert (model.input_name, model.output_name, model.labels, model.activation) == ("src", "pha", ("person",), "none")
    assert (model.height, model.width) == (288, 512) and model.form.recurrent
    sources = {extra.name: (extra.source, extra.shape, extra.values) for extra in model.form.extras}
    states = {f"r{i}i": (f"r{i}o", (1, 1, 1, 1), (0.0,)) for i in range(1, 5)}
    assert sources == {**states, "downsample_ratio": ("", (1,), (1.0,))}


@pytest.mark.parametrize("ends", [("i", "o"), ("_in", "_out"), ("In", "Out")])
def test_states_are_found_by_their_names(tmp_path: Path, ends: tuple[str, str]) -> None:
    """Of a network of no known type, whose other inputs are given."""
    import onnx

    names = ("picture", *(f"h{i}{ends[0]}" for i in range(4)), "gain")
    path = make_rvm(tmp_path / "m.onnx", inputs=names)
    graph = onnx.load(path)
    for node in graph.graph.node:  # the outputs that `make_rvm` names for itself
        node.output[:] = [f"h{n[1]}{ends[1]}" if n in [x[:-1] + "o" for x in names[1:5]] else n for n in node.output]
        node.input[:] = [f"h{n[1]}{ends[1]}" if n in [x[:-1] + "o" for x in names[1:5]] else n for n in node.input]
    for value in graph.graph.output[2:]:
        value.name = f"h{value.name[1]}{ends[1]}"
    onnx.save(graph, path)
    model = load_model(Config(model=path, model_inputs=("gain=0.75",), model_output="pha", input_size=(24, 32)))
    pictures = np.random.default_rng(0).random((5, 3, 24, 32)).astype(np.float32)
    infer = OnnxRuntimeInference(model, Config())
    found = np.concatenate([infer(part).masks for part in (pictures[:3], pictures[3:])])
    np.testing.assert_allclose(found, by_hand(pictures, ratio=0.75), atol=1e-6)


@pytest.mark.parametrize("batches", [(7,), (1,) * 7, (3, 3, 1), (2, 4, 1)], ids=str)
def test_states_are_carried_over_the_ends_of_batches(network: Path, batches: tuple[int, ...]) -> None:
    model = load_model(Config(model=network, input_size=(24, 32)))
    infer = OnnxRuntimeInference(model, Config())
    assert infer.workers == 1  # a frame needs what the one before has left
    pictures = np.random.default_rng(0).random((7, 3, 24, 32)).astype(np.float32)
    parts = np.split(pictures, np.cumsum(batches)[:-1])
    found = np.concatenate([infer(part).masks for part in parts])
    np.testing.assert_allclose(found, by_hand(pictures), atol=1e-6)
    other = OnnxRuntimeInference(model, Config())  # another run begins anew
    np.testing.assert_allclose(other(pictures[:1]).masks, by_hand(pictures[:1]), atol=1e-6)


def test_states_may_be_in_half_precision(tmp_path: Path) -> None:
    """And the ratio in single, as in RobustVideoMatting's file in FP16."""
    path = make_rvm(tmp_path / "m.onnx", half=True)
    model = load_model(Config(model=path, input_size=(24, 32), model_inputs=("downsample_ratio=0.5",)))
    assert model.dtype is np.float16
    assert {extra.name: extra.dtype for extra in model.form.extras} == {
        **{f"r{i}i": "float16" for i in range(1, 5)},
        "downsample_ratio": "float32",
    }
    pictures = np.random.default_rng(0).random((5, 3, 24, 32)).astype(np.float16)
    found = OnnxRuntimeInference(model, Config())(pictures).masks
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_hand(pictures.astype(np.float32), ratio=0.5), atol=2e-3)


@pytest.mark.parametrize("smooth", [0.0, 0.8])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_the_masks_of_a_run(network: Path, clip: Path, tmp_path: Path, batch_size: int, smooth: float) -> None:
    """Against the average computed by hand, of the frames in presentation order."""
    saved = tmp_path / "masks.mkv"
    config = Config(model=network, model_inputs=("downsample_ratio=0.5",), input_size=(24, 32), **CPU)
    options: dict[str, Any] = {"batch_size": batch_size, "smooth": smooth, "save_masks": saved, "overwrite": True}
    report = segment(clip, tmp_path / "out.mkv", config, effect="mask", codec="ffv1", **options)
    assert report.frames == COUNT and report.plan["infer"] == "onnxruntime"

    model = load_model(config)
    given = list(inputs_of(clip, model))
    expected = by_hand(np.concatenate([tensor for _, tensor in given]), ratio=0.5)
    if smooth:
        backend = HostSmoothing(model, smooth)
        found = (
            (MaskedBatch(frames=batch, masks=mask[None]), backend.keep(tensor, mask[None], 1))
            for (batch, tensor), mask in zip(given, expected, strict=True)
        )
        smoothed = np.concatenate([np.asarray(batch.masks) for batch in smooth_masks(found, backend)])
        assert np.abs(smoothed - expected).max() > 2 / 255  # or the test would show nothing
        expected = smoothed
    reader = MaskReader(probe(str(clip)), Config(masks=saved))
    masks = np.concatenate([reader(batch) for batch, _ in given])
    assert np.abs(masks - quantize(expected)[1]).max() <= 1.01 / 255


def test_two_files_do_not_share_a_state(network: Path, clip: Path, tmp_path: Path) -> None:
    levels = []
    for number in range(2):
        target = tmp_path / f"{number}.mkv"
        options: dict[str, Any] = {"effect": "mask", "codec": "ffv1", "input_size": (24, 32), **CPU}
        segment(clip, target, model=network, **options)
        with av.open(str(target)) as container:
            levels.append([frame.to_ndarray() for frame in container.decode(video=0)])
    assert all(np.array_equal(a, b) for a, b in zip(*levels, strict=True))


@pytest.mark.gpu
def test_on_a_gpu_machine_onnx_runtime_infers_and_the_rest_stays_there(
    network: Path, clip: Path, tmp_path: Path
) -> None:
    found = []
    for number, where in enumerate(({}, CPU)):
        saved = tmp_path / f"{number}.mkv"
        options: dict[str, Any] = {
            "input_size": (24, 32),
            "save_masks": saved,
            "effect": "mask",
            "smooth": 0.0,
            "infer": "onnxruntime",
            **where,
        }
        report = segment(clip, tmp_path / f"{number}.mp4", model=network, **options)
        assert report.plan["infer"] == "onnxruntime"
        assert report.plan["postprocess"] == ("opencv" if where else "cvcuda")
        with av.open(str(saved)) as container:
            found.append(np.stack([frame.to_ndarray() for frame in container.decode(video=0)]).astype(int))
    assert np.abs(found[0] - found[1]).max() <= 3


# What is refused


def test_other_inputs_have_to_be_given(tmp_path: Path, clip: Path) -> None:
    path = make_rvm(tmp_path / "m.onnx", inputs=("src", "r1i", "r2i", "r3i", "r4i", "scale"))
    with pytest.raises(ModelError) as caught:
        load_model(Config(model=path))
    text = "nothing says what its inputs scale hold; give them with --model-input NAME=VALUE"
    assert text in str(caught.value) and "\n" not in str(caught.value)
    more = ("--model-output", "pha", "--input-size", "24x32", "--device", "cpu")
    done = cli(clip, "-o", tmp_path / "o.mp4", "--model", path, *more)
    assert done.returncode == 1 and text in done.stderr and done.stderr.count("\n") == 1
    done = cli(clip, "-o", tmp_path / "o.mp4", "--model", path, *more, "--model-input", "scale=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["torch", "torch-fp16"])
def test_what_cannot_carry_states_says_so_before_anything_is_written(
    network: Path, clip: Path, tmp_path: Path, name: str
) -> None:
    config = Config(model=network, infer=name)
    with pytest.raises(BackendError, match="carries states from frame to frame, which it can") as caught:
        make_plan(config, model=load_model(config))
    assert "\n" not in str(caught.value)
    done = cli(clip, "-o", tmp_path / "o.mp4", "--model", network, "--infer", name)
    assert done.returncode == 3 and "states from frame to frame" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "o.mp4").exists()


def test_the_plan_says_what_runs_it(network: Path, clip: Path) -> None:
    done = cli(clip, "-o", "/nowhere/x", "--plan", "--model", network, "--baseline")
    line = next(line for line in done.stdout.splitlines() if line.startswith("infer"))
    assert line.split()[1] == "onnxruntime" and "carries states from frame to frame" in line


@pytest.mark.parametrize("text", ["scale", "=1", "scale=", "scale=a", "scale=1,,2"])
def test_what_an_input_cannot_be(text: str) -> None:
    from segmentation import ConfigError

    with pytest.raises(ConfigError, match="model input") as caught:
        Config(model_inputs=(text,))
    assert "\n" not in str(caught.value)
