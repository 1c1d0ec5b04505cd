"""The teacher's veto in the built-in networks: where DeepLab is sure of an animal, a thing or nobody, logits fall."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from paths import ROOT

from segmentation.models.model import BUILT_IN, open_session

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("torch", reason="PyTorch, which network.py imports, is not installed")
sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

from network import BACKGROUND, CLASSES, PERSON, REACH, SEEN, STRIDE, VETO, teacher_weights  # noqa: E402

TEACHER = Path("people", "teachers", "deeplab-mnv2-pascal-513-int8.tflite")  # below the shared folder
NETWORKS = "person", "person-hq"


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_taken_from_the_logits(name: str, tmp_path: Path) -> None:
    graph = onnx.load(BUILT_IN[name])
    last, shares = (next(n for n in reversed(graph.graph.node) if n.op_type == kind) for kind in ("Add", "Softmax"))
    graph.graph.output.extend(onnx.ValueInfoProto(name=one) for one in (last.input[0], shares.output[0]))
    onnx.save(graph, tmp_path / "open.onnx")
    picture = cv2.imread(str(BUILT_IN["person"].with_name("astronaut.jpg")), cv2.IMREAD_COLOR_RGB)
    pictures = np.stack([picture[:336, :560], picture[-336:, -560:]]).transpose(0, 3, 1, 2) / np.float32(127.5) - 1
    mask, logits, named = open_session(tmp_path / "open.onnx").run(None, {"input": pictures})
    assert named.shape == (2, CLASSES, 336 // STRIDE, 560 // STRIDE)
    others = 1 - named[:, BACKGROUND] - named[:, PERSON]
    near = np.stack([cv2.dilate(one, np.ones((REACH, REACH))) for one in named[:, PERSON]])
    nobody = np.maximum(0, 1 - near / SEEN)
    assert others.max() > 0.1 and nobody.max() > 0.1
    taken = [cv2.resize(one, (560, 336)) for one in VETO * (others + nobody)]
    np.testing.assert_allclose(mask[:, 0], 1 / (1 + np.exp(np.stack(taken) - logits[:, 0])), atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_classes_are_the_teachers(name: str, shared: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    weight, bias = teacher_weights(shared / TEACHER)[-1]
    values = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(BUILT_IN[name]).graph.initializer}
    (stored,) = (levels.removesuffix(".levels") for levels in values if levels.endswith("classes.weight.levels"))
    levels, lowest, step = (values[f"{stored}.{part}"] for part in ("levels", "lowest", "step"))
    weights: NDArray[np.float32] = (levels.astype(np.float32) + lowest) * step
    assert np.array_equal(weights, weight) and np.array_equal(values[stored.replace("weight", "bias")], bias)
