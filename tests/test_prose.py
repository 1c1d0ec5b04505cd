"""Prose of the package, where a program can check it: see CONTRIBUTING.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

SOURCES = sorted((ROOT / "segmentation").rglob("*.py"))
DOCUMENTS = [*SOURCES, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PEOPLE_ALONE = re.compile(r"\b(tell|told|telling|know|knew|want|hear)s?\b", re.IGNORECASE)  # things don't


def docstrings(path: Path) -> Iterator[str]:
    """Yields the docstrings of a module, its classes and functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize(
    "wrong", ["What a thing is.", "Who is kept.", "Its header tells the size.", "Returns what a process knows."]
)
def test_wrong_prose_is_found(wrong: str) -> None:
    assert faults(wrong)


def test_docstrings_begin_with_what_is_done_and_things_only_act() -> None:
    found = ((path, text) for path in SOURCES for text in docstrings(path) if faults(text))
    wrong = [f"{path.relative_to(ROOT)}: {text.splitlines()[0]}" for path, text in found]
    assert not wrong, "\n".join(wrong)


def faults(text: str) -> bool:
    """Says whether a docstring begins with What or Who, or lets things tell, know, want or hear."""
    prose = re.sub(r"`[^`]*`", "", text)
    return re.match(r"(What|Who)\b", prose) is not None or PEOPLE_ALONE.search(prose) is not None


def test_the_lock_has_the_fields_name() -> None:
    assert not [path for path in DOCUMENTS if re.search(r"Python('s)? lock\b", path.read_text(encoding="utf-8"))]
