"""A row of the table is all that an option needs: checks, arguments, help, completion, documents and types follow."""

from dataclasses import dataclass

import pytest
import write_options

from segmentation import Config, ConfigError
from segmentation.cli.arguments import command_rows, make_parser
from segmentation.cli.completion import script
from segmentation.options.config import OPTIONS
from segmentation.options.table import GROUPS, Of, Option, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkling(Config):
    sparkle: int | None = option(
        "effect and mask",
        None,
        "stars on the edge",
        unit="stars",
        low=1,
        high=9,
        words=("3", "7"),
        metavar="STARS",
        everyday=True,
        of=Of.RUN,
        link="masks.md#feather",
    )


def test_a_new_option_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Sparkling(sparkle=9).sparkle == 9
    with pytest.raises(ConfigError, match=r"^sparkle 10: must be 1 to 9 stars$"):
        Sparkling(sparkle=10)
    with pytest.raises(ConfigError, match=r"^sparkle 'many': must be a whole number$"):
        Sparkling(sparkle="many")  # type: ignore[arg-type]

    parser = make_parser(Sparkling)
    assert parser.parse_args(["--sparkle", "3"]).sparkle == 3
    monkeypatch.setenv("COLUMNS", "200")
    line = "--sparkle STARS       stars on the edge; 1 to 9 stars (default: none)"
    assert line in parser.format_everyday() and line in parser.format_help()

    page = "<!-- options: effect and mask -->\n<!-- /options -->\n"
    row = "| `--sparkle STARS` | 1 to 9 stars | none | stars on the edge ([more](masks.md#feather)) |\n"
    assert row in write_options.document(page, command_rows(Sparkling).values())
    module = write_options.keywords("", Sparkling)
    assert module.count("    sparkle: int | None\n") == 1
    assert module.index("class RunOptions") < module.index("sparkle") < module.index("class Options")


def test_a_new_option_is_completed() -> None:
    pytest.importorskip("shtab", reason="shtab, which writes the scripts, is not installed")
    text = script(make_parser(Sparkling), "bash")
    assert "--sparkle" in text and "printf '%s\\n' 3 7" in text


@pytest.mark.parametrize("row", command_rows().values(), ids=lambda row: row.name)
def test_rows_are_whole(row: Option) -> None:
    assert row.group in GROUPS
    assert row.help and row.help[-1] != "." and "default" not in row.help and "\n" not in row.help
    assert isinstance(row.default, bool) or row.choices or row.metavar
    assert not row.by_default.startswith("default")


def test_defaults_are_values_that_the_options_can_have() -> None:
    for row in OPTIONS.values():
        assert row.checked(row.default) == row.default


def test_documents_and_types_are_those_of_the_table() -> None:
    """`python tools/docs/write_options.py` brings both up to date."""
    page = write_options.DOCUMENT.read_text(encoding="utf-8")
    assert write_options.document(page, command_rows().values()) == page
    assert all(f"<!-- options: {group} -->\n" in page for group in GROUPS)
    module = write_options.KEYWORDS.read_text(encoding="utf-8")
    assert write_options.keywords(module, Config) == module
