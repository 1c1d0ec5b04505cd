"""The built-in model, measured as its card says, on people and places that it was not trained on."""

import sys
from typing import Any

import pytest
from conftest import ROOT, SHARED

from segmentation.model import BUILT_IN

sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    if not SHARED.is_dir():
        pytest.skip("the clips and the teacher are not here: ../shared is missing")
    from evaluate import evaluate

    result: dict[str, Any] = evaluate(BUILT_IN["person"], SHARED / "models" / "prisma-portrait.onnx", SHARED)
    return result


def test_it_agrees_with_its_teacher_on_a_person_it_has_never_seen(figures: dict[str, Any]) -> None:
    assert figures["held_out_person"]["mean"] >= 0.95


def test_it_agrees_with_its_teacher_on_clips_it_has_never_seen(figures: dict[str, Any]) -> None:
    assert figures["held_out_clips"]["mean"] >= 0.90


@pytest.mark.parametrize("place", ["bottles_without_hands", "empty_room"])
def test_it_sees_nobody_where_nobody_is(figures: dict[str, Any], place: str) -> None:
    """In most of the clip of bottles; the rest shows hands, which may be called person."""
    assert figures["nobody"][place]["person_mean"] < 0.005
