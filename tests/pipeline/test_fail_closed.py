"""No picture is shown raw for want of a mask."""

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from networks import RED_ONLY, chain, node
from numpy.typing import NDArray
from videos import Synthetic

from segmentation import Config, Segmenter
from segmentation.frames import Frame, FrameBatch, MaskedBatch
from segmentation.pipeline.fail_closed import covered

PLANE = np.zeros((4, 4), np.uint8)


def grey(luma: int) -> av.VideoFrame:
    planes = np.vstack([np.full((120, 160), luma, np.uint8), np.full((60, 160), 128, np.uint8)])
    return av.VideoFrame.from_ndarray(planes, "yuv420p")


def batch(masks: NDArray[np.float32], *, repeated: bool = False) -> MaskedBatch:
    frame = Frame(planes=(PLANE, PLANE, PLANE), pts=0, duration=1)
    return MaskedBatch(frames=FrameBatch(frames=(frame,) * len(masks), index=0, repeated=repeated), masks=masks)


@pytest.mark.parametrize(("invert", "everywhere"), [(False, 0.0), (True, 1.0)])
def test_the_effect_is_everywhere_where_the_mask_is_unknown(invert: bool, everywhere: float) -> None:
    masks = np.full((3, 5, 7), 0.5, np.float32)
    masks[1, 2, 3] = np.nan
    config = Config(invert=invert)
    found = covered(batch(masks), config).masks
    assert (found[1] == everywhere).all() and (found[[0, 2]] == 0.5).all() and found.dtype == np.float32
    assert (covered(batch(masks[:1], repeated=True), config).masks == everywhere).all()
    assert covered(batch(masks[:1]), config).masks is not None and np.isnan(masks).sum() == 1  # the input is only read


@pytest.mark.parametrize("options", [{}, {"smooth": 0.0, "refine": False}, {"feather": 20.0}, {"interval": 2}])
@pytest.mark.parametrize("invert", [False, True])
def test_a_network_that_returns_no_numbers_shows_nothing(options: dict[str, Any], invert: bool, tmp_path: Path) -> None:
    """In the middle of a video, whatever the masks go through on the way."""
    frames = [grey(120 if 4 <= number < 8 else 100) for number in range(12)]
    Synthetic(frames=frames, pts=range(12)).write(tmp_path / "in.mkv")

    weights = {"red": RED_ONLY, "limit": np.float32(0.43), "zero": np.float32(0), "kept": np.float32(not invert)}
    nodes = [node("Conv", "x red", "light"), node("Sub", "limit light", "rest"), node("Sqrt", "rest", "root")]
    nodes += [node("Mul", "root zero", "nothing"), node("Add", "nothing kept", "y")]  # the root of what is below 0: NaN
    network = chain(tmp_path / "network.onnx", nodes, weights)
    given: dict[str, Any] = {"effect": "color:#000000", "device": "cpu", "activation": "none", "invert": invert}
    with Segmenter(model=network, **given, **options) as segmenter:
        segmenter.run(tmp_path / "in.mkv", tmp_path / "out.mkv", codec="ffv1")
    with av.open(str(tmp_path / "out.mkv")) as file:
        brightest = [frame.to_ndarray(format="gray").max() for frame in file.decode(video=0)]
    hidden = [luma < 20 for luma in brightest]
    assert not any(hidden[:2]) and not hidden[-1]  # a network that works is not distrusted
    assert all(hidden[4:8])
