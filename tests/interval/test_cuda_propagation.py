"""Masks are propagated on the GPU as on the CPU; without a GPU the kernels run on the host (host_kernels)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from drawn import smooth_rgb
from mask_sides import SIDES, gpu_of
from numpy.typing import NDArray

from segmentation.interval.propagation import Doubt, FrameBetween, FrameMask, HostPropagation, Propagation
from segmentation.models.model import Model, load_model
from segmentation.options.config import Config

pytest.importorskip("cuda.core", reason="cuda-core is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")
import torch

from segmentation.interval.cuda_propagation import CudaLuma, CudaPropagation, RecordLayout

Map = NDArray[np.float32]
MODEL = load_model(Config())


@pytest.fixture(autouse=True)
def on_the_stream(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes the tests copy on the kernels' stream, so that neither overtakes the other."""
    with torch.cuda.stream(gpu_of(request.node.callspec.params["side"]).stream):
        yield


def for_input(model: Model, tensor: Any) -> Model:
    """Returns the model with the size of this input (N, 3, height, width)."""
    return replace(model, height=tensor.shape[2], width=tensor.shape[3])


def layers(luma: CudaLuma, layout: RecordLayout) -> tuple[Map, list[NDArray[np.uint8]]]:
    """Returns the values and the levels of a record, as `HostLuma` has them."""
    record = luma.record.cpu().numpy()
    (width, height), places = layout.sizes[0], zip(layout.levels, layout.sizes, strict=True)
    values = record[: 4 * width * height].view(np.float32).reshape(height, width)
    return values, [record[begin : begin + w * h].reshape(h, w) for begin, (w, h) in places][::-1]


def moving(size: tuple[int, int], shape: tuple[int, int], step: tuple[int, int], count: int = 5) -> tuple[Map, Map]:
    """Returns the network's input (count, 3, *size) of a picture that moves by `step`, and masks (count, *shape)."""
    wide = smooth_rgb(size[0] + 96, size[1] + 96, 3).astype(np.float32) / 255 - 0.5
    noise = np.random.default_rng(4).standard_normal((count, 3, *size)).astype(np.float32)
    offsets = [(48 + step[0] * i, 48 + step[1] * i) for i in range(count)]
    seen = [wide[y : y + size[0], x : x + size[1]] for y, x in offsets]
    tensor = np.stack([s.transpose(2, 0, 1) for s in seen]) * 2 + np.float32(0.01) * noise
    masks = [cv2.resize(np.clip(4 * s[..., 0] + 0.5, 0, 1), shape[::-1], interpolation=cv2.INTER_AREA) for s in seen]
    return tensor, np.stack(masks)


def propagated(
    backend: Propagation[Any], tensor: Any, masks: Any, maps: Any, frames: Sequence[int]
) -> list[tuple[FrameMask, Doubt]]:
    """Returns what `backend` finds in these frames between the first and the last."""
    last = len(tensor) - 1
    rows, lumas = backend.keep(tensor, len(tensor))
    keys = backend.split(masks, maps, len(masks))
    between = [FrameBetween(lumas[i], (lumas[0], lumas[last]), (keys[0], keys[last]), 1 - i / last) for i in frames]
    assert len(rows) == len(tensor)
    found, doubts = backend.propagate(between, doubt=True)
    return list(zip(found, doubts(), strict=True))


def both(side: str, model: Model, tensor: Map, masks: Map, maps: Any = None) -> tuple[list[Any], list[Any]]:
    """Returns the results of the GPU's backend and of the host's, for all frames between the first and the last."""
    gpu, frames = gpu_of(side), range(1, len(tensor) - 1)
    given = [
        None if a is None else torch.from_numpy(np.ascontiguousarray(a)).to(gpu.device) for a in (tensor, masks, maps)
    ]
    ours = [
        ((found.mask.cpu().numpy(), None if found.class_map is None else found.class_map.cpu().numpy()), doubt)
        for found, doubt in propagated(CudaPropagation(for_input(model, tensor), gpu), *given, frames)
    ]
    return ours, [(tuple(found), d) for found, d in propagated(HostPropagation(model), tensor, masks, maps, frames)]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((64, 64), (64, 64)),
        ((192, 336), (192, 336)),  # the built-in network's
        ((130, 97), (130, 97)),  # halvings that round up
        ((128, 96), (33, 24)),
        ((96, 96), (192, 192)),
        ((8, 8), (8, 8)),
    ],
)
def test_masks_are_propagated_alike(side: str, size: tuple[int, int], shape: tuple[int, int]) -> None:
    tensor, masks = moving(size, shape, (2, -3))
    ours, theirs = both(side, MODEL, tensor, masks)
    for (found, doubt), (expected, other) in zip(ours, theirs, strict=True):
        assert found[1] is None and expected[1] is None
        assert found[0].shape == expected[0].shape == shape
        # Where rounding moves a level by one, the search may choose another place that looks the same.
        difference = np.abs(found[0] - expected[0])
        assert np.quantile(difference, 0.98) < 0.01 and difference.mean() < 0.003
        assert doubt == pytest.approx(other, abs=0.02)


