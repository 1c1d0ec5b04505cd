"""The stages of the GPU give the same pictures as the stages of the CPU, within rounding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import MODEL, ORIENTATIONS, batch_of, compare, make_info, noise, planes_of, smooth_rgb, soft_mask
from paths import ROOT, SAMPLE
from stages import GPU_SIDES, gpu_stages, postprocess, preprocess
from videos import pictures

from segmentation.frames import FORMATS, FULL, LIMITED, Color
from segmentation.frames.orientation import Orientation
from segmentation.media.opening.probe import probe
from segmentation.models.detection import Detection
from segmentation.models.model import load_model
from segmentation.options.config import Config
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

BEHIND = ROOT / "docs" / "demo.png"
EFFECTS = ["blur", "blur:60", "blur:3", "pixelate:40", "mask", "overlay:#ff0000"]
REPLACED = ["color:#2080e0", f"image:{BEHIND}", f"image:{BEHIND},contain", f"video:{SAMPLE}", "cutout"]


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("size", [(1920, 1080), (638, 358), (161, 121), (120, 72)])
def test_the_network_sees_the_same(side: str, size: tuple[int, int], pix_fmt: str) -> None:
    info = make_info(*size, Color(matrix=1, range=LIMITED))
    batch = batch_of(*(planes_of(smooth_rgb(size[1], size[0], seed), pix_fmt, info.color) for seed in range(3)))
    ours, theirs = (preprocess(s, info, pix_fmt, MODEL, batch) for s in (side, "opencv"))
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    # Halving in steps rounds in each step, by a level or two of Y, U and V in the end.
    assert np.abs(ours - theirs).max() * 255 <= 6
    assert np.abs(ours - theirs).mean() * 255 <= 1


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
@pytest.mark.parametrize("size", [(642, 358), (50, 90)])
def test_the_network_sees_the_same_amid_a_border(side: str, size: tuple[int, int], shown: Orientation) -> None:
    info = make_info(*size, Color(matrix=1, range=LIMITED), shown)
    form = Detection(task="yolo", outputs=("y",), fit="letterbox")
    model = replace(MODEL, height=72, width=96, detection=form).for_video(info)
    assert model.picture not in (None, (0, 0, 96, 72))
    batch = batch_of(*(planes_of(smooth_rgb(size[1], size[0], seed), "yuv420p", info.color) for seed in range(2)))
    ours, theirs = (preprocess(s, info, "yuv420p", model, batch) for s in (side, "opencv"))
    assert np.abs(ours - theirs).max() * 255 <= 6
    assert np.abs(ours - theirs).mean() * 255 <= 1


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le", "yuv444p", "yuv422p"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_effects_look_the_same(side: str, effect: str, pix_fmt: str, rotation: int) -> None:
    size = (642, 358)
    info = make_info(*size, Color(matrix=1, range=FULL if rotation == 90 else LIMITED), rotation)
    batch = batch_of(*(planes_of(smooth_rgb(size[1], size[0], seed), pix_fmt, info.color) for seed in range(2)))
    masks = soft_mask(64, 96)
    ours, theirs = (postprocess(s, info, pix_fmt, effect, batch, masks) for s in (side, "opencv"))
    compare(ours, theirs, pix_fmt, most=6)  # alpha may be 2 of 255 off, between colors that are far apart


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("shown", ORIENTATIONS[4:], ids=str)
@pytest.mark.parametrize("effect", [*EFFECTS[::2], *REPLACED[1:]])
def test_effects_on_mirrored_pictures_look_the_same(side: str, effect: str, shown: Orientation) -> None:
    info = make_info(642, 358, Color(matrix=1, range=LIMITED), shown)
    batch = batch_of(*(planes_of(smooth_rgb(358, 642, seed), "yuv420p", info.color) for seed in range(2)))
    ours, theirs = (postprocess(s, info, "yuv420p", effect, batch, soft_mask(64, 96)) for s in (side, "opencv"))
    compare(ours, theirs, "yuv420p", most=8, least_alpha=64 if effect == "cutout" else 0)


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("rotation", [0, 90, 270])
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le", "yuv444p", "yuv422p10le"])
@pytest.mark.parametrize("effect", REPLACED)
def test_replaced_backgrounds_look_the_same(side: str, effect: str, pix_fmt: str, rotation: int) -> None:
    info = make_info(642, 358, Color(matrix=1, range=LIMITED), rotation)
    batch = batch_of(*(planes_of(smooth_rgb(358, 642, seed), pix_fmt, info.color) for seed in range(2)))
    ours, theirs = (postprocess(s, info, pix_fmt, effect, batch, soft_mask(64, 96)) for s in (side, "opencv"))
    # A cut-out divides small shares by small alphas: only samples that are mostly the subject's compare.
    compare(ours, theirs, pix_fmt, most=8, least_alpha=64 if effect == "cutout" else 0)


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p10le"])
@pytest.mark.parametrize("size", [(161, 121), (322, 183)])
@pytest.mark.parametrize("effect", ["blur", "pixelate:90", "color", f"image:{BEHIND}", "cutout"])
@pytest.mark.parametrize(
    "options", [{"invert": True}, {"threshold": 0.3}, {"feather": 40.0}, {"feather": 15.0, "invert": True}], ids=str
)
def test_edges_are_the_same(
    side: str, options: dict[str, Any], effect: str, size: tuple[int, int], pix_fmt: str
) -> None:
    """With odd sizes, in which the last chroma sample has half as much luma: OpenCV stretches chroma by that half."""
    info = make_info(*size, Color(matrix=1, range=LIMITED))
    batch = batch_of(planes_of(smooth_rgb(size[1], size[0], 1), pix_fmt, info.color))
    masks = soft_mask(64, 96)[:1]
    ours, theirs = (postprocess(s, info, pix_fmt, effect, batch, masks, **options) for s in (side, "opencv"))
    compare(ours, theirs, pix_fmt, most=8, mean=1, least_alpha=128 if effect == "cutout" else 0)


@pytest.mark.parametrize("side", GPU_SIDES)
@pytest.mark.parametrize("pix_fmt", FORMATS)
def test_kept_pixels_are_the_same_ones(side: str, pix_fmt: str) -> None:
    """On noise, which every blur changes, both sides keep the same samples bit for bit."""
    info = make_info(322, 182, Color(matrix=1, range=LIMITED))
    batch = batch_of(noise(pix_fmt), noise(pix_fmt, seed=1))
    ours, theirs = (postprocess(s, info, pix_fmt, "blur", batch, soft_mask(64, 64)) for s in (side, "opencv"))
    for source, a, b in zip(batch.frames, ours.frames, theirs.frames, strict=True):
        kept = [out.planes[0] == source.planes[0] for out in (a, b)]
        assert 0.1 < kept[1].mean() < 0.9
        assert (kept[0] != kept[1]).mean() < 0.02


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p", "yuv420p10le", "yuv444p10le"])
@pytest.mark.parametrize(
    ("size", "gap", "shift"), [((64, 48), 0, 0), ((64, 48), 64, 0), ((64, 48), 2, 1), ((38, 30), 0, 0)]
)
def test_surfaces_become_planes(size: tuple[int, int], gap: int, shift: int, pix_fmt: str) -> None:
    """Of NVDEC's layout, with rows `gap` samples longer than the picture and begun `shift` samples behind where all is
    aligned. On a GPU, what is decoded shows it.
    """
    host, _ = gpu_stages("host")
    import torch

    from segmentation.stages.frame_kernels import FRAMES

    layout, (width, height) = FORMATS[pix_fmt], size
    rows = height * 3 // 2 if layout.shift_y else 3 * height
    high = 0 if layout.bits == 8 else 6  # the bits that NVDEC leaves empty
    memory = np.random.default_rng(2).integers(0, 1 << layout.bits, rows * (width + gap) + shift).astype(layout.dtype)
    surface = memory[shift:].reshape(rows, width + gap)[:, :width]
    planes = [
        torch.zeros((2, *shape), dtype=torch.uint8 if layout.bits == 8 else torch.uint16)
        for shape in layout.shapes(width, height)
    ]
    given = memory << high
    address = np.uint64(given.ctypes.data + shift * given.itemsize)
    host.kernels(FRAMES, layout)(
        "unpack", (-(-width // 4), height, 1), address, np.int64(width + gap), *planes, width, height, 1, high
    )
    below = surface[height:]
    chroma = (below[:, 0::2], below[:, 1::2]) if layout.shift_x else (below[:height], below[height:])
    for plane, expected in zip(planes, (surface[:height], *chroma), strict=True):
        assert np.array_equal(plane[1].numpy(), expected) and not plane[0].any()


@pytest.mark.gpu
def test_masks_agree() -> None:
    """The whole way to the mask, with the built-in model, FP16 against ONNX Runtime's FP32."""
    from stages import gpu

    from segmentation.gpu.transfer import GpuTransfer
    from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

    info = probe(str(SAMPLE))
    model = load_model(Config(), info)
    batch = batch_of(*(p.planes for p in list(pictures(Path(SAMPLE)))[::40]))
    config = Config(batch_size=4)
    transfer = GpuTransfer(gpu(), info, FORMATS["yuv420p"], 4)
    tensor = preprocess("cuda", info, "yuv420p", model, batch)
    infer = TorchFp16Inference(model, config, gpu())
    for count in (4, 1, 3):  # the rows behind a short batch don't disturb the batch
        given = transfer.rows(tensor[:count], "cuda", count)
        ours = transfer.rows(infer(given).masks, "host", count) > 0.5
        expected = OnnxRuntimeInference(model, Config())(preprocess("opencv", info, "yuv420p", model, batch)).masks
        theirs = np.asarray(expected)[:count] > 0.5
        assert 0.02 < theirs.mean() < 0.98
        assert (ours & theirs).sum() / (ours | theirs).sum() >= 0.99
