"""Prepares an ONNX graph for an engine: checks it, drops outputs, sets the shape and folds constants."""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper, version_converter

from segmentation.errors import EngineError, one_line
from segmentation.models.graph.onnx_adapter import with_pipelines_tensors
from segmentation.models.model import Model
from segmentation.models.tensor_form import FLOATS, Extra, extra_of

log = logging.getLogger(__name__)

BATCH = "N"  # the name of a batch dimension that is dynamic
_QUANTIZED = {"QuantizeLinear", "DequantizeLinear"}
_STANDARD = {"", "ai.onnx"}
_TOLERANCE = 1e-3  # of the largest value: larger batches add up sums in another order


def prepare(model: Model, batch: int | None, *, check: bool = True) -> onnx.ModelProto:
    """Reads `model`'s file and returns its graph, in its own precision, ready to be converted or built.

    `batch` is a fixed batch size; `None` makes it dynamic. The graph has the input (batch, 3, height, width) and the
    model's output alone, of one that finds single things the outputs that are read, in that order. A recurrent one has
    its states as well, of fixed shapes, and a batch of 1. Without `check` the batch is changed without a run that shows
    that the network bears it. Raises `EngineError`.
    """
    graph = _load(model)
    log.info("load: %s, %d nodes, %s", model.path, len(graph.graph.node), _opset(graph))
    moved = _move_initializers(graph)
    log.info("initializers: %d moved out of the inputs", moved)
    outputs = (model.output_name,) if model.detection is None else model.detection.outputs
    _keep_outputs(graph, (*outputs, *(extra.source for extra in model.form.extras if extra.source)))
    graph = with_pipelines_tensors(graph, model)
    graph = _with_states(graph, model, batch) if model.form.recurrent else _with_shape(graph, model, batch, check)
    log.info("batch: %s", "dynamic" if batch is None else f"fixed at {batch}")
    if is_quantized(graph):
        # Folding would turn the quantized weights into plain ones, and the builder needs the quantized ones.
        log.info("fold: only its %d biases, because it has Q/DQ nodes", _fold_biases(graph))
        return graph
    before = len(graph.graph.node)
    graph = _fold(graph, model.path)
    log.info("fold: %d of %d nodes are left", len(graph.graph.node), before)
    return graph


