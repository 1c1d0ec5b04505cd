"""The pictures of clips by the native library, on a stand-in for the driver, which shows each packet's check sum."""

import ctypes
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from native_nvdec import stand_in, stand_in_driver
from videos import Synthetic

from segmentation.clips import ClipDataset
from segmentation.clips.index import VideoIndex
from segmentation.errors import InputError
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.chunks import read
from segmentation.stages.decode.native.samples import SampleReader

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from host_nvdec import host_native_pictures

Shown = tuple[int, list[int]]  # number, and a level of Y, U and V


@pytest.fixture
def driver() -> Iterator[Any]:
    """The stand-in, without faults."""
    made = stand_in_driver()
    made.stand_in_faults(-1, 0, 0, -1)
    yield made
    made.stand_in_faults(-1, 0, 0, -1)


@pytest.fixture(scope="module", params=["a.mp4", "a.mkv"])  # by the sample table, and by FFmpeg
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VideoIndex:
    options = {"x264-params": "keyint=24:min-keyint=24:scenecut=0:bframes=2:b-pyramid=none"}
    clip = Synthetic(codec="libx264", options=options, pts=range(72))
    return ClipDataset(clip.write(tmp_path_factory.mktemp("clip") / request.param), length=3).videos[0]


def decoded(pictures: Any, index: VideoIndex, numbers: Sequence[int]) -> tuple[list[Shown], bool]:
    """Returns the pictures with a sample from the last row of each plane, and whether there was damage."""
    width, height = index.stored
    found: list[Shown] = []
    made = pictures(index, numbers)
    while True:
        try:
            number, picture = next(made)
        except StopIteration as end:
            return found, end.value
        below = (height - 1) * picture.pitch + width - 1, (height // 2 - 1) * picture.chroma_pitch + width // 2 - 1
        places = picture.y + below[0], picture.u + below[1], picture.v + below[1]
        found.append((number, [ctypes.c_uint8.from_address(place).value for place in places]))


def expected(index: VideoIndex, numbers: Sequence[int]) -> list[Shown]:
    info = probe(index.path)
    reader = SampleReader.of(info, stand_in())
    packets = read(info, None) if reader is None else reader.read(Mock(), Mock())
    sums = {packet.pts: 7 + sum(bytes(packet)) for packet in packets}
    return [(number, [(sums[int(index.pts[number])] + i) % 256 for i in range(3)]) for number in numbers]


@pytest.mark.parametrize("numbers", [range(20, 23), range(72), [5, 30, 31, 70], [0], [71]], ids=str)
def test_each_picture_comes_at_its_number(driver: Any, index: VideoIndex, numbers: Sequence[int]) -> None:
    pictures = host_native_pictures(index.stored)
    for _ in range(2):  # by a session that has decoded the same before
        assert decoded(pictures, index, numbers) == (expected(index, numbers), False)


def test_pictures_that_no_clip_shows_stay_in_the_decoder(driver: Any, index: VideoIndex) -> None:
    decoded(host_native_pictures(index.stored), index, range(20, 23))
    assert driver.stand_in_mapped() == 3


def test_damage_on_the_way_is_found(driver: Any, index: VideoIndex) -> None:
    driver.stand_in_faults(-1, 0, 1000, -1)  # the keyframe alone
    numbers = range(20, 23)
    assert decoded(host_native_pictures(index.stored), index, numbers) == (expected(index, numbers), True)


def test_a_fault_is_one_line_and_the_next_clip_gets_a_new_session(driver: Any, index: VideoIndex) -> None:
    pictures = host_native_pictures(index.stored)
    driver.stand_in_faults(4, 1, 0, -1)
    with pytest.raises(InputError, match=r'a\.m..: NVDEC can\'t decode it \(.*\); use device="cpu"$'):
        decoded(pictures, index, range(20, 23))
    driver.stand_in_faults(-1, 0, 0, -1)
    assert decoded(pictures, index, range(3)) == (expected(index, range(3)), False)


def test_no_container_is_opened_for_the_usual_mp4(
    driver: Any, index: VideoIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = host_native_pictures(index.stored)
    opened_once: list[str] = []
    lent = pictures._videos.lent
    monkeypatch.setattr(pictures._videos, "lent", lambda path: opened_once.append(path) or lent(path))
    decoded(pictures, index, range(20, 23))
    assert bool(opened_once) == index.path.endswith(".mkv")


def test_a_file_that_is_another_one_by_now_is_read_anew(driver: Any, index: VideoIndex, tmp_path: Path) -> None:
    name = Path(index.path).name
    path = shutil.copy(index.path, tmp_path / name)
    moved = replace(index, path=str(path))
    pictures = host_native_pictures(index.stored)
    assert decoded(pictures, moved, range(3)) == (expected(index, range(3)), False)
    other = Synthetic(codec="libx264", options={"x264-params": "keyint=7:min-keyint=7:scenecut=0"}, pts=range(0, 90, 3))
    other.write(tmp_path / f"b{name}").replace(path)
    with pytest.raises(InputError, match="can't be decoded"):
        decoded(pictures, moved, [20])
