"""The frames of clips by the native library, on a stand-in for the driver, which shows each packet's check sum."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from native_nvdec import stand_in, stand_in_driver
from videos import Synthetic

from segmentation.clips import ClipDataset, Output
from segmentation.clips.index import VideoIndex
from segmentation.clips.output import Augmentation
from segmentation.errors import InputError
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import read
from segmentation.stages.decode.native.samples import SampleReader

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

import torch
from host_clips import stand_in as on_the_host
from host_nvdec import host_native_clips

Shown = tuple[int, list[int]]  # number, and a level of Y, U and V
LEVELS = {"levels": Output(dtype="uint8", color="ycbcr")}


@pytest.fixture
def driver() -> Iterator[Any]:
    """The stand-in, without faults."""
    made = stand_in_driver()
    made.stand_in_faults(-1, 0, 0, -1)
    yield made
    made.stand_in_faults(-1, 0, 0, -1)
    made.stand_in_slope(0)


@pytest.fixture(scope="module", params=["a.mp4", "a.mkv"])  # by the sample table, and by FFmpeg
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VideoIndex:
    options = {"x264-params": "keyint=24:min-keyint=24:scenecut=0:bframes=2:b-pyramid=none"}
    clip = Synthetic(codec="libx264", options=options, pts=range(120))
    return ClipDataset(clip.write(tmp_path_factory.mktemp("clip") / request.param), length=3).videos[0]


@pytest.fixture
def builder(index: VideoIndex, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A builder whose clips the native library makes."""
    made = on_the_host(monkeypatch).CudaClipBuilder(LEVELS, 0, 1)
    made._native = host_native_clips(index.stored)
    return made


def decoded(builder: Any, index: VideoIndex, numbers: Sequence[int]) -> tuple[list[Shown], bool]:
    """Returns the levels of a clip's frames in the last row and column, and whether there was damage."""
    clip = builder.begin(index, Augmentation(0, 0, False), len(numbers))
    damaged = builder._native.make(index, {number: [clip] for number in numbers})
    return list(zip(numbers, clip.sample()["levels"].array[:, :, -1, -1].tolist(), strict=True)), damaged


def expected(index: VideoIndex, numbers: Sequence[int]) -> list[Shown]:
    info = probe(index.path)
    reader = SampleReader.of(info, stand_in())
    packets = read(info, None) if reader is None else reader.read(Mock(), Mock())
    sums = {packet.pts: 7 + sum(bytes(packet)) for packet in packets}
    return [(number, [(sums[int(index.pts[number])] + i) % 256 for i in range(3)]) for number in numbers]


@pytest.mark.parametrize("numbers", [range(20, 23), range(120), [5, 30, 31, 70], [0], [119]], ids=str)
def test_each_picture_comes_at_its_number(driver: Any, builder: Any, index: VideoIndex, numbers: Sequence[int]) -> None:
    for _ in range(2):  # by a session that has decoded the same before
        assert decoded(builder, index, numbers) == (expected(index, numbers), False)


def test_pictures_that_no_clip_shows_stay_in_the_decoder(driver: Any, builder: Any, index: VideoIndex) -> None:
    decoded(builder, index, range(20, 23))
    assert driver.stand_in_mapped() == 3


def test_damage_on_the_way_is_found(driver: Any, builder: Any, index: VideoIndex) -> None:
    driver.stand_in_faults(-1, 0, 1000, -1)  # the keyframe alone
    numbers = range(20, 23)
    assert decoded(builder, index, numbers) == (expected(index, numbers), True)


def test_a_fault_is_one_line_and_the_next_clip_gets_a_new_session(driver: Any, builder: Any, index: VideoIndex) -> None:
    driver.stand_in_faults(4, 1, 0, -1)
    with pytest.raises(InputError, match=r'a\.m..: NVDEC can\'t decode it \(.*\); use device="cpu"$'):
        decoded(builder, index, range(20, 23))
    driver.stand_in_faults(-1, 0, 0, -1)
    assert decoded(builder, index, range(3)) == (expected(index, range(3)), False)


def test_no_container_is_opened_for_the_usual_mp4(
    driver: Any, builder: Any, index: VideoIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_once: list[str] = []
    lent = builder._native._videos.lent
    monkeypatch.setattr(builder._native._videos, "lent", lambda path: opened_once.append(path) or lent(path))
    decoded(builder, index, range(20, 23))
    assert bool(opened_once) == index.path.endswith(".mkv")


def test_a_file_that_is_another_one_by_now_is_read_anew(
    driver: Any, builder: Any, index: VideoIndex, tmp_path: Path
) -> None:
    name = Path(index.path).name
    path = shutil.copy(index.path, tmp_path / name)
    moved = replace(index, path=str(path))
    assert decoded(builder, moved, range(3)) == (expected(index, range(3)), False)
    other = Synthetic(codec="libx264", options={"x264-params": "keyint=7:min-keyint=7:scenecut=0"}, pts=range(0, 90, 3))
    other.write(tmp_path / f"b{name}").replace(path)
    with pytest.raises(InputError, match="can't be decoded"):
        decoded(builder, moved, [20])


WINDOWS = {
    "small": Output(size=(24, 40), dtype="uint8", color="ycbcr"),
    "crop": Output(size=(30, 44), crop="random", scale=56, flip=True, dtype="float32"),
}


def test_windows_and_clips_that_share_pictures(driver: Any, index: VideoIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a surface comes by PyNvVideoCodec, bit for bit."""
    driver.stand_in_slope(1)
    builder = on_the_host(monkeypatch).CudaClipBuilder(WINDOWS, 0, 1)
    builder._native = host_native_clips(index.stored)
    spans, draws = ([20, 22, 24], [22, 23, 24]), (Augmentation(0.3, 0.8, True), Augmentation(0.9, 0.4, False))
    made, right = ([builder.begin(index, draw, 3) for draw in draws] for _ in range(2))
    wanting = {number: [clip for clip, span in zip(made, spans, strict=True) if number in span] for number in spans[0]}
    builder.make(index, wanting | {23: [made[1]]})
    levels = dict(expected(index, range(20, 25)))
    for clip, span in zip(right, spans, strict=True):
        for number in span:
            clip.add(Sloped(index.stored, levels[number][0]))
    for clip, other in zip(made, right, strict=True):
        for name, found in clip.sample().items():
            assert found.array.unique().numel() > 20
            assert torch.equal(found.array, other.sample()[name].array)


class Sloped:
    """A surface of the stand-in with a slope."""

    def __init__(self, size: tuple[int, int], first: int) -> None:
        (width, height), pitch = size, 512
        rows, columns = np.mgrid[: height * 3 // 2, :pitch]
        chroma = (rows >= height) * (1 + columns % 2)
        self._samples = (first + chroma + columns + 3 * rows).astype(np.uint8)
        self.shape, self.strides = (height * 3 // 2, width), (pitch,)

    def GetPtrToPlane(self, index: int) -> int:
        return int(self._samples.ctypes.data)