def at_least_opset(graph: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Returns the graph in a later version of ONNX, as other converters need, or as it is where that can't be done."""
    own = next(o.version for o in graph.opset_import if o.domain in _STANDARD)
    if own >= version:
        return graph
    try:
        return version_converter.convert_version(graph, version)
    except RuntimeError as exc:
        log.info("opset: %d is kept (%s)", own, one_line(exc))
        return graph


def for_one_picture(model: Model) -> onnx.ModelProto | None:
    """Returns the graph of `prepare` for a batch of 1; `None` if the model's batch can't be changed to that."""
    try:
        return prepare(model, 1)
    except EngineError:
        return None


def is_quantized(graph: onnx.ModelProto) -> bool:
    """Returns whether Q/DQ nodes in the graph state INT8 or FP8. The precision of such a graph is not changed."""
    return any(node.op_type in _QUANTIZED for node in graph.graph.node)


def session_of(graph: onnx.ModelProto, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    """Opens an ONNX Runtime session on the CPU for a graph in memory. Raises ONNX Runtime's errors."""
    options = options or ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=False
    )


def exact_session(graph: onnx.ModelProto) -> ort.InferenceSession:
    """Opens a session without optimization, which keeps pairs of casts and names the graph's own nodes in errors."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return session_of(graph, options)


def run(session: ort.InferenceSession, tensor: NDArray[np.generic]) -> list[NDArray[np.generic]]:
    """Returns all outputs for the value of the only input."""
    return [np.asarray(value) for value in session.run(None, {session.get_inputs()[0].name: tensor})]


def in_order(
    session: ort.InferenceSession, model: Model, batches: Iterable[NDArray[np.generic]]
) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yields all outputs by name for each batch of pictures (N, 3, H, W). States go from one batch to the next."""
    states = states_in(session, model)
    names = [node.name for node in session.get_outputs()]
    carried = {state.name: state.array for state in states}
    for pictures in batches:
        found = dict(zip(names, session.run(None, {model.input_name: pictures, **carried}), strict=True))
        carried = {state.name: found[state.source] for state in states}
        yield found


def states_in(session: ort.InferenceSession, model: Model) -> tuple[Extra, ...]:
    """Returns the states of a model among a session's inputs, of the shapes that these have; a dynamic side is 1."""
    stated = {extra.name: extra for extra in model.form.extras if extra.source}
    nodes = (node for node in session.get_inputs() if node.name in stated)
    return tuple(extra_of(node, stated[node.name].values, stated[node.name].source) for node in nodes)


def _load(model: Model) -> onnx.ModelProto:
    """Reads and checks the file. Raises `EngineError`."""
    try:
        graph = onnx.load(model.path, load_external_data=False)
    except Exception as exc:  # protobuf's errors have no common base
        raise EngineError(f"{model.path}: is not a valid ONNX model ({one_line(exc)})") from exc
    for tensor in graph.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = next((e.value for e in tensor.external_data if e.key == "location"), "another file")
            raise EngineError(
                f"{model.path}: keeps the weights {tensor.name} in {where}; save it as one file, with onnx.save"
            )
    try:
        onnx.checker.check_model(graph)
    except onnx.checker.ValidationError as exc:
        raise EngineError(f"{model.path}: is not a valid ONNX model ({one_line(exc)})") from exc
    return graph


def _opset(graph: onnx.ModelProto) -> str:
    """Names the graph's opsets, for the log."""
    return ", ".join(f"opset {o.domain or 'ai.onnx'} {o.version}" for o in graph.opset_import)


def _move_initializers(graph: onnx.ModelProto) -> int:
    """Takes weights out of the inputs and returns their number. Before IR 4 exporters list them there, unfoldable."""
    weights = {tensor.name for tensor in graph.graph.initializer}
    inputs = [value for value in graph.graph.input if value.name not in weights]
    moved = len(graph.graph.input) - len(inputs)
    del graph.graph.input[:]
    graph.graph.input.extend(inputs)
    graph.ir_version = max(graph.ir_version, 4)
    return moved


def _keep_outputs(graph: onnx.ModelProto, names: Sequence[str]) -> None:
    """Drops the other outputs, and the nodes that only these need."""
    by_name = {value.name: value for value in graph.graph.output}
    del graph.graph.output[:]
    graph.graph.output.extend(by_name[name] for name in names)
    needed, nodes = set(names), []
    for node in reversed(graph.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(_read(node))
            nodes.append(node)
    del graph.graph.node[:]
    graph.graph.node.extend(reversed(nodes))


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the names that a node reads, those in the bodies of If and Loop too."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from _read(inner)
            yield from (value.name for value in body.output)


def _with_shape(graph: onnx.ModelProto, model: Model, batch: int | None, check: bool) -> onnx.ModelProto:
    """Returns the graph with its batch, height and width set; `check` tests it by running it. Raises `EngineError`."""
    changed = onnx.ModelProto()
    changed.CopyFrom(graph)
    sizes: list[int | str] = [BATCH if batch is None else batch, 3, model.height, model.width]
    _set_dimensions(changed.graph.input[0], sizes)
    for output in changed.graph.output:
        _set_dimensions(output, sizes[:1])
    del changed.graph.value_info[:]  # they would still state the old sizes
    if not check:
        return changed
    wanted = "dynamic" if batch is None else f"{batch}"
    way_out = f"build it with --batch {model.batch or 1}, or export it with a dynamic batch"
    pictures = np.random.default_rng(0).random((batch or 3, 3, model.height, model.width), np.float32)
    pictures = pictures.astype(model.dtype)
    try:
        together = run(exact_session(changed), pictures)
        apart = _one_by_one(session_of(graph), pictures, model.batch or 1)
    except Exception as exc:  # ONNX Runtime's errors have no common base
        raise EngineError(f"{model.path}: its batch can't be made {wanted} ({one_line(exc)}); {way_out}") from exc
    if not all(map(_is_close, together, apart)):
        raise EngineError(f"{model.path}: its batch can't be made {wanted} (pictures change each other); {way_out}")
    return changed


def _with_states(graph: onnx.ModelProto, model: Model, batch: int | None) -> onnx.ModelProto:
    """Returns the graph of a recurrent network for one frame, with states as large as a frame leaves them.

    Files leave their sides open, and begin with states of one value, which are broadcast. Raises `EngineError`.
    """
    states = [extra for extra in model.form.extras if extra.source]
    named = ", ".join(state.name for state in states)
    if batch != 1:
        raise EngineError(f"{model.path}: carries states from frame to frame ({named}); build it with --batch 1")
    pictures = np.random.default_rng(0).random((3, 1, 3, model.height, model.width), np.float32).astype(model.dtype)
    changed = onnx.ModelProto()
    changed.CopyFrom(graph)
    del changed.graph.value_info[:]  # they would still state open sides
    try:
        apart = list(in_order(session_of(graph), model, pictures))
        shapes = {name: value.shape for name, value in apart[0].items()}
        shapes |= {model.input_name: pictures.shape[1:]} | {state.name: shapes[state.source] for state in states}
        for value in (*changed.graph.input, *changed.graph.output):
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shapes[value.name]))
        session = exact_session(changed)
        fixed = list(in_order(session, model, pictures))
    except Exception as exc:  # ONNX Runtime's errors have no common base
        raise EngineError(f"{model.path}: its states ({named}) can't have one shape ({one_line(exc)})") from exc
    if any(node.type not in FLOATS for node in session.get_inputs()):
        raise EngineError(f"{model.path}: its states ({named}) must be float or float16 for an engine")
    if not all(_is_close(one[name], other[name]) for one, other in zip(fixed, apart, strict=True) for name in one):
        raise EngineError(f"{model.path}: gives other masks where its states ({named}) begin in their full size")
    log.info("states: %s", ", ".join(f"{state.name} {list(shapes[state.name])}" for state in states))
    return changed


