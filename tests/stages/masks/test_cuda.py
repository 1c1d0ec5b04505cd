"""Masks are smoothed and refined on the GPU as on the CPU; without a GPU the kernels run on the host (host_kernels)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from drawn import batch_of, disk, make_info, smooth_rgb
from mask_sides import SIDES, gpu_of
from numpy.typing import NDArray
from videos import pictures

from segmentation.frames import FORMATS, Color, FrameBatch, MaskedBatch
from segmentation.models.detection import Place
from segmentation.models.model import load_model
from segmentation.options.config import Config
from segmentation.pipeline.fail_closed import without_nan
from segmentation.stages.masks.quantize import quantize
from segmentation.stages.masks.refinement import SMALL, Refiner
from segmentation.stages.masks.smoothing import HostSmoothing, smooth_masks

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")
import torch

from segmentation.stages.masks.cuda import CudaCover, CudaQuantizer, CudaRefiner, CudaSmoothing

Map = NDArray[np.float32]
MODEL = load_model(Config())


@pytest.fixture(autouse=True)
def on_the_stream(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes the tests copy on the kernels' stream, so that neither overtakes the other."""
    side = request.node.callspec.params["side"]
    with torch.cuda.stream(gpu_of(side).stream):
        yield


def moved(array: NDArray[Any], gpu: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).to(gpu.device)


def clip(count: int, shape: tuple[int, int], size: tuple[int, int], seed: int = 0) -> tuple[Map, Map]:
    """Returns masks (count, *shape) and the network's input (count, 3, *size) of a noisy picture that drifts."""
    generator = np.random.default_rng(seed)
    wide = smooth_rgb(size[0], size[1] + 64, seed).astype(np.float32) / 255
    seen = [wide[:, 2 * (i % 16) : 2 * (i % 16) + size[1]] for i in range(count)]
    tensor = np.stack([x.transpose(2, 0, 1) for x in seen]) + 0.02 * generator.standard_normal((count, 3, *size))
    masks = np.stack([cv2.resize(x[..., 0], shape[::-1]) for x in seen])
    masks = np.clip((masks - 0.5) * 4 + 0.5 + 0.3 * generator.standard_normal(masks.shape), 0, 1)
    return masks.astype(np.float32), tensor.astype(np.float32)


def smoothed_by(backend: Any, masks: Map, tensor: Map, sizes: list[int], gpu: Any = None) -> Map:
    """Returns the smoothed masks of a clip that comes in batches of these sizes.

    A backend on a GPU gets larger buffers that are overwritten each time, as the contract of inference allows.
    """
    plane = np.zeros((2, 2), np.uint8)
    frame = batch_of((plane, plane, plane)).frames[0]

    def found() -> Any:
        begin = 0
        if gpu is not None:
            buffers = [moved(np.full((max(sizes), *x.shape[1:]), np.nan, np.float32), gpu) for x in (tensor, masks)]
        for size in sizes:
            given = [x[begin : begin + size] for x in (tensor, masks)]
            if gpu is not None:
                for buffer, values in zip(buffers, given, strict=True):
                    buffer.fill_(float("nan"))
                    buffer[:size] = moved(values, gpu)
                given = buffers
            batch = FrameBatch(frames=(frame,) * size, index=begin)
            yield MaskedBatch(frames=batch, masks=given[1]), backend.keep(*given, size)
            begin += size

    parts = []
    for batch in smooth_masks(found(), backend):
        result = batch.masks
        assert len(result) == len(batch)
        parts.append(np.asarray(result) if isinstance(result, np.ndarray) else result.cpu().numpy())
    return np.concatenate(parts)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sizes", [[1] * 7, [3, 3, 3, 1], [16, 16, 5], [16, 1, 2, 16], [2], [1]], ids=str)
def test_masks_are_smoothed_alike_in_batches_of_any_size(side: str, sizes: list[int]) -> None:
    gpu = gpu_of(side)
    masks, tensor = clip(sum(sizes), (64, 64), (64, 64))
    ours = smoothed_by(CudaSmoothing(MODEL, Config(smooth=0.5, batch_size=max(sizes)), gpu), masks, tensor, sizes, gpu)
    theirs = smoothed_by(HostSmoothing(MODEL, 0.5), masks, tensor, sizes)
    assert ours.dtype == np.float32
    assert np.abs(ours - theirs).max() < 1e-5
    if len(masks) > 1:
        assert np.abs(theirs - masks).max() > 0.1


