"""Reads and checks the words of a file about its network: the same limits as for the options of these names."""

import json
import math
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from segmentation.errors import ConfigError, ModelError, one_line
from segmentation.models.detection import PASSES
from segmentation.options.config import Config
from segmentation.options.keywords import Options
from segmentation.options.model_types import Meaning

KEYS = (
    *("labels", "mean", "std", "channel_order", "activation", "task"),  # options of the same names check these
    *("input_size", "model_output", "model_inputs"),
    *("fit", "boxes", "score_threshold", "nms", "passes"),
)
_CHOICES = {
    "fit": ("squash", "letterbox"),
    "boxes": ("xyxy", "cxcywh", "xyxy-pixels", "cxcywh-pixels"),
}
_MOST_BYTES = 16 << 20  # of a .json; that of an engine has some kilobytes
_MOST_LABELS = 4096  # the largest data sets of segmentation have fewer; a layer of masks is made for each
_LONGEST_LABEL = _LONGEST_NAME = 200
_MOST_SIDE, _MOST_BATCH = 8192, 1024  # pixels as for --input-size, pictures


def parse(text: str) -> object:
    """Returns the value of a JSON text. Raises `ValueError`, for deeply nested values too."""
    try:
        value: object = json.loads(text)
        return value
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


def load_json(path: Path) -> object:
    """Returns the value in a .json file. Raises `ValueError`, and `OSError` if the file can't be read."""
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    return parse(path.read_text(encoding="utf-8-sig"))


def checked(stated: Mapping[str, object], path: Path) -> Meaning:
    """Returns the values under `KEYS` that the file at `path` states. Raises `ModelError` for one that can't be."""
    meaning = {key: stated[key] for key in KEYS if key in stated}
    for key in KEYS[:6]:
        if key in meaning:
            meaning[key] = _as_option(key, meaning[key], path)
    for key, choices in _CHOICES.items():
        if meaning.get(key, choices[0]) not in choices:
            raise ModelError(f"{path}: its {key} is {reprlib.repr(meaning[key])}; choose from {', '.join(choices)}")
    if "passes" in meaning:
        meaning["passes"] = _passes(meaning["passes"], path)
    for key in ("score_threshold", "nms"):
        if key in meaning:
            meaning[key] = _share(key, meaning[key], path)
    if not isinstance(meaning.get("model_output", 0), str | int) or isinstance(meaning.get("model_output"), bool):
        said = reprlib.repr(meaning["model_output"])
        raise ModelError(f"{path}: its model_output is {said}; a name or a number is needed")
    if len(str(meaning.get("model_output", ""))) > _LONGEST_NAME:
        raise ModelError(f"{path}: its model_output has more than {_LONGEST_NAME} characters")
    if "model_inputs" in meaning:
        meaning["model_inputs"] = _numbers(meaning["model_inputs"], path)
    return meaning


def check_input(name: str, sides: Mapping[str, int | None], path: Path) -> None:
    """Raises `ModelError` if a fixed side of the picture's input is larger than memory should be taken for."""
    for side, most in (("batch", _MOST_BATCH), ("height", _MOST_SIDE), ("width", _MOST_SIDE)):
        if (sides[side] or 0) > most:
            raise ModelError(f"{path}: its input {name} has a {side} of {sides[side]}; at most {most} is possible")


def _as_option(key: str, value: object, path: Path) -> object:
    """Returns `value` as `Config` would have it. Raises `ModelError`."""
    try:
        if value is None:
            raise ConfigError(f"{key} is null: leave it out, or give a value")
        if key in ("channel_order", "activation", "task") and isinstance(value, str):
            value = value.lower()
        if key == "labels" and isinstance(value, list) and len(value) > _MOST_LABELS:
            raise ConfigError(f"labels are {len(value)}: at most {_MOST_LABELS} are possible")
        accepted: object = getattr(Config(**cast(Options, {key: value})), key)
    except ConfigError as exc:
        raise ModelError(f"{path}: its {one_line(exc)}") from exc
    if key == "labels" and any(len(label) > _LONGEST_LABEL for label in cast(tuple[str, ...], accepted)):
        raise ModelError(f"{path}: has a label of more than {_LONGEST_LABEL} characters")
    return accepted


def _passes(value: object, path: Path) -> tuple[str, ...]:
    """Returns the names of further looks at a picture. Raises `ModelError`."""
    if not isinstance(value, list | tuple) or len(set(map(str, value))) != len(value) or not set(value) <= {*PASSES}:
        raise ModelError(f"{path}: its passes are {reprlib.repr(value)}; a list of {', '.join(PASSES)} is needed")
    return tuple(value)


def _share(key: str, value: object, path: Path) -> float | None:
    """Returns a number in 0..1, or `None` for an `nms` of null: the network does it. Raises `ModelError`."""
    if value is None and key == "nms":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ModelError(f"{path}: its {key} is {reprlib.repr(value)}; a number from 0 to 1 is needed")
    return float(value)


def _numbers(said: object, path: Path) -> dict[str, tuple[float, ...]]:
    """Returns the values of inputs besides the picture, by name. Raises `ModelError`."""
    try:
        if not isinstance(said, Mapping):
            raise TypeError
        values = {
            str(name): tuple(float(v) for v in (value if isinstance(value, list | tuple) else [value]))
            for name, value in said.items()
        }
        if any(len(name) > _LONGEST_NAME for name in values) or not all(
            math.isfinite(v) for value in values.values() for v in value
        ):
            raise ValueError
    except (TypeError, ValueError, OverflowError) as exc:
        text = reprlib.repr(said)
        raise ModelError(f"{path}: its model_inputs are {text}; an object of names and numbers is needed") from exc
    return values
