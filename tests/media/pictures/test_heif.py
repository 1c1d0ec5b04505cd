"""HEIF pictures of tiles: read whole wherever a picture is, or refused in a line."""

import struct
import sys
from pathlib import Path
from typing import Any

import heif
import numpy as np
import photos
import pytest
from paths import SAMPLE

from segmentation import InputError, Segmenter
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe
from segmentation.media.pictures.still import is_still, read_still
from segmentation.system.access import Access


@pytest.fixture(params=["av1", "hevc"])
def tiled(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "hevc":
        pytest.importorskip("pi_heif", reason="needs the extra heif")
    return heif.write_tiled(tmp_path / "a.heif", photos.photo(192, 128), request.param)


def test_the_whole_picture_is_read(tiled: Path) -> None:
    whole = photos.photo(192, 128)
    still = read_still(str(tiled))
    assert is_still(str(tiled)) and still.bits == 8 and np.abs(still.rgb.astype(int) - whole).mean() < 4
    with open_input(str(tiled)) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    assert np.abs(frame.astype(int) - whole).mean() < 4
    network: Any = lambda pictures: pictures[:, 0]  # noqa: E731
    with Segmenter(device="cpu", model=network, input_size=(32, 32)) as segmenter:
        assert [frame.image.shape for frame in segmenter.frames(tiled)] == [(128, 192, 3)]
        done = segmenter.run(SAMPLE, tiled.with_suffix(".mkv"), effect=f"image:{tiled}", max_frames=1)
    assert done.frames == 1


def test_bytes_of_tiles_are_refused(tiled: Path) -> None:
    with Segmenter(device="cpu") as segmenter, pytest.raises(InputError, match="consists of tiles"):
        next(segmenter.frames(tiled.read_bytes()))


def test_a_broken_table_of_tiles_is_no_single_tile(tiled: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = bytearray(tiled.read_bytes())
    at = data.rfind(struct.pack(">BBHH", 1, 2, 192, 128))  # rows and columns, each one less
    data[at : at + 2] = b"\xff\xff"
    tiled.write_bytes(data)
    for read in (read_still, probe):
        with pytest.raises(InputError, match="damaged"):
            read(str(tiled))
    assert capfd.readouterr() == ("", "")


def test_the_limit_is_the_whole_pictures(tiled: Path) -> None:
    limits = Access(max_pixels=192 * 128 - 1)
    for read in (read_still, probe):
        with pytest.raises(InputError, match="claims 192x128 pixels"):
            read(str(tiled), limits)


def test_without_the_library_heic_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = heif.write_tiled(tmp_path / "a.heic", photos.photo(128, 128), "hevc")
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    for read in (read_still, probe):
        with pytest.raises(InputError, match=r"HEIC pictures need pi-heif; pip install .*\[heif\]"):
            read(str(path))
