"""The kernel that makes a clip's frames from NVDEC's surfaces, on the host, against the CPU path."""

from pathlib import Path

import numpy as np
import pytest
from numbered import all_frames
from paths import ROOT
from videos import planes

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

import torch
from av.video.frame import VideoFrame
from host_kernels import HostKernels
from numpy.typing import NDArray

from segmentation.clips import Output
from segmentation.clips.output import Chain, Draw
from segmentation.clips.sampling import CLIPS, elements, levels, tables
from segmentation.frames import FORMATS
from segmentation.media.input import color_of

OUTPUTS = {
    "whole": Output(dtype="uint8"),
    "small": Output(size=(64, 96), dtype="uint8"),
    "crop": Output(size=(90, 64), crop="random", flip=True, dtype="uint8"),
    "scaled": Output(size=(64, 90), crop="random", scale=150, dtype="uint8"),
    "larger": Output(size=(400, 700), crop="center", dtype="uint8"),
    "half": Output(size=(60, 60), crop="random", flip=True, dtype="float16", mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)),
    "float": Output(size=(60, 60), crop="random", dtype="float32", layout="HWCNT", mean=(0.5, 0.5, 0.5)),
    "ycbcr": Output(size=(64, 96), dtype="uint8", color="ycbcr"),
}


def surface(frame: VideoFrame, bits: int) -> NDArray[np.generic]:
    """Returns a frame as NVDEC has it: Y above interleaved UV, rows padded, 10 bits in the high ones."""
    y, u, v = planes(frame)
    made = np.zeros((y.shape[0] + u.shape[0], y.shape[1] + 24), y.dtype)
    made[: len(y), : y.shape[1]] = y
    made[len(y) :, : y.shape[1]] = np.stack([u, v], axis=-1).reshape(len(u), -1)
    return made << (16 - bits if bits > 8 else 0)


def sampled(frame: VideoFrame, output: Output, draw: Draw, rotation: int, bits: int) -> NDArray[np.generic]:
    """Returns the second frame of the second of two clips, (C, H, W), and sees to it that nothing else is written."""
    layout = FORMATS["yuv420p" if bits == 8 else "yuv420p10le"]
    size = (frame.width, frame.height) if rotation % 180 else (frame.height, frame.width)
    window = output.window(size, draw, rotation)
    rows, columns = output.size or size
    target = (columns, rows) if rotation % 180 else (rows, columns)
    dtype = np.dtype(output.dtype)
    shape = {"N": 2, "T": 2, "C": 3, "H": rows, "W": columns}
    batch = np.full([shape[letter] for letter in output.layout], 77, dtype)
    strides = dict(zip(output.layout, (stride // dtype.itemsize for stride in batch.strides), strict=True))
    places = np.array([strides["N"] + strides["T"], strides["C"], strides["H"], strides["W"]], np.int64)
    made = surface(frame, bits)
    weights = [
        part
        for one in tables(window.stored(size, rotation), target, layout)
        for part in (torch.from_numpy(one), one.shape[1] - 1)
    ]
    HostKernels(CLIPS, layout, rotation // 90)(
        "clip_sample",
        (target[1], target[0], 1),
        *(torch.from_numpy(made), np.int64(made.shape[1]), frame.height, 16 - bits if bits > 8 else 0),
        *weights,
        *(target[1], target[0], int(window.mirrored), torch.from_numpy(levels(output, color_of(frame), bits))),
        *(torch.from_numpy(elements(output).view(np.uint8)), dtype.itemsize),
        *(torch.from_numpy(batch.reshape(-1).view(np.uint8)), *places),
    )
    shown = batch.transpose([output.layout.index(letter) for letter in "NTCHW"])
    assert (shown[0] == 77).all() and (shown[1, 0] == 77).all()
    return shown[1, 1]


def check(frame: VideoFrame, output: Output, draw: Draw, rotation: int, bits: int) -> None:
    size = (frame.width, frame.height) if rotation % 180 else (frame.height, frame.width)
    true = output.numbers([Chain(output, draw, size, rotation)(frame)])[0].astype(np.float64)
    found = sampled(frame, output, draw, rotation, bits).astype(np.float64)
    level = 1 if output.dtype == "uint8" else 1 / 255 / min(output.std)
    error = abs(found - true) / level
    most = 1.1 if output.dtype == "float16" else 1.01  # which has 10 bits
    # FFmpeg's sums of 10 bits have rounding errors of their own, where pictures are enlarged.
    share, worst = (0, most) if bits == 8 else (1e-3, 2.2)
    assert found.shape == true.shape and error.mean() < 0.25
    assert (error > most).mean() <= share and error.max() <= worst, (error.max(), (error > most).mean())


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("name", OUTPUTS)
def test_the_kernel_does_as_the_cpu_does(name: str, rotation: int) -> None:
    frame = all_frames(ROOT / "samples" / "astronaut.mp4")[0]
    for draw in (Draw(0.31, 0.77, False), Draw(0.9, 0.1, True)):
        check(frame, OUTPUTS[name], draw, rotation, 8)


@pytest.mark.parametrize("name", OUTPUTS)
def test_ten_bits(name: str, corpus: Path) -> None:
    check(all_frames(corpus / "h264_10bits.mp4")[5], OUTPUTS[name], Draw(0.4, 0.6, True), 0, 10)
