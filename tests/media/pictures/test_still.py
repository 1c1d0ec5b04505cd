"""Still pictures as files."""

import logging
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import photos
import pytest
from paths import SAMPLE

from segmentation import InputError, OutputError
from segmentation.media.opening.probe import probe
from segmentation.media.pictures.exif import metadata_of
from segmentation.media.pictures.still import encode_still, gray_png, is_still, read_still
from segmentation.system.access import Access

# Pictures as they are stored for EXIF's orientations, made of the upright one.
STORED = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: np.rot90(p, 1),
    7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
    8: lambda p: np.rot90(p, -1),
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_pictures_are_read_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    upright = photos.photo(61, 40)
    stored = np.ascontiguousarray(STORED[orientation](upright))
    path = photos.write(tmp_path / f"a{suffix}", stored, orientation=orientation, profile=photos.PROFILE)
    still = read_still(str(path))
    assert still.rgb.shape == upright.shape and still.profile == photos.PROFILE and still.alpha is None
    assert np.abs(still.rgb.astype(int) - upright).mean() <= (0 if suffix == ".png" else 4)


def test_metadata_has_names(tmp_path: Path) -> None:
    path = photos.write(tmp_path / "a.jpg", photos.photo(61, 40), orientation=1, place=True)
    plain = photos.write(tmp_path / "b.tiff", photos.photo(61, 40)).read_bytes()
    assert metadata_of(path.read_bytes() + b"<x:xmpmeta") == "EXIF with the place and XMP"
    assert metadata_of(plain) == "" and metadata_of(b"<x:xmpmeta") == "XMP"
    item = struct.pack(">I4sIHH4s", 21, b"infe", 2 << 24, 1, 0, b"Exif")
    assert metadata_of(b"\0\0\0\x1cftypheic" + item) == "EXIF"


def test_gray_and_deep_pictures_and_alpha(tmp_path: Path) -> None:
    rgb = photos.photo(61, 40)
    gray = read_still(str(photos.write(tmp_path / "gray.png", rgb[..., 0])))
    assert np.array_equal(gray.rgb, np.dstack([rgb[..., 0]] * 3)) and gray.bits == 8
    deep = read_still(str(photos.write(tmp_path / "deep.png", rgb.astype(np.uint16) * 257)))
    assert np.array_equal(deep.rgb, rgb) and deep.bits == 16
    clear = read_still(str(photos.write(tmp_path / "clear.png", np.dstack([rgb, rgb[..., 1]]))))
    assert np.array_equal(clear.rgb, rgb) and clear.alpha is not None and np.array_equal(clear.alpha, rgb[..., 1])
    opaque = photos.write(tmp_path / "opaque.webp", np.dstack([rgb, np.full_like(rgb[..., 0], 255)]))
    assert read_still(str(opaque)).alpha is None


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_pictures_that_are_cut_off(tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = photos.write(tmp_path / f"a{suffix}", photos.photo())
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputError, match="damaged or cut off"):
        read_still(str(path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.bmp"])
def test_what_is_called_a_picture_and_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("<html>not found</html>")
    with pytest.raises(InputError, match=f"{name}: is no picture, whatever its name says"):
        read_still(str(tmp_path / name))


def test_a_damaged_png(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = photos.write(tmp_path / "a.png", photos.photo())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged or cut off"):
        read_still(str(path))
    assert capfd.readouterr() == ("", "")


def test_orientations_that_are_cut_off_or_none(tmp_path: Path) -> None:
    rgb = photos.photo(61, 40)
    path = photos.write(tmp_path / "a.png", rgb, orientation=0)
    assert np.array_equal(read_still(str(path)).rgb, rgb)
    photos.write(path, rgb, orientation=9)
    assert np.array_equal(read_still(str(path)).rgb, rgb)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_quality(suffix: str) -> None:
    rgb = photos.photo()
    sizes = [len(encode_still(rgb, Path(f"a{suffix}"), quality)) for quality in (20, 92, 100)]
    assert len(set(sizes)) == (1 if suffix == ".png" else 3) and sizes == sorted(sizes)
    assert len(encode_still(rgb, Path(f"a{suffix}"), None)) == sizes[1]


def test_masks_are_smaller_than_by_default() -> None:
    x = np.linspace(-1, 1, 400)
    distance = np.hypot(x[:300, None], x[None])
    small = np.rint(255 / (1 + np.exp(40 * (distance - 0.5)))).astype(np.uint8)
    levels = np.asarray(cv2.resize(small, (1600, 1200)), np.uint8)  # as a network's masks are enlarged
    data = gray_png(levels)
    assert np.array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED), levels)
    assert len(data) < 0.8 * len(cv2.imencode(".png", levels)[1])


def test_webp_of_quality_100_is_lossless(tmp_path: Path) -> None:
    rgb = photos.photo()
    (tmp_path / "a.webp").write_bytes(encode_still(rgb, Path("a.webp"), 100, photos.PROFILE))
    still = read_still(str(tmp_path / "a.webp"))
    assert np.array_equal(still.rgb, rgb) and still.profile == photos.PROFILE


def test_colors_of_single_pixels_stay_in_jpegs(tmp_path: Path) -> None:
    """Chroma is not subsampled: red and blue columns stay red and blue."""
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2, 0] = stripes[:, 1::2, 2] = 255
    (tmp_path / "a.jpg").write_bytes(encode_still(stripes, Path("a.jpg"), None))
    assert np.abs(photos.read(tmp_path / "a.jpg").astype(int) - stripes).mean() < 12


