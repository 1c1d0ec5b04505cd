"""The pages of the site: all of the manual, with links that hold."""

import re
from pathlib import Path

import build_docs
import pytest
from paths import ROOT


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build_docs, "PAGES", tmp_path)
    return tmp_path


def test_all_pages_of_the_manual_are_in_the_navigation_and_links_hold(pages: Path) -> None:
    navigation = build_docs.stage()
    listed = {page for entry in navigation for part in entry.values() for page in _pages(part)}
    manual = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert listed >= {*manual, build_docs.START, build_docs.API}
    for page in pages.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        links = re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", text)
        assert [link for link in links if not (page.parent / link).is_file()] == []


def test_code_becomes_a_page_and_bars_in_tables_are_kept(pages: Path) -> None:
    build_docs.stage()
    assert "```python\n" in (pages / "segmentation/gpu/context.py.md").read_text(encoding="utf-8")
    options = (pages / "docs/options.md").read_text(encoding="utf-8")
    assert "--output</span> FILE&#124;FOLDER&#124;ADDRESS</code>" in options and "\\|" not in options


def _pages(part: str | list[dict[str, str]]) -> list[str]:
    return [part] if isinstance(part, str) else [page for entry in part for page in entry.values()]
