"""Makes `person-best.onnx` of `person-hq.onnx`: the same weights, for the picture and its mirror image.

    python tools/lab/training/best.py

Each node that depends on the picture is there twice, once for the mirrored one, up to the logits. The probability is
that of their mean.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

MODELS = Path(__file__).resolve().parents[3] / "segmentation" / "models"
SOURCE, TARGET = MODELS / "person-hq.onnx", MODELS / "person-best.onnx"
TWIN = "/mirrored"  # ends the names of what sees the mirrored picture
_FLIP = {"first": -1, "last": -(2**31), "axis": 3, "step": -1}  # of Slice: each row from its end to its begin


def best(source: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the graph of both; `source` is left as it is."""
    made = onnx.ModelProto()
    made.CopyFrom(source)
    graph = made.graph
    nodes = list(graph.node)
    probability = nodes.pop()
    assert probability.op_type == "Sigmoid"
    graph.initializer.extend(numpy_helper.from_array(np.array([value]), name) for name, value in _FLIP.items())
    picture, logits = graph.input[0].name, probability.input[0]
    twins, seen = [_mirror(picture, picture + TWIN)], {picture}
    for node in nodes:
        if seen.intersection(node.input):
            twins.append(_twin(node, seen))
            seen.update(node.output)
    mean = [
        _mirror(logits + TWIN, "turned"),
        helper.make_node("Concat", [logits, "turned"], ["both"], "/both/Concat", axis=1),
        helper.make_node("ReduceMean", ["both"], ["mean"], "/mean/ReduceMean", axes=[1], keepdims=1),
    ]
    probability.input[0] = "mean"
    del graph.node[:]
    graph.node.extend([*nodes, *twins, *mean, probability])
    meaning = {entry.key: entry.value for entry in made.metadata_props}
    meaning["description"] = meaning["description"].replace(SOURCE.stem, TARGET.stem)
    helper.set_model_props(made, meaning)
    return made


def _twin(node: onnx.NodeProto, seen: set[str]) -> onnx.NodeProto:
    """Returns the node that does the same with the mirrored values of those in `seen`."""
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    twin.name += TWIN
    twin.input[:] = [name + TWIN if name in seen else name for name in node.input]
    twin.output[:] = [name + TWIN for name in node.output]
    return twin


def _mirror(source: str, target: str) -> onnx.NodeProto:
    return helper.make_node("Slice", [source, *_FLIP], [target], f"/{target}/Slice")


def main() -> None:
    graph = best(onnx.load(SOURCE))
    onnx.checker.check_model(graph, full_check=True)
    onnx.save(graph, TARGET)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
