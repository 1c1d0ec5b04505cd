"""Stores weights that are multiples of a step, as those of a quantized teacher, in a byte each.

The file then has a Cast, sometimes an Add, and a Mul before such a convolution: constants, which ONNX Runtime computes
once when it loads the file. The numbers stay the same to the bit.
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

_LEAST = 1024  # weights of a layer that is worth it
_LEVELS = 256


def compact(graph: onnx.ModelProto) -> int:
    """Changes `graph`. Returns how many of its constants are stored in bytes now."""
    constants = {tensor.name: tensor for tensor in graph.graph.initializer}
    used = [node.input[1] for node in graph.graph.node if node.op_type == "Conv" and node.input[1] in constants]
    nodes: list[onnx.NodeProto] = []
    changed = 0
    for name in dict.fromkeys(used):
        found = steps(numpy_helper.to_array(constants[name]))
        if found is None:
            continue
        changed += 1
        levels, lowest, step = found
        parts = {f"{name}.levels": levels, f"{name}.lowest": lowest, f"{name}.step": step}
        made = {
            "Cast": ([f"{name}.levels"], f"{name}.cast"),
            "Add": ([f"{name}.cast", f"{name}.lowest"], f"{name}.number"),
            "Mul": ([f"{name}.number", f"{name}.step"], name),
        }
        for operator, (inputs, output) in made.items():
            to = {"to": TensorProto.FLOAT} if operator == "Cast" else {}
            nodes.append(helper.make_node(operator, inputs, [output], name=output + ".made", **to))
        graph.graph.initializer.remove(constants[name])
        graph.graph.initializer.extend(numpy_helper.from_array(value, part) for part, value in parts.items())
    for place, node in enumerate(nodes):
        graph.graph.node.insert(place, node)
    return changed


def steps(weights: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]] | None:
    """Returns bytes, an offset and a step with `(bytes + offset) * step == weights`, or `None` if there are none."""
    values = np.unique(weights)
    if weights.size < _LEAST or not 1 < len(values) <= _LEVELS:
        return None
    near = np.diff(values.astype(np.float64)).min()
    numbers = np.round(values / near)
    largest = np.abs(numbers).argmax()
    near = np.float32(values[largest] / numbers[largest])
    for step in (near, *(np.nextafter(near, np.float32(to)) for to in (-np.inf, np.inf))):
        counts = np.round(weights / step)
        lowest = counts.min()
        levels = (counts - lowest).astype(np.uint8)
        offset, step = np.float32(lowest), np.float32(step)
        if counts.max() - lowest < _LEVELS and np.array_equal((levels.astype(np.float32) + offset) * step, weights):
            return levels, np.array(offset), np.array(step)
    return None
