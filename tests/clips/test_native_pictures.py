"""The pictures of clips by the native library, on a stand-in for the driver, which shows each packet's check sum."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from native_nvdec import stand_in_driver
from videos import Synthetic

from segmentation.clips import ClipDataset
from segmentation.clips.decode import opened
from segmentation.clips.index import VideoIndex
from segmentation.errors import InputError
from segmentation.media.bitstream.start_codes import PacketFilter

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


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> VideoIndex:
    options = {"x264-params": "keyint=24:min-keyint=24:scenecut=0:bframes=2:b-pyramid=none"}
    clip = Synthetic(codec="libx264", options=options, pts=range(72))
    return ClipDataset(clip.write(tmp_path_factory.mktemp("clip") / "a.mp4"), length=3).videos[0]


def decoded(pictures: Any, index: VideoIndex, numbers: Sequence[int]) -> tuple[list[Shown], bool]:
    """Returns the pictures with a sample from the last row of each plane, and whether there was damage."""
    width, height = index.stored
    found: list[Shown] = []
    with opened(index, numbers[0]) as (stream, packets):
        made = pictures(index, numbers, stream, packets)
        while True:
            try:
                number, picture = next(made)
            except StopIteration as end:
                return found, end.value
            below = (height - 1) * picture.pitch + width - 1, (height // 2 - 1) * picture.chroma_pitch + width // 2 - 1
            places = picture.y + below[0], picture.u + below[1], picture.v + below[1]
            found.append((number, [ctypes.c_uint8.from_address(place).value for place in places]))


def expected(index: VideoIndex, numbers: Sequence[int]) -> list[Shown]:
    sums = {}
    with opened(index, 0) as (stream, packets):
        filtered = PacketFilter(stream, index.path)
        for packet in packets:
            (ready,) = filtered(packet)
            sums[ready.pts] = 7 + sum(bytes(ready))
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
    with pytest.raises(InputError, match=r'a\.mp4: NVDEC can\'t decode it \(.*\); use device="cpu"$'):
        decoded(pictures, index, range(20, 23))
    driver.stand_in_faults(-1, 0, 0, -1)
    assert decoded(pictures, index, range(3)) == (expected(index, range(3)), False)
