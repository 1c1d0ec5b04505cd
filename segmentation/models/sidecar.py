"""The JSON beside an engine: a description of the plan, its origin and the meaning of its numbers.

A plan is executable code: deserializing a plan runs it. So a plan is returned only if the SHA-256 in its sidecar is its
own. Without that, a plan that this program neither built nor was given as trusted would be loaded.
"""

import hashlib
import json
import reprlib
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, TypedDict, TypeGuard, get_origin, get_type_hints

from segmentation.errors import EngineError
from segmentation.models.metadata import load_json
from segmentation.system.atomic_file import write_atomically

FORMAT = 3  # 1 had `flavour` where 2 has `variant`; 3 has `states`
_MOST_VALUES = 1 << 26  # of a state: memory is taken for them


class TensorSpec(TypedDict):
    """An engine's input or output."""

    name: str
    dtype: str  # NumPy's name
    shape: list[int]  # -1 where the batch is dynamic


class StateSpec(TensorSpec):
    """An input of an engine that takes for a frame the output of the same shape of the frame before, at first zeros."""

    source: str  # the output's name


class StatedMeaning(TypedDict):
    """The meaning of a model's numbers, under the keys that the .json beside an ONNX has."""

    labels: list[str]
    mean: list[float]
    std: list[float]
    channel_order: str
    activation: str


class Ingredients(TypedDict):
    """Everything that decides an engine. The fingerprint is computed of it, as JSON."""

    recipe: int
    onnx_sha256: str
    input_size: list[int]  # height, width
    output: str  # its name
    inputs: dict[str, list[float]]  # besides the picture, by name
    precision: str
    frames_sha256: str | None  # of the file that FP16 is compared on
    batch: list[int]  # least, best, largest
    variant: str
    variant_version: str
    gpu: str
    compute_capability: str
    options: dict[str, object]  # other fields of `EngineOptions`
    meaning: StatedMeaning
    keep: list[int] | None  # output channels of which masks are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """Everything about one engine. The names of the fields are the JSON's keys."""

    engine_format: int  # of this file
    plan_sha256: str
    plan_bytes: int
    fingerprint: str
    ingredients: Ingredients  # of the fingerprint
    variant: str  # "tensorrt" or "tensorrt_rtx"
    variant_version: str
    input: TensorSpec
    output: TensorSpec
    states: list[StateSpec]  # of a recurrent network
    batch: list[int]  # least, best, largest
    labels: list[str]  # these five are a `StatedMeaning`
    mean: list[float]
    std: list[float]
    channel_order: str
    activation: str
    precision: str  # of the graph: "fp16", "fp32", "quantized", or "unknown" for a plan that is only trusted
    fp16: dict[str, object] | None  # a `Comparison` of its masks with those of FP32
    checked: str  # a line on the test of the plan after it was built
    build_seconds: float
    versions: dict[str, str]  # by package


def sidecar_of(path: Path) -> Path:
    """Returns the path of an engine's sidecar."""
    return path.with_suffix(".json")


def digest(data: bytes) -> str:
    """Returns the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def load_plan(path: Path) -> tuple[bytes, Sidecar]:
    """Reads an engine and its sidecar, verified against each other. Raises `EngineError` with the reason for a refusal.

    The bytes that were hashed are the bytes that are returned, so a change of the file in between does not matter.
    """
    try:
        plan = path.read_bytes()
    except OSError as exc:
        raise EngineError(f"{path}: cannot be read ({exc.strerror})") from exc
    sidecar = read_sidecar(path)
    if digest(plan) != sidecar.plan_sha256:
        raise EngineError(
            f"{path}: is refused: its SHA-256 is not the one in {sidecar_of(path).name}, so it was changed or damaged; "
            "build it again with segmentation-build"
        )
    return plan, sidecar


def read_sidecar(path: Path) -> Sidecar:
    """Reads the sidecar of the engine at `path`. Raises `EngineError`."""
    beside = sidecar_of(path)
    if not beside.is_file():
        raise EngineError(
            f"{path}: is refused: {beside.name} is not beside it, so nothing says who built this plan, and a plan "
            f"can run any code; build it with segmentation-build, or see its --trust"
        )
    try:
        content = load_json(beside)
    except (OSError, ValueError) as exc:
        raise EngineError(f"{beside}: cannot be read as JSON; build the engine again with segmentation-build") from exc
    if is_sidecar(content) and content["engine_format"] != FORMAT:
        found = reprlib.repr(content["engine_format"])
        raise EngineError(f"{beside}: has the format {found}, this version reads {FORMAT}; build the engine again")
    if not is_sidecar(content) or not _is_whole(content):
        raise EngineError(f"{beside}: is not the sidecar of an engine; build the engine again with segmentation-build")
    return Sidecar(**content)


def is_sidecar(content: object) -> TypeGuard[dict[str, Any]]:
    """Returns whether a JSON value is a sidecar, of this format or another."""
    return isinstance(content, dict) and {"engine_format", "plan_sha256"} <= content.keys()


def _is_whole(content: dict[str, Any]) -> bool:
    """Returns whether a sidecar has the keys of this format, with values of their types."""
    kinds = {name: get_origin(kind) or kind for name, kind in get_type_hints(Sidecar).items()}
    kinds |= dict.fromkeys(("ingredients", "input", "output"), dict) | {
        "fp16": dict | None,
        "build_seconds": int | float,
    }
    if content.keys() != kinds.keys() or not all(isinstance(content[name], kind) for name, kind in kinds.items()):
        return False
    tensors = _is_tensor(content["input"]) and _is_tensor(content["output"])
    return tensors and _are_sizes(content["batch"], 3) and all(map(_is_state, content["states"]))


def _is_tensor(value: dict[str, Any]) -> bool:
    named = all(isinstance(value.get(key), str) for key in ("name", "dtype"))
    return named and value.keys() == TensorSpec.__annotations__.keys() and _are_sizes(value["shape"], 4)


def _is_state(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != get_type_hints(StateSpec).keys():
        return False
    shape, texts = value["shape"], (value["name"], value["dtype"], value["source"])
    if not all(isinstance(text, str) for text in texts):
        return False
    sized = isinstance(shape, list) and _are_sizes(shape, len(shape)) and min(shape, default=1) > 0
    return sized and prod(shape) <= _MOST_VALUES


def _are_sizes(value: object, count: int) -> bool:
    """Returns whether `value` is a list of so many sides, -1 for a dynamic one, that memory may be taken for."""
    return isinstance(value, list) and len(value) == count and all(type(n) is int and -1 <= n <= 8192 for n in value)


def write_engine(path: Path, plan: bytes, sidecar: Sidecar) -> None:
    """Writes both files, each complete or not at all. A plan without its own sidecar is refused.

    Raises `EngineError` where there is no space or no permission. No part of a file stays behind.
    """
    text = json.dumps(asdict(sidecar), indent=2) + "\n"
    for target, data in ((path, plan), (sidecar_of(path), text.encode())):
        try:
            write_atomically(target, data)
        except OSError as exc:
            raise EngineError(
                f"{target}: cannot be written ({exc.strerror}); {len(plan) / 1e6:.1f} MB are needed: make room, or "
                "choose another place with -o"
            ) from exc