def test_pictures_that_a_format_cannot_hold() -> None:
    with pytest.raises(OutputError, match="can't hold 16384x1 pixels"):
        encode_still(np.zeros((1, 16384, 3), np.uint8), Path("a.webp"), None)


def test_videos_and_animations_are_no_stills(tmp_path: Path) -> None:
    frames = [photos.photo(61, 40)] * 2
    assert not is_still(str(SAMPLE)) and not is_still(str(photos.write_animation(tmp_path / "a.gif", frames, [50, 50])))
    assert not is_still(str(tmp_path / "%d.png")) and is_still(str(photos.PHOTO))


@pytest.mark.parametrize("most", [1, 100, 255, 1023, 4095, 65535])
def test_samples_are_read_by_the_depth_that_the_file_states(tmp_path: Path, most: int) -> None:
    rgb = photos.photo(61, 40)
    stored = np.rint(rgb / 255 * most).astype(">u2" if most > 255 else np.uint8)
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P6\n61 40\n%d\n" % most + stored.tobytes())
    expected = stored.astype(float) / most * 255
    assert np.abs(read_still(str(path)).rgb - expected).max() <= 2


@pytest.mark.parametrize("depth", [8, 10, 12])
def test_avif_of_each_depth(tmp_path: Path, depth: int) -> None:
    rgb = photos.photo(64, 48)
    dtype = np.uint8 if depth == 8 else np.uint16
    stored = np.rint(rgb[..., ::-1] / 255 * ((1 << depth) - 1)).astype(dtype)
    path = tmp_path / "a.avif"
    options = [cv2.IMWRITE_AVIF_DEPTH, depth, cv2.IMWRITE_AVIF_QUALITY, 100]
    assert cv2.imwrite(str(path), np.ascontiguousarray(stored), options)
    still = read_still(str(path))
    assert still.bits == depth and np.abs(still.rgb.astype(int) - rgb).mean() < 3


def test_pages_and_profile_of_a_tiff(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two pages of 2x1 gray samples, the first with a profile."""
    profile = photos.PROFILE
    at = 8 + 4 + len(profile)
    fields = [(256, 3, 2), (257, 3, 1), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1), (278, 3, 1)]
    fields.append((279, 4, 2))
    one = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in fields)
    first = struct.pack("<H", 10) + one + struct.pack("<HHII", 0x8773, 7, len(profile), 12)
    first += struct.pack("<I", at + len(first) + 4)
    second = struct.pack("<H", 9) + one + bytes(4)
    path = tmp_path / "a.tif"
    path.write_bytes(b"II*\0" + struct.pack("<I", at) + bytes([7, 200, 0, 0]) + profile + first + second)
    with caplog.at_level(logging.WARNING):
        still = read_still(str(path))
    assert still.rgb[0, :, 0].tolist() == [7, 200] and still.profile == profile
    assert "has 2 pages; the first is read" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        probe(str(path))  # as of a video that is made of it
    assert "has 2 pages; the first is read" in caplog.text


def test_a_png_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    side = 20_000  # more than FFmpeg takes, so that it does not tell the size
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))
    with pytest.raises(InputError, match="more than 100000 are refused"):
        read_still(str(path), Access(max_pixels=100_000))
