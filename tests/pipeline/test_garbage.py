"""A run leaves nothing to Python's garbage collector: networks, frames and decoders go with their last reference."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from detectors import red_box
from paths import SAMPLE

from segmentation import segment

LIBRARIES = ("segmentation.", "onnxruntime.", "torch.", "av.", "numpy.")
GRAPHS = (
    "torch.fx.",
    "segmentation.stages.inference.compiler.fx_nodes.",
)  # small, since `GraphedNetwork` frees their weights


@contextmanager
def collected() -> Iterator[list[str]]:
    """Yields a list, which then has what was left in cycles of references: the types that matter."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [_name(one) for one in gc.garbage if _matters(one)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _name(one: object) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"


def _matters(one: Any) -> bool:
    """Says whether a library's object holds memory. Nodes of networks on a GPU refer to each other, without it."""
    name = _name(one)
    if name == "torch.Tensor":
        return bool(one.untyped_storage().size())
    return name.startswith(LIBRARIES) and not name.startswith(GRAPHS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"results": "r.jsonl", "save_masks": "m.mkv"},
        {"track": "accurate", "interval": 2},
        {"then": "red@person", "effect": "pixelate"},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_run_leaves_no_garbage(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "then" in options:
        options = options | {"then": (f"red={red_box(tmp_path / 'red.onnx')}@person",)}
    segment(SAMPLE, "first.mp4", max_frames=1, **options)  # imports libraries, some of which leave garbage
    with collected() as found:
        segment(SAMPLE, "out.mp4", max_frames=12, overwrite=True, **options)
    assert found == []