@pytest.mark.parametrize("side", SIDES)
def test_class_maps_are_propagated_alike(side: str) -> None:
    tensor, masks = moving((128, 128), (128, 128), (0, 4))
    maps = (masks * 3).astype(np.uint8)
    ours, theirs = both(side, MODEL, tensor, masks, maps)
    for (found, _), (expected, _) in zip(ours, theirs, strict=True):
        assert found[1].dtype == expected[1].dtype == np.uint8
        assert np.mean(found[1] == expected[1]) > 0.98


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_luma_is_that_of_the_networks_input(side: str, order: str) -> None:
    """With channels of different scales and means, in half precision as FP16 networks have it."""
    model = load_model(Config(mean=(0.4, 0.5, 0.3), std=(0.5, 0.25, 0.125), channel_order=order))  # type: ignore[arg-type]
    gpu = gpu_of(side)
    tensor, _ = moving((64, 96), (64, 96), (3, 3))
    tensor = tensor.astype(np.float16)
    backend = CudaPropagation(for_input(model, tensor), gpu)
    _, ours = backend.keep(torch.from_numpy(tensor).to(gpu.device), 5)
    layout = RecordLayout.of(96, 64)
    host = HostPropagation(model)
    _, theirs = host.keep(tensor.astype(np.float32), 5)
    for found, expected in zip(ours, theirs, strict=True):
        values, levels = layers(found, layout)
        assert np.abs(values - expected.values).max() < 1e-5
        for level, other in zip(levels, expected.pyramid, strict=True):
            assert level.shape == other.shape
            assert np.abs(level.astype(int) - other).max() <= 1
    assert backend.changes(ours)() == pytest.approx(host.changes(theirs)(), abs=1e-3)
    assert min(host.changes(theirs)()) > 0.001
    assert backend.changes(ours[:1])() == host.changes(theirs[:1])() == []


@pytest.mark.parametrize("side", SIDES)
def test_a_networks_buffers_may_be_written_again(side: str) -> None:
    """Stages on a GPU return the same memory for each batch."""
    gpu = gpu_of(side)
    tensor, masks = (torch.from_numpy(a).to(gpu.device) for a in moving((64, 64), (64, 64), (1, 1)))
    backend = CudaPropagation(for_input(MODEL, tensor), gpu)
    rows, lumas = backend.keep(tensor, 3)
    found = backend.split(masks, None, 3)
    before = [rows.clone(), backend.join(found)[0], lumas[2].record.clone()]
    tensor.fill_(0)
    masks.fill_(0)
    after = [rows, backend.join(found)[0], lumas[2].record]
    assert len(rows) == len(lumas) == len(found) == 3
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert float(before[1].max()) > 0.5
    assert torch.equal(backend.gather([rows[2], rows[0]]), before[0][[2, 0]])


@pytest.mark.parametrize("side", SIDES)
def test_real_masks_and_pictures_are_propagated_alike(side: str, corpus: Path) -> None:
    from drawn import batch_of
    from videos import pictures

    from segmentation.media.opening.probe import probe
    from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
    from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

    for name in ("05_default_juggle.mp4", "selfie_segmentation_web.mp4"):
        info = probe(str(corpus / name))
        batch = batch_of(*(p.planes for p in list(pictures(corpus / name, limit=5))))
        tensor = OpenCVPreprocessor(info, "yuv420p", MODEL, Config())(batch)
        masks = OnnxRuntimeInference(MODEL, Config())(tensor).masks
        ours, theirs = both(side, MODEL, np.ascontiguousarray(tensor, np.float32), masks)
        for (found, _), (expected, _) in zip(ours, theirs, strict=True):
            a, b = found[0] > 0.5, expected[0] > 0.5
            assert (a & b).sum() / (a | b).sum() > 0.995
