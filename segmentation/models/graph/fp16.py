"""Converts a graph to FP16, and compares its masks with those of FP32 on real pictures.

TensorRT 11 builds the precision that the graph states, so the graph has to be in FP16. ONNX Runtime's converter keeps
Resize's scales in FP32 and leaves named nodes alone.

ONNX Runtime computes FP16 graphs in FP32 on most CPUs, so running the converted graph would hide an overflow. Instead
the FP32 graph is run with all values that FP16 would hold rounded to FP16 and back. GPUs do the same: they multiply
FP16 and add up in FP32.
"""

import logging
from collections import deque
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.transformers.float16 import ALWAYS_FLOAT_INPUTS, DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from segmentation.errors import EngineError, one_line
from segmentation.models.graph.comparison import MIN_IOU, Comparison, compare
from segmentation.models.graph.onnx_graph import exact_session, in_order, session_of
from segmentation.models.model import Model
from segmentation.models.scores import probabilities

log = logging.getLogger(__name__)

MAX_VALUE = 65504 / 4  # a quarter of FP16's range, because other frames have larger values
_DEPARTURE = 0.1  # of a node's largest value; nodes of sound networks stay below a hundredth
_BLOCKED = frozenset(DEFAULT_OP_BLOCK_LIST)  # operators that the converter leaves in FP32


def to_fp16(
    graph: onnx.ModelProto, model: Model, pictures: NDArray[np.float32], smaller: onnx.ModelProto | None = None
) -> tuple[onnx.ModelProto, Comparison]:
    """Returns the graph in FP16, with its input and output as they were, and the comparison on `pictures`.

    `pictures` (N, 3, H, W) float32 are inputs of the network. Nodes whose values come near FP16's limit, or whose
    results depart in FP16, stay in FP32 with a warning. `smaller` is the same network for a smaller batch. If it has
    the same nodes, it is the one that is run: all values of a large batch take gigabytes.

    Raises `EngineError` if the masks do not agree.
    """
    whole = graph = _named(graph)
    if smaller is not None and _nodes(smaller := _named(smaller)) == _nodes(whole):
        graph = smaller
    kept = _too_large(graph, model, pictures)
    if kept:
        text = "%s: %d nodes, the first is %s, have values near FP16's limit or above it, and stay in FP32"
        log.warning(text, model.name, len(kept), kept[0])
    expected = masks(session_of(graph), model, pictures)
    if not (expected > 0.5).any():
        log.warning("%s: keeps nothing in the pictures that FP16 is compared on; give others with --frames", model.name)
    while True:
        actual = masks(exact_session(_rounded(graph, kept)), model, pictures)
        comparison = compare(expected, actual, tuple(kept))
        if comparison.iou >= MIN_IOU:
            break
        departed = _first_departure(graph, model, kept, _worst(pictures, expected, actual, model))
        if departed is None:
            raise EngineError(
                f"{model.path}: in FP16 its masks agree with FP32 only to an IoU of {comparison.iou:.4f} ({MIN_IOU} is "
                "needed) and no single node departs; build it with --precision fp32"
            )
        log.warning(
            "%s: node %s departs in FP16 (mask IoU %.4f) and stays in FP32", model.name, departed, comparison.iou
        )
        kept.append(departed)
    return in_fp16(whole, model, kept), comparison


def in_fp16(graph: onnx.ModelProto, model: Model, kept: list[str]) -> onnx.ModelProto:
    """Returns the graph in FP16, but for the nodes `kept`, without a comparison. Raises `EngineError`."""
    whole = _named(graph)
    try:
        converted = convert_float_to_float16(whole, keep_io_types=True, node_block_list=kept)
        _drop_equal_casts(converted)
        _restore_weights(converted, whole)
        OnnxModel(converted).topological_sort()  # the converter appends its casts
        onnx.checker.check_model(converted, full_check=True)
        session_of(converted)
    except Exception as exc:  # the converter's and ONNX Runtime's errors have no common base
        raise EngineError(
            f"{model.path}: can't be converted to FP16 ({one_line(exc)}); build it with --precision fp32"
        ) from exc
    result: onnx.ModelProto = converted
    return result


def compare_rounded(
    graph: onnx.ModelProto, model: Model, pictures: NDArray[np.float32], kept: tuple[str, ...]
) -> Comparison:
    """Compares FP16 with FP32 on other pictures (N, 3, H, W) than those by which the nodes `kept` were found."""
    graph = _named(graph)
    actual = masks(exact_session(_rounded(graph, list(kept))), model, pictures)
    return compare(masks(session_of(graph), model, pictures), actual, kept)


