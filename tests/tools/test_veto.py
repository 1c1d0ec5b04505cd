"""The teacher's veto in `person.onnx`: where DeepLab is sure of an animal or a thing, the logits fall."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from paths import ROOT

from segmentation.models.model import BUILT_IN, open_session

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

from veto import BACKGROUND, CLASSES, PERSON, STRIDE, TEACHER, VETO  # noqa: E402


def test_it_is_taken_from_the_logits_of_animals_and_things(tmp_path: Path) -> None:
    graph = onnx.load(BUILT_IN["person"])
    kinds = [node.op_type for node in graph.graph.node]
    before, named = (graph.graph.node[i].output[0] for i in (-3, kinds.index("Softmax")))
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in (before, named))
    onnx.save(graph, tmp_path / "open.onnx")
    picture = cv2.imread(str(BUILT_IN["person"].with_name("astronaut.jpg")), cv2.IMREAD_COLOR_RGB)
    pictures = np.stack([picture[:336, :560], picture[-336:, -560:]]).transpose(0, 3, 1, 2) / np.float32(127.5) - 1
    mask, logits, shares = open_session(tmp_path / "open.onnx").run(None, {"input": pictures})
    assert shares.shape == (2, CLASSES, 336 // STRIDE, 560 // STRIDE)
    others = 1 - shares[:, BACKGROUND] - shares[:, PERSON]
    assert others.max() > 0.1, others.max()
    expected = logits[:, 0] - VETO * np.stack([cv2.resize(share, (560, 336)) for share in others])
    np.testing.assert_allclose(mask[:, 0], 1 / (1 + np.exp(-expected)), atol=1e-5)


def test_the_classes_are_the_teachers(shared: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from network import teacher_weights

    assert litert and TEACHER.samefile(shared / "people" / "teachers" / TEACHER.name)
    weight, bias = teacher_weights(TEACHER)[-1]
    values = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(BUILT_IN["person"]).graph.initializer}
    levels, lowest, step = (values[f"classes.weight.{part}"] for part in ("levels", "lowest", "step"))
    stored: NDArray[np.float32] = (levels.astype(np.float32) + lowest) * step
    assert np.array_equal(stored, weight) and np.array_equal(values["classes.bias"], bias)
