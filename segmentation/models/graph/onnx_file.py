"""Reads an ONNX file's inputs and outputs, and the metadata in the file or beside it."""

import json
import math
import reprlib
from ast import literal_eval
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import onnxruntime as ort

from segmentation.errors import ModelError, did_you_mean, is_exhausted, one_line
from segmentation.models.metadata import KEYS, checked, load_json, parse
from segmentation.models.tensor_form import FLOATS, INTEGERS, Extra, extra_of, state_sources
from segmentation.options.model_types import Meaning

_TEXTS = ("channel_order", "activation", "model_output", "task", "fit", "boxes")
_YOLO_TASKS = {"segment": "yolo-seg", "detect": "yolo", "classify": "classifier"}
_MOST_VALUES = 1 << 26  # of an input besides the picture: 256 MiB of float32


def open_session(path: Path, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    """Opens an ONNX Runtime session on the CPU. Raises `ModelError`, and others where memory or threads are used up."""
    options = options or ort.SessionOptions()
    options.log_severity_level = 4  # warnings would go to stderr; errors are raised anyway
    # Threads that wait have to sleep: spinning threads would take the cores from other stages.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:  # with its fallback, ONNX Runtime would print an error to stdout and try once more
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"], enable_fallback=False)
    except Exception as exc:  # ONNX Runtime's exceptions have no other common base
        if is_exhausted(exc):
            raise
        raise ModelError(f"{path}: is not an ONNX model that ONNX Runtime can load ({one_line(exc)})") from exc


def described(session: ort.InferenceSession, path: Path) -> Meaning:
    """Returns the file's metadata under `KEYS`, and other keys of the .json beside it. Raises `ModelError`."""
    props = session.get_modelmeta().custom_metadata_map
    stated = {key: _value(key, text, path) for key, text in {**props, **_exported(props)}.items() if key in KEYS}
    return {**_sidecar(path), **checked(stated, path)}


def _exported(props: Mapping[str, str]) -> dict[str, str]:
    """Returns what YOLO's exports state under keys or values of their own, under ours."""
    ours = {"task": _YOLO_TASKS[props["task"]]} if props.get("task") in _YOLO_TASKS else {}
    if "labels" not in props and "names" in props:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            names = literal_eval(props["names"])  # such as {0: 'person', 1: 'bicycle'}
            if isinstance(names, dict) and list(names) == list(range(len(names))):
                ours["labels"] = json.dumps([str(name) for name in names.values()])
    return ours


def _value(key: str, text: str, path: Path) -> object:
    """Returns one value of the metadata. Raises `ModelError`."""
    if key in _TEXTS:
        return text
    try:
        return parse(text)
    except ValueError as exc:
        said = reprlib.repr(text)
        raise ModelError(f"{path}: its metadata {key} is {said}; a JSON value is needed, such as a list") from exc


def _sidecar(path: Path) -> Meaning:
    """Returns the content of the .json beside the file; empty without one. Raises `ModelError`."""
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return {}
    try:
        content = load_json(beside)
    except (OSError, ValueError) as exc:
        raise ModelError(f"{beside}: cannot be read as JSON ({one_line(exc)})") from exc
    if not isinstance(content, dict):
        raise ModelError(f"{beside}: a JSON object is needed, with keys such as labels, mean, std")
    return checked(content, beside)


def find_inputs(
    session: ort.InferenceSession, given: Mapping[str, Iterable[float]], path: Path
) -> tuple[ort.NodeArg, tuple[Extra, ...]]:
    """Returns the input that takes the picture, and the others: those `given` by name, and states.

    Raises `ModelError` where that is not certain, or an input is left over.
    """
    inputs = {node.name: node for node in session.get_inputs()}
    if unknown := [name for name in given if name not in inputs]:
        raise ModelError(f"{path}: has no input {unknown[0]}; its inputs are {', '.join(inputs)}")
    outputs = [node.name for node in session.get_outputs()]
    # With one input, there is nothing but the picture.
    sources = state_sources([name for name in inputs if name not in given], outputs) if len(inputs) > 1 else {}
    rest = [node for name, node in inputs.items() if name not in given and name not in sources]
    pictures = [node for node in rest if _may_be_picture(node)] if len(inputs) > 1 else rest
    if len(pictures) != 1:
        which = ", ".join(node.name for node in pictures) or "none of them"
        raise ModelError(
            f"{path}: has {len(inputs)} inputs ({', '.join(inputs)}), of which one must be the picture, and {which} "
            "may be it; give others with --model-input NAME=VALUE"
        )
    if left := [node.name for node in rest if node is not pictures[0]]:
        raise ModelError(
            f"{path}: nothing says what its inputs {', '.join(left)} hold; give them with --model-input NAME=VALUE"
        )
    return pictures[0], tuple(
        _extra(inputs[name], tuple(given.get(name, (0.0,))), sources.get(name, ""), path)
        for name in inputs
        if name in given or name in sources
    )


def _extra(node: ort.NodeArg, values: tuple[float, ...], source: str, path: Path) -> Extra:
    """Returns an input besides the picture. Raises `ModelError` if the values don't fit."""
    try:
        if math.prod(side for side in node.shape if isinstance(side, int) and side > 0) > _MOST_VALUES:
            raise ModelError(
                f"{path}: its input {node.name} is {node.shape}; at most {_MOST_VALUES} numbers are possible"
            )
        return extra_of(node, values, source)
    except (ValueError, KeyError, OverflowError) as exc:
        text = ",".join(f"{value:g}" for value in values[:8]) + (",..." if len(values) > 8 else "")
        raise ModelError(f"{path}: its input {node.name} is {node.type} {node.shape}, and can't be {text}") from exc


def _may_be_picture(node: ort.NodeArg) -> bool:
    """Returns whether an input has the type and shape of pictures."""
    shape = node.shape
    return len(shape) == 4 and 3 in (shape[1], shape[3]) and (node.type in FLOATS or node.type == "tensor(uint8)")


def takes_channels_last(source: ort.NodeArg, path: Path) -> bool:
    """Returns whether the picture is (N, H, W, 3), not (N, 3, H, W). Raises `ModelError` if it can be neither."""
    shape = source.shape
    if source.type not in FLOATS and source.type != "tensor(uint8)":
        raise ModelError(f"{path}: input {source.name} is {source.type}; float, float16 or uint8 is needed")
    if len(shape) == 4 and (shape[1] == 3 or not isinstance(shape[1], int)) and shape[3] != 3:
        return False
    if len(shape) == 4 and shape[1] == 3:
        return False
    if len(shape) == 4 and shape[3] == 3:
        return True
    raise ModelError(f"{path}: input {source.name} has shape {shape}; (N, 3, H, W) or (N, H, W, 3) is needed")


def find_output(
    session: ort.InferenceSession, wanted: object, extras: Iterable[Extra], path: Path
) -> tuple[ort.NodeArg, bool]:
    """Returns the output from which masks are made, and whether it is the file's first.

    That is the output `wanted` by name or number, else the first that can be one, with scores before class numbers:
    auxiliary outputs come last. Raises `ModelError` if there is none.
    """
    outputs = session.get_outputs()
    states = {extra.source for extra in extras}
    may_be = [node for node in outputs if node.name not in states and node.type in (*FLOATS, *INTEGERS)]
    if wanted is not None:
        named = [node for node in outputs if node.name == str(wanted)]
        if not named and isinstance(wanted, int) and -len(outputs) <= wanted < len(outputs):
            named = [outputs[wanted]]
        if not named:
            names = [node.name for node in outputs]
            proposal = did_you_mean(str(wanted), names)
            raise ModelError(f"{path}: has no output {wanted}; choose --model-output from {', '.join(names)}{proposal}")
        may_be = [node for node in may_be if node.name == named[0].name]
    forms = ((FLOATS, 4), (INTEGERS, 4), (INTEGERS, 3), (FLOATS, 3))
    for types, dimensions in forms:
        for node in may_be:
            if node.type in types and len(node.shape) == dimensions:
                return node, node.name == outputs[0].name
    shapes = ", ".join(f"{o.name} {o.shape}" for o in outputs)
    raise ModelError(
        f"{path}: is no segmentation model: scores (N, C, h, w) or class numbers (N, h, w) are needed, its outputs are "
        f"{shapes}; give --task if they are boxes"
    )
