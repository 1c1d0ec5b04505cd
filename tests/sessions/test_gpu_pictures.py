"""Pictures and the frames of iterators on a GPU, against the CPU's."""

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from paths import SAMPLE

from segmentation import Segmenter

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Segmenter, Segmenter]]:
    with Segmenter(mode="optimized") as gpu, Segmenter(device="cpu") as cpu:
        yield gpu, cpu


def test_pictures(sides: tuple[Segmenter, Segmenter]) -> None:
    with av.open(str(SAMPLE)) as container:
        picture = next(container.decode(video=0)).to_ndarray(format="rgb24")
    masks, expected = (side.masks(picture) for side in sides)
    assert np.abs(masks - expected).mean() < 0.005 and (expected > 0.5).mean() > 0.02
    for effect in ("blur:25", "color:#00b140", "mask"):
        shown, other = (side.apply(picture, mask=expected, effect=effect).astype(int) for side in sides)
        assert np.abs(shown - other).mean() < 1, effect
    shown, other = (side.apply(picture).astype(int) for side in sides)
    assert np.abs(shown - other).mean() < 1 < np.abs(shown - picture).mean()


def test_frames(sides: tuple[Segmenter, Segmenter]) -> None:
    frames, expected = (list(side.frames(SAMPLE, max_frames=40)) for side in sides)
    assert len(frames) == len(expected) == 40
    for frame, other in zip(frames, expected, strict=True):
        assert frame.seconds == other.seconds and np.abs(frame.image.astype(int) - other.image).mean() < 1
        assert np.abs(frame.mask - other.mask).mean() < 0.005


def test_the_programs_device_stays(tmp_path: Path) -> None:
    """A program may use another device than its session, and change it between calls."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    last = torch.cuda.device_count() - 1
    picture = np.zeros((64, 64, 3), np.uint8)
    with Segmenter(device=f"cuda:{last}", overwrite=True) as segmenter:
        for device in (0, last, 0):
            torch.cuda.set_device(device)
            segmenter.masks(picture)
            assert torch.cuda.current_device() == device
            segmenter.apply(picture)
            assert torch.cuda.current_device() == device
            assert segmenter.run(SAMPLE, tmp_path / "out.mp4", max_frames=20).frames == 20
            assert torch.cuda.current_device() == device
            for _ in segmenter.frames(SAMPLE, max_frames=20):
                assert torch.cuda.current_device() == device
    assert torch.cuda.current_device() == 0
