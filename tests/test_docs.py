"""Links in the documents lead to files, headings and names that are there."""

import re
from functools import cache
from pathlib import Path

import pytest
from documents import DOCUMENTS
from paths import ROOT

from segmentation._version import __version__


@cache
def anchors(path: Path) -> set[str]:
    """Returns the anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading) for heading in re.findall(r"^#+ (.*)$", text, re.M))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_names_are_in_the_files_that_they_lead_to(path: Path) -> None:
    for name, link in re.findall(r"\[`([\w./]+)`\]\(([^)#\s]+\.(?:py|cu))\)", path.read_text(encoding="utf-8")):
        target = path.parent / link
        if name.endswith(target.suffix):
            assert target.resolve().as_posix().endswith(name), link
        else:
            last = name.split(".")[-1]
            assert re.search(rf"\b{last}\b", target.read_text(encoding="utf-8")), f"{link} has no {last}"


def test_the_changelog_begins_with_this_version_and_its_date() -> None:
    heading = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert heading is not None and heading[1] == __version__


def test_the_manual_stays_short() -> None:
    """At most 20,000 words for users, but for the tables that are made from the options."""
    pages = (path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    written = (re.sub(r"<!-- options: .*?<!-- /options -->", "", page, flags=re.S) for page in pages)
    assert sum(len(page.split()) for page in written) <= 20_000
