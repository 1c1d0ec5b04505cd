"""Single pictures in memory: `Segmenter.masks` and `Segmenter.apply`."""

import runpy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from paths import ROOT
from program import run_tool
from videos import Synthetic, pictures

from segmentation import ConfigError, InputError, Segmenter, segment

PHOTO = ROOT / "segmentation" / "models" / "astronaut.jpg"
BASELINE = {"mode": "baseline", "infer": "onnxruntime"}


@pytest.fixture(scope="module")
def photo() -> NDArray[np.uint8]:
    picture = cv2.imread(str(PHOTO))
    assert picture is not None
    return np.ascontiguousarray(picture[..., ::-1])


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(**BASELINE) as session:
        yield session


@pytest.mark.parametrize("size", [(640, 360), (1920, 1080), (301, 415)])
def test_a_mask_is_that_of_a_video_of_one_frame(
    segmenter: Segmenter, photo: NDArray[np.uint8], tmp_path: Path, size: tuple[int, int]
) -> None:
    picture = cv2.resize(photo, size, interpolation=cv2.INTER_AREA)
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
    video = Synthetic(frames=[frame], pts=[0], pix_fmt="yuv444p").write(tmp_path / "in.mkv")
    segment(video, tmp_path / "mask.mkv", effect="mask", codec="ffv1", smooth=0, **BASELINE)
    shown = next(pictures(tmp_path / "mask.mkv")).planes[0] > 125
    mask = segmenter.masks(picture)
    assert mask.dtype == np.float32 and mask.shape == picture.shape[:2] and 0 <= mask.min() <= mask.max() <= 1
    found, sure = mask > 0.5, np.abs(mask - 0.5) > 0.1  # colors are rounded in between
    assert found.any() and sure.mean() > 0.95
    assert (shown & found & sure).sum() / ((shown | found) & sure).sum() >= 0.999


