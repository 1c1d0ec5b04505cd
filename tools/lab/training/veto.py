"""Puts the teacher's veto into a network's file: where DeepLab is sure of an animal or a thing, logits fall.

    python tools/lab/training/veto.py          # into segmentation/models/person.onnx

The network's encoder is the teacher's own and does not learn, so that the file lacks the teacher's last layer alone,
which names Pascal VOC's classes. `VETO` is taken from the logits where the teacher is sure, and less where it is less
sure. Needs PyTorch, ONNX and ai-edge-litert; `trainer.py` does the same for what it trains.
"""

from pathlib import Path

import numpy as np
import onnx
from compact import compact
from numpy.typing import NDArray
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[3]
TARGET = ROOT / "segmentation" / "models" / "person.onnx"
TEACHER = ROOT.parent / "shared" / "people" / "teachers" / "deeplab-mnv2-pascal-513-int8.tflite"
CLASSES, BACKGROUND, PERSON = 21, 0, 15  # the teacher's, and two of them
VETO = 4.0
STRIDE = 16  # of the teacher's last maps


def put_veto(made: onnx.ModelProto, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    """Changes the graph. `weight` (21, 256, 1, 1) and `bias` (21,) are those of the teacher's classes."""
    nodes = list(made.graph.node)
    known = next(node for node in nodes if node.op_type == "Concat").input[0]  # by the teacher, of each place
    after = 1 + next(i for i, node in enumerate(nodes) if known in node.output)
    *_, enlarged, probability = nodes
    assert (enlarged.op_type, probability.op_type) == ("Resize", "Sigmoid")
    taken = np.full((1, CLASSES, 1, 1), -VETO, np.float32)
    taken[0, [BACKGROUND, PERSON]] = 0
    constants = {
        "classes.weight": weight, "classes.bias": bias, "veto.weight": taken,
        "veto.scales": np.array([1, 1, STRIDE, STRIDE], np.float32),
    }  # fmt: skip
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    veto = [
        helper.make_node("Conv", [known, "classes.weight", "classes.bias"], ["classes"], "/classes/Conv"),
        helper.make_node("Softmax", ["classes"], ["named"], "/named/Softmax", axis=1),
        helper.make_node("Conv", ["named", "veto.weight"], ["vetoed"], "/vetoed/Conv"),
        # Of the only channel: see `Network.decoded` in network.py.
        helper.make_node("ReduceMean", ["vetoed"], ["mean"], "/mean/ReduceMean", axes=[1], keepdims=1),
        helper.make_node("Resize", ["mean", "", "veto.scales"], ["veto"], "/veto/Resize"),
    ]
    veto[-1].attribute.extend(enlarged.attribute)
    both = helper.make_node("Add", [enlarged.output[0], "veto"], ["logits"], "/logits/Add")
    probability.input[0] = "logits"
    del made.graph.node[:]
    # The decoder's convolutions stay the last ones: the trainer reads them from the end.
    made.graph.node.extend([*nodes[:after], *veto, *nodes[after:-1], both, probability])
    compact(made)


def main() -> None:
    from network import teacher_weights  # imports PyTorch

    graph = onnx.load(TARGET)
    if graph.graph.node[-2].op_type == "Add":
        raise SystemExit(f"{TARGET}: it has the veto")
    put_veto(graph, *teacher_weights(TEACHER)[-1])
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, TARGET)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
