"""Project files as the page writes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def runs(mask: NDArray[np.bool_]) -> list[int]:
    """Returns COCO's run lengths of a mask (h, w), as a list."""
    flat = np.concatenate([[False], mask.ravel(order="F")])
    borders = np.flatnonzero(flat[1:] != flat[:-1])
    return [int(run) for run in np.diff(np.concatenate([[0], borders, [mask.size]]))]


def project(size: tuple[int, int], corrections: Mapping[float, NDArray[np.floating[Any]]], **options: Any) -> str:
    """Returns a project's text. `size` is the picture's width and height; corrections (h, w) are signed, by time."""
    listed = [
        {"time": time, "size": list(drawn.shape), "add": runs(drawn > 0), "remove": runs(drawn < 0)}
        for time, drawn in corrections.items()
    ]
    content = {"segmentation_project": 1, "input": "a.mp4", "size": list(size), "options": options}
    return json.dumps(content | {"corrections": listed})


def write_project(
    path: Path, size: tuple[int, int], corrections: Mapping[float, NDArray[np.floating[Any]]], **options: Any
) -> Path:
    """Writes a project file, see `project`."""
    path.write_text(project(size, corrections, **options))
    return path