@pytest.mark.parametrize("side", SIDES)
def test_masks_that_leave_out_a_border_are_smoothed_alike(side: str) -> None:
    gpu, model = gpu_of(side), replace(MODEL, picture=Place(4, 10, 48, 40))
    masks, tensor = clip(5, (40, 48), (64, 64))
    ours = smoothed_by(CudaSmoothing(model, Config(smooth=0.5, batch_size=5), gpu), masks, tensor, [5], gpu)
    theirs = smoothed_by(HostSmoothing(model, 0.5), masks, tensor, [5])
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.abs(ours - smoothed_by(HostSmoothing(MODEL, 0.5), masks, tensor, [5])).max() > 1e-3


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((64, 64), (256, 256)),
        ((61, 47), (128, 96)),
        ((5, 3), (64, 64)),
        ((144, 256), (144, 256)),
        ((192, 336), (192, 336)),  # the built-in network's
        ((336, 336), (336, 336)),
        ((28, 28), (224, 224)),
    ],
)
def test_masks_of_any_size_are_smoothed_alike(side: str, shape: tuple[int, int], size: tuple[int, int]) -> None:
    gpu = gpu_of(side)
    masks, tensor = clip(9, shape, size, seed=1)
    ours = smoothed_by(CudaSmoothing(MODEL, Config(smooth=1, batch_size=4), gpu), masks, tensor, [4, 4, 1], gpu)
    theirs = smoothed_by(HostSmoothing(MODEL, 1), masks, tensor, [4, 4, 1])
    assert np.abs(ours - theirs).max() < 1e-4


@pytest.mark.parametrize("side", SIDES)
def test_nothing_comes_over_a_cut(side: str) -> None:
    """Doubt everywhere lets much change pass: only the mean over the picture keeps the scenes apart."""
    gpu = gpu_of(side)
    masks = np.full((6, 64, 64), 0.5, np.float32)
    masks[3:] = 0.6
    tensor = np.full((6, 3, 64, 64), 0.4, np.float32)
    tensor[3:] += 0.12 / np.float32(MODEL.std).mean()
    found = smoothed_by(CudaSmoothing(MODEL, Config(smooth=1, batch_size=6), gpu), masks, tensor, [6], gpu)
    assert np.abs(found - masks).max() < 1e-6
    tensor[3:] -= 0.04 / np.float32(MODEL.std).mean()
    found = smoothed_by(CudaSmoothing(MODEL, Config(smooth=1, batch_size=6), gpu), masks, tensor, [6], gpu)
    assert np.abs(found - masks).max() > 0.01


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_luma_is_that_of_the_networks_input(side: str, order: str) -> None:
    """With channels of different scales, in half precision as FP16 networks have it."""
    gpu = gpu_of(side)
    model = load_model(Config(std=(0.5, 0.25, 0.125), channel_order=order))  # type: ignore[arg-type]
    masks, tensor = clip(5, (64, 64), (64, 64), seed=2)
    tensor = tensor.astype(np.float16).astype(np.float32)
    backend = CudaSmoothing(model, Config(smooth=1, batch_size=5), gpu)
    history = backend.keep(moved(tensor, gpu).half(), moved(masks, gpu), 5)
    ours = backend.average(history, 0, 5).cpu().numpy()
    theirs = smoothed_by(HostSmoothing(model, 1), masks, tensor, [5])
    assert np.abs(ours - theirs).max() < 1e-5