def _one_by_one(session: ort.InferenceSession, pictures: NDArray[np.floating], batch: int) -> list[NDArray[np.generic]]:
    """Returns the outputs for each picture alone, in a batch of `batch` copies."""
    parts = [run(session, np.repeat(picture[None], batch, axis=0)) for picture in pictures]
    return [np.concatenate([output[:1] for output in outputs]) for outputs in zip(*parts, strict=True)]


def _is_close(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    """Whether two outputs are alike. A network that returns NaN for a picture does so in any company."""
    if one.shape != other.shape:
        return False
    exact = other.astype(np.float32)
    tolerance = _TOLERANCE * max(1, np.abs(exact[np.isfinite(exact)]).max(initial=0))
    return np.allclose(one.astype(np.float32), exact, rtol=0, atol=tolerance, equal_nan=True)


def _fold_biases(graph: onnx.ModelProto) -> int:
    """Replaces biases of 32-bit integers, as ONNX Runtime's tool makes them, by floats; returns their number.

    No builder takes the quantized ones.
    """
    constants = {tensor.name: tensor for tensor in graph.graph.initializer}
    nodes, folded = [], 0
    for node in graph.graph.node:
        tensor = constants.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if tensor is None or tensor.data_type != onnx.TensorProto.INT32 or node.input[1] not in constants:
            nodes.append(node)
            continue
        scale = numpy_helper.to_array(constants[node.input[1]])  # one for all or one for each; the zero point is 0
        value = (numpy_helper.to_array(tensor) * scale).astype(scale.dtype)
        graph.graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        folded += 1
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    return folded


def _set_dimensions(value: onnx.ValueInfoProto, sizes: list[int | str]) -> None:
    """Sets the first dimensions of a value: a number is fixed, a name dynamic."""
    for dimension, size in zip(value.type.tensor_type.shape.dim, sizes, strict=False):
        dimension.Clear()
        if isinstance(size, int):
            dimension.dim_value = size
        else:
            dimension.dim_param = size


def _fold(graph: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Returns the graph with constants folded by ONNX Runtime, at the level that adds no operators of its own.

    Raises `EngineError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        try:
            session_of(graph, options)
            folded = onnx.load(options.optimized_model_filepath)
        except Exception as exc:  # ONNX Runtime's errors have no common base
            size = graph.ByteSize() / 1e6
            raise EngineError(
                f"{path}: its constants can't be folded in {folder}, {size:.1f} MB ({one_line(exc)}); make room, "
                "or set TMPDIR to another folder"
            ) from exc
    own = {node.domain for node in graph.graph.node}
    added = {node.domain for node in folded.graph.node} - own - _STANDARD
    assert not added, f"ONNX Runtime's basic optimization added operators of {added}"
    return folded