def masks(session: ort.InferenceSession, model: Model, pictures: NDArray[np.floating]) -> NDArray[np.float32]:
    """Returns masks (N, h, w) float32 in 0..1 for pictures (N, 3, H, W), run in batches of the graph's size.

    To a recurrent network they are frames, in this order.
    """
    size = session.get_inputs()[0].shape[0]
    batch = size if isinstance(size, int) else 1
    padded = np.concatenate([pictures, np.repeat(pictures[-1:], -len(pictures) % batch, axis=0)])
    batches = (padded[i : i + batch] for i in range(0, len(padded), batch))
    scores = [found[model.output_name] for found in in_order(session, model, batches)]
    return probabilities(np.concatenate(scores)[: len(pictures)].astype(np.float32), model)


def _named(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the graph with a name for every node and a type for every value."""
    graph = shape_inference.infer_shapes(graph)
    seen: set[str] = set()
    for number, node in enumerate(graph.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{number}"
        seen.add(node.name)
    return graph


def _nodes(graph: onnx.ModelProto) -> list[tuple[str, str]]:
    """Returns the names and operators of the nodes, in the graph's order."""
    return [(node.name, node.op_type) for node in graph.graph.node]


def _drop_equal_casts(graph: onnx.ModelProto) -> None:
    """Keeps one of equal casts: the converter adds one for each reader that stays in FP32, all with the same name."""
    seen: dict[str, onnx.NodeProto] = {}
    nodes = []
    for node in graph.graph.node:
        first = seen.setdefault(node.output[0], node)
        if first is node:
            nodes.append(node)
        else:
            assert first.op_type == node.op_type == "Cast" and list(first.input) == list(node.input)
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)


def _restore_weights(converted: onnx.ModelProto, graph: onnx.ModelProto) -> None:
    """Gives the nodes that stay in FP32 their weights of `graph` in place of casts.

    The converter rounds all weights to FP16, and casts them back for these nodes. PyTorch's convolutions take no bias
    that another node computes.
    """
    weights = {tensor.name: tensor for tensor in graph.graph.initializer if tensor.data_type == TensorProto.FLOAT}
    own = {node.name for node in graph.graph.node}  # the graph's casts, which may be to another type
    nodes = []
    for node in converted.graph.node:
        if node.op_type == "Cast" and node.name not in own and node.input[0] in weights:
            exact = onnx.TensorProto()
            exact.CopyFrom(weights[node.input[0]])
            exact.name = node.output[0]
            converted.graph.initializer.append(exact)
        else:
            nodes.append(node)
    del converted.graph.node[:]
    converted.graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    used = [tensor for tensor in converted.graph.initializer if tensor.name in read]
    del converted.graph.initializer[:]
    converted.graph.initializer.extend(used)


def _rounded(graph: onnx.ModelProto, kept: list[str], *, exposed: bool = False) -> onnx.ModelProto:
    """Returns the FP32 graph with casts that round all values that FP16 would hold to FP16.

    Those are the outputs of nodes that run in FP16 and the values that these nodes read: the input, weights, and
    outputs of the nodes `kept` in FP32. With `exposed`, every node's output becomes an output of the graph.
    """
    result = onnx.ModelProto()
    result.CopyFrom(graph)
    floats = _floats(graph)
    weights = {tensor.name: tensor for tensor in graph.graph.initializer if tensor.data_type == TensorProto.FLOAT}
    already: set[str] = set()  # outputs of FP16 nodes
    copies: dict[str, str] = {}  # rounded copies of other values that FP16 nodes read
    nodes: list[onnx.NodeProto] = []
    for original in graph.graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        if node.op_type in _BLOCKED or node.name in kept:
            nodes.append(node)
            continue
        for place, name in enumerate(node.input):
            if name not in floats or name in already or place in ALWAYS_FLOAT_INPUTS.get(node.op_type, ()):
                continue
            if name not in copies:
                copies[name] = f"{name}/rounded"
                if name in weights:
                    with np.errstate(over="ignore"):
                        value = numpy_helper.to_array(weights[name]).astype(np.float16).astype(np.float32)
                    result.graph.initializer.append(numpy_helper.from_array(value, copies[name]))
                else:
                    nodes += _casts(name, copies[name])
            node.input[place] = copies[name]
        made = [name for name in node.output if name in floats]
        node.output[:] = [f"{name}/exact" if name in made else name for name in node.output]
        nodes.append(node)
        for name in made:
            nodes += _casts(f"{name}/exact", name)
        already.update(made)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    if exposed:
        _expose(result, graph)
    return result


