"""Adds the conversions of `tensor_form.py` to a network's graph, as nodes.

Engines and PyTorch then take (N, 3, H, W) and return (N, C, h, w) in floating point, whatever the network.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from segmentation.models.model import Model
from segmentation.models.tensor_form import Form


def with_pipelines_tensors(graph: onnx.ModelProto, model: Model) -> onnx.ModelProto:
    """Returns the graph with its input and output in the pipeline's form, under their names.

    `graph` has no outputs but the model's, and behind it those of its states. The picture becomes the first input.
    """
    form = model.form
    if form.extras:
        _settle(graph, model)
    if form.input_last or form.bytes:
        _lead_in(graph, model)
    if form.output_last or form.output_flat or form.classes:
        _lead_out(graph, model.output_name, form)
    return graph


def _settle(graph: onnx.ModelProto, model: Model) -> None:
    """Replaces inputs of constant value by constants, and puts the picture before the states."""
    constants = {extra.name: extra.array for extra in model.form.extras if not extra.source}
    rest = [value for value in graph.graph.input if value.name not in constants]
    del graph.graph.input[:]
    graph.graph.input.extend(sorted(rest, key=lambda value: value.name != model.input_name))
    graph.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())


def _lead_in(graph: onnx.ModelProto, model: Model) -> None:
    """Adds nodes that convert the pipeline's pictures to the graph's input."""
    name, inner = model.input_name, f"{model.input_name}/own"
    for node in graph.graph.node:
        _rename(node, name, inner)
    nodes, last = [], name
    if model.form.bytes:
        one_half = numpy_helper.from_array(np.array(0.5, model.dtype), f"{name}/one_half")
        graph.graph.initializer.append(one_half)
        nodes = [
            helper.make_node("Add", [name, one_half.name], [f"{name}/raised"]),
            helper.make_node("Floor", [f"{name}/raised"], [f"{name}/whole"]),
        ]
        last = f"{name}/whole"
    if model.form.input_last:
        nodes.append(helper.make_node("Transpose", [last], [f"{name}/last"], perm=[0, 2, 3, 1]))
        last = f"{name}/last"
    kind = TensorProto.FLOAT16 if model.dtype is np.float16 else TensorProto.FLOAT
    if model.form.bytes and _only_cast_to(graph, inner, kind):  # spares a cast to bytes, which engines lack
        for node in graph.graph.node:
            if inner in node.input:
                node.op_type = "Identity"
                del node.attribute[:]
        nodes.append(helper.make_node("Identity", [last], [inner]))
    elif model.form.bytes:
        nodes.append(helper.make_node("Cast", [last], [inner], to=TensorProto.UINT8))
    else:
        nodes[-1].output[0] = inner
    _put(graph, nodes, 0)
    graph.graph.input[0].CopyFrom(helper.make_tensor_value_info(name, kind, ["N", 3, "H", "W"]))


def _only_cast_to(graph: onnx.ModelProto, name: str, kind: int) -> bool:
    """Returns whether all readers of a value are casts to the type `kind`."""
    readers = [node for node in graph.graph.node if name in node.input]
    return all(node.op_type == "Cast" and node.attribute[0].i == kind for node in readers)


def _lead_out(graph: onnx.ModelProto, name: str, form: Form) -> None:
    """Adds nodes that convert the graph's output to the pipeline's scores."""
    inner = f"{name}/own"
    for node in graph.graph.node:
        _rename(node, name, inner)
        node.output[:] = [inner if output == name else output for output in node.output]
    nodes, last = [], inner
    if form.classes:  # INT64 is a type that all operators below take
        nodes.append(helper.make_node("Cast", [last], [f"{name}/numbers"], to=TensorProto.INT64))
        last = f"{name}/numbers"
    if form.output_flat:
        nodes.append(_unsqueeze(graph, last, f"{name}/channel"))
        last = f"{name}/channel"
    elif form.output_last:
        nodes.append(helper.make_node("Transpose", [last], [f"{name}/first"], perm=[0, 3, 1, 2]))
        last = f"{name}/first"
    kind = graph.graph.output[0].type.tensor_type.elem_type
    if form.classes:
        numbers = np.arange(form.classes, dtype=np.int64).reshape(1, -1, 1, 1)
        graph.graph.initializer.append(numpy_helper.from_array(numbers, f"{name}/classes"))
        nodes.append(helper.make_node("Equal", [last, f"{name}/classes"], [f"{name}/equal"]))
        nodes.append(helper.make_node("Cast", [f"{name}/equal"], [name], to=TensorProto.FLOAT))
        kind = TensorProto.FLOAT
    nodes[-1].output[0] = name
    _put(graph, nodes, len(graph.graph.node))
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, kind, ["N", "C", "h", "w"]))


def _unsqueeze(graph: onnx.ModelProto, source: str, target: str) -> onnx.NodeProto:
    """Returns a node that adds an axis for channels. From opset 13 on the axis is an input of the operator."""
    opset = next(o.version for o in graph.opset_import if o.domain in ("", "ai.onnx"))
    if opset < 13:
        return helper.make_node("Unsqueeze", [source], [target], axes=[1])
    axes = numpy_helper.from_array(np.array([1], np.int64), f"{target}/axes")
    graph.graph.initializer.append(axes)
    return helper.make_node("Unsqueeze", [source, axes.name], [target])


def _rename(node: onnx.NodeProto, name: str, other: str) -> None:
    """Renames a value that a node reads, in the bodies of If and Loop too."""
    node.input[:] = [other if value == name else value for value in node.input]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                _rename(inner, name, other)


def _put(graph: onnx.ModelProto, nodes: list[onnx.NodeProto], place: int) -> None:
    """Inserts nodes before the node number `place`."""
    before = list(graph.graph.node)
    del graph.graph.node[:]
    graph.graph.node.extend([*before[:place], *nodes, *before[place:]])