def refined_by(side: str, batch: FrameBatch, pix_fmt: str, turn: int, masks: Map, by_color: bool = False) -> Map:
    height, width = batch.frames[0].planes[0].shape
    gpu = gpu_of(side)
    config = Config(batch_size=len(batch) + 1)  # a last batch has fewer frames
    stage = CudaRefiner(make_info(width, height, Color(), turn), pix_fmt, config, gpu, by_color)
    # PyTorch has few operations on uint16; as int16, samples of 10 bits have the same bits.
    dtype = np.int16 if FORMATS[pix_fmt].bits > 8 else np.uint8
    planes = tuple(moved(np.stack([f.planes[i] for f in batch.frames]).astype(dtype), gpu) for i in range(3))
    on_gpu = FrameBatch(frames=batch.frames, index=0, planes=planes)
    given = moved(masks, gpu)
    found = stage(on_gpu, given)
    if by_color:
        refined, plain = found, found.clone()
        found = stage.by_color(on_gpu, given, refined)
        assert torch.equal(refined[: len(batch)], plain[: len(batch)]), "other outputs show them"
    drawn: Map = found.cpu().numpy()[: len(batch)]
    return drawn


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le", "yuv444p"])
def test_masks_are_refined_alike(side: str, pix_fmt: str, turn: int) -> None:
    """On pictures with edges and noise, masks soft and sure, of doubt below, between and above the limits."""
    layout = FORMATS[pix_fmt]
    size = (1280, 720) if turn % 180 == 0 else (720, 1280)
    generator = np.random.default_rng(5)
    planes, masks = [], []
    for wide in (0.3, 0.9, 3.0):
        truth = disk((720, 1280), 0.3)
        picture = 0.2 + 0.5 * truth + 0.1 * smooth_rgb(720, 1280, 6)[..., 0] / np.float32(255)
        picture = np.clip(picture + 0.02 * generator.standard_normal(picture.shape), 0, 1)
        luma = np.ascontiguousarray(np.rot90(picture * ((1 << layout.bits) - 1), -(turn // 90))).astype(layout.dtype)
        chroma = np.zeros((-(-size[1] >> layout.shift_y), -(-size[0] >> layout.shift_x)), layout.dtype)
        planes.append((luma, chroma, chroma))
        soft = cv2.GaussianBlur(disk((128, 128), 0.305), (0, 0), 20 * wide)
        masks.append(np.clip((soft - 0.3) * (0.4 / wide + 0.6) + 0.3, 0, 1).astype(np.float32))
    batch, masks_of = batch_of(*planes), np.stack(masks)
    ours = refined_by(side, batch, pix_fmt, turn, masks_of)
    theirs = Refiner(make_info(*size, Color(), turn), pix_fmt)(batch, masks_of)
    assert ours.shape == theirs.shape == (3, 270, 480)
    assert np.abs(ours - theirs).max() < 0.02  # the CPU's guide is rounded to whole levels, once a halving
    assert np.abs(ours - theirs).mean() < 0.001


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("turn", [0, 90])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le", "yuv444p"])
def test_edges_are_drawn_by_color_alike(side: str, pix_fmt: str, turn: int) -> None:
    layout = FORMATS[pix_fmt]
    size = (640, 360) if turn == 0 else (360, 640)
    truth = disk((360, 640), 0.3)
    random = np.random.default_rng(5)
    planes = []
    for before, behind, (down, across) in zip(
        (0.7, 0.4, 0.6), (0.3, 0.5, 0.7), ((0, 0), *[(layout.shift_y, layout.shift_x)] * 2), strict=True
    ):
        shape = 360 >> down if turn == 0 else 360 >> across, 640 >> across if turn == 0 else 640 >> down
        picture = behind + (before - behind) * cv2.resize(truth, shape[::-1], interpolation=cv2.INTER_AREA)
        picture = (picture + 0.02 * random.standard_normal(shape)) * ((1 << layout.bits) - 1)
        planes.append(np.ascontiguousarray(np.rot90(picture, -(turn // 90))).astype(layout.dtype))
    batch, masks = batch_of(tuple(planes), tuple(planes)), np.stack([disk((128, 128), r) for r in (0.32, 0.29)])
    ours = refined_by(side, batch, pix_fmt, turn, masks, by_color=True)
    info = make_info(*size, Color(), turn)
    refiner = Refiner(info, pix_fmt)
    without = refiner(batch, masks)
    theirs = refiner.by_color(batch, masks, without)
    assert np.abs(theirs - without).max() > 0.3
    assert np.abs(ours - theirs).max() < 0.03 and np.abs(ours - theirs).mean() < 0.001


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(256, 256), (192, 336)])
def test_with_the_same_guide_the_refined_masks_are_the_same(shape: tuple[int, int], side: str) -> None:
    """A picture of the refined size needs no shrinking, so nothing is rounded."""
    generator = np.random.default_rng(7)
    luma = generator.integers(0, 256, (270, 480)).astype(np.uint8)
    luma[:, :240] //= 3
    planes = (luma, np.zeros((135, 240), np.uint8), np.zeros((135, 240), np.uint8))
    masks = [disk(shape, radius) for radius in (0.3, 0.04, 0.085)]  # the last two: small, and between the limits
    assert masks[1].mean() < SMALL[0] < masks[2].mean() < SMALL[1]
    masks.append(generator.random(shape).astype(np.float32))
    masks += [np.round(masks[3]), np.where(disk(shape, 0.4) > 0.5, masks[3], 1).astype(np.float32)]
    batch = batch_of(*[planes] * len(masks))
    ours = refined_by(side, batch, "yuv420p", 0, np.stack(masks))
    theirs = Refiner(make_info(480, 270, Color(), 0), "yuv420p")(batch, np.stack(masks))
    assert np.abs(ours - theirs).max() < 1e-4


@pytest.mark.parametrize("side", SIDES)
def test_real_masks_and_pictures_are_refined_alike(side: str, corpus: Path) -> None:

    from segmentation.media.opening.probe import probe
    from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
    from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

    for name in ("05_default_juggle.mp4", "selfie_segmentation_web.mp4", "04_coffee.mp4"):
        info = probe(str(corpus / name))
        batch = batch_of(*(p.planes for p in list(pictures(corpus / name, limit=31))[::15]))
        tensor = OpenCVPreprocessor(info, "yuv420p", MODEL, Config())(batch)
        masks = OnnxRuntimeInference(MODEL, Config())(tensor).masks
        ours, theirs = refined_by(side, batch, "yuv420p", 0, masks), Refiner(info, "yuv420p")(batch, masks)
        assert np.abs(ours - theirs).max() < 0.05 and np.abs(ours - theirs).mean() < 0.001
        a, b = ours > 0.5, theirs > 0.5
        assert (a & b).sum() / (a | b).sum() > 0.995


@pytest.mark.parametrize("side", SIDES)
def test_masks_larger_than_the_picture_stay_as_they_are(side: str) -> None:
    planes = (np.zeros((180, 320), np.uint8), np.zeros((90, 160), np.uint8), np.zeros((90, 160), np.uint8))
    masks = np.random.default_rng(0).random((1, 256, 256)).astype(np.float32)
    assert np.array_equal(refined_by(side, batch_of(planes), "yuv420p", 0, masks), masks)


@pytest.mark.parametrize("side", SIDES)
def test_masks_are_rounded_alike(side: str) -> None:
    """Also halfway between two levels, in batches of any length."""
    gpu = gpu_of(side)
    steps = np.arange(2 * 255 + 1, dtype=np.float32) / np.float32(510)
    near = [np.nextafter(steps, np.float32(way)) for way in (0, 1)]
    masks = np.concatenate([steps, *near, np.random.default_rng(0).random(3 * 511, np.float32)]).reshape(6, 7, 73)
    ours = CudaQuantizer(Config(batch_size=4), gpu)
    for given in (masks[:4], masks[4:]):
        levels, rounded = ours(moved(given, gpu))
        wanted = quantize(given)
        assert np.array_equal(levels.cpu(), wanted[0]) and np.array_equal(rounded.cpu(), wanted[1])
        assert levels.dtype == torch.uint8


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_masks_with_a_nan_are_covered_alike(side: str, value: float) -> None:
    """A mask is covered in the call in which it has one, and in no other."""
    gpu = gpu_of(side)
    ours = CudaCover(Config(batch_size=3, threshold=0.9), gpu)
    for batch, broken in enumerate([(1,), (), (0, 2), (0,), ()]):
        masks = np.random.default_rng(batch).random((3 if batch < 3 else 2, 37, 61), np.float32)
        for number, row in enumerate(broken):
            masks[row, 36 * number, 60 - number] = np.nan
        masks[len(masks) - 1 :] *= np.float32(0.9) / masks[-1].max()  # just at the threshold, which is not above it
        given = moved(masks, gpu)
        covered, found, unknown = ours(given, value)
        wanted = without_nan(masks, value, 0.9)
        assert np.array_equal(covered.cpu(), wanted[0]) and len(covered) == len(masks)
        gpu.record_event().synchronize()
        assert np.array_equal(found, wanted[1]) and found.dtype == np.bool_ and not found.all()
        assert np.array_equal(unknown, wanted[2]) and unknown.dtype == np.bool_
        assert np.array_equal(given.cpu(), masks, equal_nan=True), "the input is only read"
