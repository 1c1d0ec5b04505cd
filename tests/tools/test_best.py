"""The file `person-best.onnx`: the weights of `person-hq`, for the picture and its mirror image."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from paths import ROOT

from segmentation.models.model import BUILT_IN, open_session

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

from best import best  # noqa: E402

SIZE = 96, 160  # small, to be quick


def found(name: str, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    masks: NDArray[np.float32] = open_session(BUILT_IN[name]).run(None, {"input": np.ascontiguousarray(pictures)})[0]
    return masks


def logit(masks: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.log(masks / (1 - masks))


def test_the_file_is_what_the_tool_makes() -> None:
    assert best(onnx.load(BUILT_IN["person-hq"])) == onnx.load(BUILT_IN["person-best"])


def test_masks_are_the_mean_of_the_picture_and_its_mirror_image() -> None:
    pictures = np.random.default_rng(0).uniform(-1, 1, (2, 3, *SIZE)).astype(np.float32)
    seen, mirrored = found("person-hq", pictures), found("person-hq", pictures[..., ::-1])[..., ::-1]
    assert np.abs(seen - mirrored).max() > 0.05, "else the comparison shows nothing"
    expected = 1 / (1 + np.exp(-(logit(seen) + logit(mirrored)) / 2))
    np.testing.assert_allclose(found("person-best", pictures), expected, atol=1e-4)
