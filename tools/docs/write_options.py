"""Brings up to date all files that repeat the table of options: docs/options.md, and the types of keywords.

python tools/docs/write_options.py
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from segmentation.cli.arguments import command_rows
from segmentation.options.config import Config
from segmentation.options.table import Of, Option, rows_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "options.md"
KEYWORDS = ROOT / "segmentation" / "options" / "keywords.py"
_BLOCK = re.compile(r"(<!-- options: ([a-z ]+) -->\n)(.*?)(<!-- /options -->)", re.S)
_HEAD = "| option | range | default | meaning |\n|---|---|---|---|\n"
_CODE = re.compile(r"(?<!\S)(--[a-z-]+|[^\s,;]*[][|][^\s;]*[^\s,;])")  # flags, and forms of values
_MARK = "# From here on written by tools/docs/write_options.py.\n"
_CLASSES = (
    ("PictureOptions", "TypedDict", Of.PICTURE, "The keywords of `Segmenter.apply()`."),
    ("FrameOptions", "TypedDict", Of.FRAMES, "The keywords of `Segmenter.frames()`."),
    ("RunOptions", "PictureOptions", Of.RUN, "The options that may differ from file to file, of `Segmenter.run()`."),
    ("Options", "RunOptions", None, "All options: the keywords of `segment()` and of `Segmenter()`."),
)


def main() -> None:
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8"), command_rows().values()), encoding="utf-8")
    KEYWORDS.write_text(keywords(KEYWORDS.read_text(encoding="utf-8"), Config), encoding="utf-8")


def document(text: str, rows: Iterable[Option]) -> str:
    """Returns the page with the rows of each group between the group's markers."""
    rows = list(rows)

    def table(match: re.Match[str]) -> str:
        lines = "".join(_line(row) for row in rows if row.group == match[2])
        return f"{match[1]}{_HEAD}{lines}{match[4]}"

    return _BLOCK.sub(table, text)


def keywords(text: str, table: type) -> str:
    """Returns the module of keywords with a type for each call that takes options, of the rows of `table`."""
    rows, types, classes = rows_of(table), _annotations(table), []
    known: dict[str, set[str]] = {"TypedDict": set()}
    for name, base, of, what in _CLASSES:
        own = [row.name for row in rows.values() if (of is None or row.of & of) and row.name not in known[base]]
        known[name] = known[base] | set(own)
        body = "".join(f"    {option}: {types[option]}\n" for option in own)
        classes.append(f'\n\nclass {name}({base}, total=False):\n    """{what}"""\n\n{body}')
    return f"{text.partition(_MARK)[0]}{_MARK}{''.join(classes)}"


def _annotations(table: type) -> dict[str, str]:
    """Returns the types of a dataclass's fields as its source has them."""
    found = {}
    for owner in reversed(table.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        found |= {
            node.target.id: ast.unparse(node.annotation)
            for node in body.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
    return found


def _line(row: Option) -> str:
    """Returns the option's line of the document's table."""
    values = f" {row.metavar or 'NAME'}" if not isinstance(row.default, bool) and not row.switches else ""
    flags = (*row.spelled, f"--no-{row.name}") if row.default is True and not row.flags else row.spelled
    spelled = ", ".join(f"`{flag}{values if flag == row.flag else ''}`" for flag in flags)
    choices = ", ".join(f"`{choice}`" for choice in row.choices) if not row.switches else ""
    span = f"seconds or `[HH:]MM:SS`, {row.span}".removesuffix(" seconds") if row.unit == "seconds" else row.span
    given = ", ".join(filter(None, [choices or span, "repeatable" if row.repeatable else ""]))
    more = f" ([more]({row.link.removeprefix('options.md')}))" if row.link else ""
    meaning = f"{_coded(row.help)}{more}"
    cells = [spelled, given, _coded(row.shown_default), meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _coded(text: str) -> str:
    """Returns a text with flags and forms of values as code."""
    return _CODE.sub(r"`\1`", text)


if __name__ == "__main__":
    main()