def test_lists_and_arrays(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    alone = segmenter.masks(photo)
    mirrored = np.ascontiguousarray(photo[:, ::-1])
    stacked = segmenter.masks(np.stack([photo, mirrored]))
    assert isinstance(stacked, np.ndarray) and stacked.shape == (2, *photo.shape[:2])
    listed = segmenter.masks([photo, photo[:200, 100:401], mirrored])
    assert isinstance(listed, list) and [mask.shape for mask in listed] == [alone.shape, (200, 301), alone.shape]
    assert np.array_equal(stacked[0], alone) and np.array_equal(listed[0], alone)
    assert np.array_equal(stacked[1], listed[2])
    assert segmenter.masks([]) == [] and segmenter.masks(photo[None][:0]).shape == (0, *photo.shape[:2])


def test_tensors(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.from_numpy(photo)
    assert np.array_equal(segmenter.masks(tensor), segmenter.masks(photo))
    assert np.array_equal(segmenter.apply(tensor), segmenter.apply(photo))


def test_refinement_may_be_left_out(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    coarse = segmenter.masks(photo, refine=False)
    assert coarse.shape == photo.shape[:2] and not np.array_equal(coarse, segmenter.masks(photo))


@pytest.mark.parametrize("effect", ["blur:25", "pixelate", "color:#00b140", "mask", "overlay", f"image:{PHOTO}"])
def test_an_effect(segmenter: Segmenter, photo: NDArray[np.uint8], effect: str) -> None:
    shown = segmenter.apply(photo, effect=effect)
    assert shown.dtype == np.uint8 and shown.shape == photo.shape
    kept, rest = segmenter.masks(photo) > 0.95, segmenter.masks(photo) < 0.05
    if effect == "mask":
        assert (shown[kept] == 255).all() and not shown[rest].any()
    elif effect == "overlay":
        far = cv2.dilate(segmenter.masks(photo), np.ones((9, 9), np.uint8)) < 0.05  # its edge is not drawn by color
        assert (shown[far] == photo[far]).all()
    else:
        assert (shown[kept] == photo[kept]).all() and (shown[rest] != photo[rest]).any()
    if effect.startswith("color"):
        assert np.abs(shown[rest].astype(int) - (0x00, 0xB1, 0x40)).max() <= 1


def test_a_cutout_has_alpha(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    shown = segmenter.apply(photo, effect="cutout")
    mask = segmenter.masks(photo)
    assert shown.shape == (*photo.shape[:2], 4)
    assert (shown[mask > 0.95] == np.dstack([photo, np.full_like(photo[..., 0], 255)])[mask > 0.95]).all()
    assert not shown[mask < 0.05].any()


def test_an_inverted_effect(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    shown = segmenter.apply(photo, effect="mask", invert=True)
    assert not shown[segmenter.masks(photo) > 0.95].any()


@pytest.mark.parametrize("kinds", ["faces", "heads", "faces,people"])
def test_a_mask_of_what_is_covered_has_all_that_is_covered(kinds: str, photo: NDArray[np.uint8]) -> None:
    with Segmenter(anonymize=kinds, mode="baseline") as session:
        mask = session.masks(photo) > 0.3
        covered = session.apply(photo, effect="color:#ff00ff")
    assert np.array_equal(np.abs(covered.astype(int) - (255, 0, 255)).max(axis=2) <= 8, mask) and 0 < mask.mean() < 0.9


def test_options_of_outputs_do_not_matter(photo: NDArray[np.uint8], segmenter: Segmenter) -> None:
    with Segmenter(codec="hevc", quality=20, results="r.jsonl", also=[("mask", "m.mp4")], **BASELINE) as session:
        assert np.array_equal(session.apply(photo, effect="cutout"), segmenter.apply(photo, effect="cutout"))


def test_calls_may_overlap(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    crops = [photo[: 200 + 20 * i] for i in range(6)]
    alone = [segmenter.apply(crop) for crop in crops]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(segmenter.apply, crops))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 37), (5, 3), (2000, 3)])
def test_tiny_pictures(segmenter: Segmenter, size: tuple[int, int]) -> None:
    picture = np.full((*size, 3), 77, np.uint8)
    assert segmenter.masks(picture).shape == size
    assert segmenter.apply(picture).shape == (*size, 3)
    assert segmenter.apply(picture, effect="cutout").shape == (*size, 4)


def test_a_picture_may_be_read_only(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    before = photo.copy()
    view = photo[::-1, ::-1]
    view.flags.writeable = False
    segmenter.apply(view)
    assert segmenter.masks(view).shape == photo.shape[:2] and np.array_equal(photo, before)


def test_pictures_of_pillow_are_arrays(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    image = pytest.importorskip("PIL.Image").fromarray(photo)
    assert np.array_equal(segmenter.masks(image), segmenter.masks(photo))


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (
            np.zeros((4, 4, 3), np.float32),
            r"the picture: has shape \(4, 4, 3\) and type float32; \(H, W, 3\) uint8",
        ),
        (np.zeros((4, 4), np.uint8), r"shape \(4, 4\)"),
        (np.zeros((4, 4, 4), np.uint8), r"shape \(4, 4, 4\)"),
        (np.zeros((0, 4, 3), np.uint8), r"shape \(0, 4, 3\)"),
        ([np.zeros((4, 4, 3), np.uint8), "a.jpg"], "picture 1: a str is no array.*; files are for run"),
        (None, "a NoneType is no array"),
    ],
)
def test_what_is_no_picture_is_refused(segmenter: Segmenter, frames: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        segmenter.masks(frames)  # type: ignore[call-overload]


def test_options_are_checked(segmenter: Segmenter, photo: NDArray[np.uint8]) -> None:
    with pytest.raises(ConfigError, match="effect"):
        segmenter.apply(photo, effect="haze")
    with pytest.raises(TypeError, match=r"treshold: is no option of apply\(\); did you mean threshold\?"):
        segmenter.apply(photo, treshold=0.4)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"the mask: has shape \(2, 2\) and type uint8 with 255 to 255; "):
        segmenter.apply(photo, mask=np.full((2, 2), 255, np.uint8))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="codec"):
        segmenter.apply(photo, codec="h264")  # type: ignore[call-arg]
    with Segmenter(masks="m.mkv") as session, pytest.raises(ConfigError, match="saved masks"):
        session.masks(photo)


def test_the_sample_program_runs(tmp_path: Path) -> None:
    assert "% of the picture is kept" in run_tool("samples/pictures.py", PHOTO, tmp_path / "out.png")
    made = cv2.imread(str(tmp_path / "out.png"), cv2.IMREAD_UNCHANGED)
    assert made is not None and made.shape == (360, 640, 4)


@pytest.mark.slow
def test_the_node_for_comfyui_masks_pictures(photo: NDArray[np.uint8]) -> None:
    torch = pytest.importorskip("torch")
    sample = runpy.run_path(str(ROOT / "samples" / "comfyui_node.py"))
    (kind,) = sample["NODE_CLASS_MAPPINGS"].values()
    given = kind.INPUT_TYPES()["required"]
    images = torch.from_numpy(np.stack([photo, photo]).astype(np.float32) / 255)
    try:
        masks, pictures = getattr(kind(), kind.FUNCTION)(images, given["model"][0][0], given["threshold"][1]["default"])
        expected = sample["session"]("person").masks(photo)
    finally:
        sample["session"]("person").close()
    assert kind.RETURN_TYPES == ("MASK", "IMAGE") and masks.dtype == pictures.dtype == torch.float32
    assert masks.shape == (2, *photo.shape[:2]) and pictures.shape == images.shape
    assert ((masks[0].numpy() > 0.5) == (expected > 0.5)).mean() > 0.999
    assert (pictures[0][masks[0] == 1] == images[0][masks[0] == 1]).all() and (pictures[1][masks[1] == 0] == 0).all()
