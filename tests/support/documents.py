"""The documents of the repository, and the commands in them."""

import re
import shlex
from pathlib import Path

from paths import ROOT

FOLDERS = ("", "docs", "docs/internals", "samples", "segmentation/models", "tools/lab")
DOCUMENTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))


def fenced(path: Path, language: str) -> list[str]:
    """Returns the blocks of a document that are fenced and marked as of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def command_lines(block: str) -> list[str]:
    """Returns the lines of a shell's block, each with what its continuations add."""
    return [line for line in block.replace("\\\n", "").splitlines() if line.strip() and not line.startswith("#")]


def words(line: str) -> list[str]:
    """Returns a line's words, without its comment."""
    return shlex.split(line, comments=True)
