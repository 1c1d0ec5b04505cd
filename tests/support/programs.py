"""Finds the test modules that start programs: other processes, or runs, whose encoders are processes too."""

import ast
from functools import cache
from pathlib import Path

from paths import ROOT

SUPPORT = {path.stem: path for path in (ROOT / "tests" / "support").rglob("*.py")}
STARTERS = {"subprocess", "multiprocessing", "program"}
RUNS = {"segment", "Segmenter", "Streams", "Processes", "Workers"}


@cache
def starts_programs(path: Path) -> bool:
    """Returns whether a module, or one of `support` that it imports, has the means to start a program."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
        module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
        imported = {name.partition(".")[0] for name in ({module} if module else names)}
        if imported & STARTERS or (module == "segmentation" and names & RUNS):
            return True
        if any(starts_programs(SUPPORT[name]) for name in imported if name in SUPPORT and SUPPORT[name] != path):
            return True
    return False