def _casts(source: str, target: str) -> Iterator[onnx.NodeProto]:
    """Yields the casts of a value to FP16 and back."""
    yield helper.make_node("Cast", [source], [f"{target}/fp16"], to=TensorProto.FLOAT16)
    yield helper.make_node("Cast", [f"{target}/fp16"], [target], to=TensorProto.FLOAT)


def _floats(graph: onnx.ModelProto) -> set[str]:
    """Returns the names of all FP32 values."""
    values = (*graph.graph.input, *graph.graph.value_info, *graph.graph.output)
    names = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    return names | {t.name for t in graph.graph.initializer if t.data_type == TensorProto.FLOAT}


def _expose(target: onnx.ModelProto, graph: onnx.ModelProto) -> None:
    """Makes the FP32 outputs of `graph`'s nodes outputs of `target`."""
    floats = _floats(graph)
    there = {value.name for value in target.graph.output}
    names = [n for node in graph.graph.node for n in node.output if n in floats and n not in there]
    target.graph.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names)


def _too_large(graph: onnx.ModelProto, model: Model, pictures: NDArray[np.float32]) -> list[str]:
    """Returns the nodes that read or return values above `MAX_VALUE` for any picture, in the graph's order."""
    exact = onnx.ModelProto()
    exact.CopyFrom(graph)
    _expose(exact, graph)
    weights = (t for t in graph.graph.initializer if t.data_type == TensorProto.FLOAT)
    large = {t.name for t in weights if np.abs(numpy_helper.to_array(t)).max(initial=0) > MAX_VALUE}
    for found in in_order(exact_session(exact), model, (_batch_of(graph, picture) for picture in pictures)):
        large.update(name for name, value in found.items() if (np.abs(value) > MAX_VALUE).any())
    nodes = (n for n in graph.graph.node if n.op_type not in _BLOCKED)
    return [str(n.name) for n in nodes if not large.isdisjoint((*n.input, *n.output))]


def _batch_of(graph: onnx.ModelProto, picture: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the picture (3, H, W) as an input of the graph, repeated to the size of its batch."""
    batch = graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value or 1
    return np.repeat(picture[None], batch, axis=0)


def _worst(
    pictures: NDArray[np.float32], expected: NDArray[np.float32], actual: NDArray[np.float32], model: Model
) -> NDArray[np.float32]:
    """Returns the picture (1, 3, H, W) whose masks differ in most places, behind those that lead to its states."""
    wrong = (np.isfinite(expected) & ~np.isfinite(actual)) | ((expected > 0.5) != (actual > 0.5))
    worst = int(wrong.sum(axis=(1, 2)).argmax())
    return pictures[0 if model.form.recurrent else worst : worst + 1]


def _first_departure(
    graph: onnx.ModelProto, model: Model, kept: list[str], pictures: NDArray[np.float32]
) -> str | None:
    """Returns the first node in FP16 whose output for the last of `pictures` departs; `None` if no node's does.

    `pictures` (N, 3, H, W) are run one by one. An output departs if a value is not finite that is in FP32, or differs
    by more than `_DEPARTURE` of the largest.
    """
    exact = onnx.ModelProto()
    exact.CopyFrom(graph)
    _expose(exact, graph)
    values: list[dict[str, NDArray[np.generic]]] = []
    for form in (exact, _rounded(graph, kept, exposed=True)):
        batches = (_batch_of(graph, picture) for picture in pictures)
        values += deque(in_order(exact_session(form), model, batches), maxlen=1)
    expected, actual = values
    for node in graph.graph.node:
        if node.op_type in _BLOCKED or node.name in kept:
            continue
        for name in node.output:
            if name not in expected or not expected[name].size:
                continue
            known = np.isfinite(expected[name])
            wanted, got = expected[name][known], actual[name][known]
            if not np.isfinite(got).all():
                return str(node.name)
            if np.abs(got - wanted).max(initial=0) > _DEPARTURE * np.abs(wanted).max(initial=0):
                return str(node.name)
    return None
