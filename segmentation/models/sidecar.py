"""The JSON beside an engine: what the plan is, where it is from, and what its numbers mean.

A plan is executable code: deserialising one runs what is in it. So a plan is only handed out if the SHA-256 in its
sidecar is its own; nothing that this program did not build, or was not told to trust, is loaded.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from segmentation.atomic_file import write_atomically
from segmentation.errors import EngineError

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """Everything about one engine. Shapes have -1 where the batch is dynamic."""

    engine_format: int  # of this file
    plan_sha256: str
    plan_bytes: int
    fingerprint: str
    ingredients: dict[str, Any]  # what the fingerprint was computed of
    variant: str  # "tensorrt" or "tensorrt_rtx"
    variant_version: str
    input: dict[str, Any]  # name, dtype, shape
    output: dict[str, Any]
    batch: list[int]  # least, best, largest
    # What the numbers mean, under the names that the .json beside an ONNX has.
    labels: list[str]
    mean: list[float]
    std: list[float]
    channel_order: str
    activation: str
    precision: str  # of the graph: "fp16", "fp32", "quantized", or "unknown" for a plan that is only trusted
    fp16: dict[str, Any] | None  # masks against FP32 on real pictures
    checked: str  # what was done with the plan after it was built
    build_seconds: float
    versions: dict[str, str]


def sidecar_of(path: Path) -> Path:
    """Where the sidecar of an engine lies."""
    return path.with_suffix(".json")


def digest(data: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def load_plan(path: Path) -> tuple[bytes, Sidecar]:
    """An engine and its sidecar, verified against each other. Raises `EngineError` with the reason for a refusal.

    The bytes that were hashed are the bytes that are returned, so nobody can change the file in between.
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
    """The sidecar of the engine at `path`. Raises `EngineError`."""
    beside = sidecar_of(path)
    if not beside.is_file():
        raise EngineError(
            f"{path}: is refused: {beside.name} is not beside it, so nothing says who built this plan, and a plan "
            f"can run any code; build it with segmentation-build, or see its --trust"
        )
    try:
        content = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise EngineError(f"{beside}: cannot be read as JSON; build the engine again with segmentation-build") from exc
    if not is_sidecar(content):
        raise EngineError(f"{beside}: is not the sidecar of an engine; build the engine again with segmentation-build")
    if content["engine_format"] != FORMAT:
        raise EngineError(
            f"{beside}: has the format {content['engine_format']}, this version reads {FORMAT}; build the engine again"
        )
    return Sidecar(**content)


def is_sidecar(content: Any) -> bool:
    """Whether a JSON value has exactly a sidecar's keys."""
    return isinstance(content, dict) and content.keys() == {field.name for field in fields(Sidecar)}


def write_engine(path: Path, plan: bytes, sidecar: Sidecar) -> None:
    """Writes both files, each complete or not at all; between the two, the plan is one that is refused.

    Raises `EngineError` where there is no space or no permission, and leaves no part behind.
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
