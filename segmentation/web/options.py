"""The options of requests as a command line and as a JSON schema."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Literal, Union, cast, get_args, get_origin

from segmentation.errors import ConfigError, one_line
from segmentation.options.config import Config
from segmentation.options.keywords import Options
from segmentation.options.outside import NAMES, NETWORKS, checked
from segmentation.options.table import Option, rows_of

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def parsed(text: str) -> Options:
    """Returns options that are written as JSON, none for an empty text. Raises `ConfigError`."""
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError) as exc:  # the former also of a number with thousands of digits
        raise ConfigError(f"options: are no JSON ({one_line(exc)})") from exc
    return checked(given)


def command(name: str, options: Mapping[str, object]) -> str:
    """Returns the command line that does the same to a file called `name`."""
    rows = rows_of(Config)
    words = ["segmentation", name if not name.startswith("-") else f"./{name}"]
    for option, value in options.items():
        flag = rows[option].flag
        if option == "refine" and value is False:
            words.append("--no-refine")
        elif option == "project":
            words += [flag, f"{Path(name).stem}.project.json"]  # as the page saves it
        elif isinstance(value, list | tuple):
            words += [word for one in value for word in (flag, str(one))]
        elif value is True and option != "refine":
            words.append(flag)
        elif not isinstance(value, bool) and value is not None:
            words += [flag, str(value)]
    return shlex.join(words)


def schema() -> dict[str, object]:
    """Returns the options as a JSON schema, made from the table of options."""
    rows = rows_of(Config)
    properties = {name: _of_row(rows[name]) for name in NAMES if name != "model"}
    properties["model"] = {"enum": list(NETWORKS), "default": rows["model"].default}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _of_row(row: Option) -> dict[str, object]:
    limits = {"minimum": row.low, "maximum": row.high, "exclusiveMinimum": row.above, "exclusiveMaximum": row.below}
    facts = {"description": row.help, "default": row.default}
    return _of_type(row.type) | facts | {name: value for name, value in limits.items() if value is not None}


def _of_type(kind: object) -> dict[str, object]:
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) in (Union, UnionType):
        return {"anyOf": [_of_type(one) for one in get_args(kind) if one is not Path]}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _of_type(get_args(kind)[0])}
    if kind is type(None):
        return {"type": "null"}
    return {"type": _TYPES[cast(type, kind)]}
