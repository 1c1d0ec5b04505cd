"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def head(name: str, kind: str, about: str) -> Iterator[str]:
    """Yields the lines before a figure's values. `kind` is gauge, counter or histogram."""
    yield f"# HELP segmentation_{name} {about}"
    yield f"# TYPE segmentation_{name} {kind}"


def labels(**values: str) -> str:
    """Returns the labels of a value."""
    escaped = {
        name: value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for name, value in values.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
