"""Builds the site of the documentation: the first page, the manual, the API, and the pages and code that they link.

    python tools/docs/build_docs.py            # in build/site
    python tools/docs/build_docs.py --serve    # and shows it, until it is stopped

Pages lie in the checkout as they do for readers of the code. The site has the same tree, so that all links hold: this
program copies the pages that can be reached, and makes a page of each file of code that one of them names.
"""

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import segmentation

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "pages"
START, MANUAL, API = "README.md", "docs/README.md", "docs/api.md"
_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
_CODE = re.compile(r"(?<!`)`(--[^`\n]+|[^`\n]*\\\|[^`\n]*)`(?!`)")  # an option, or code in a table with a bar
_WHOLE = r'<span style="white-space: nowrap">\g<0></span>'
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
_SHOWN = {".webp", ".png", ".jpg", ".svg", ".json"}  # copied as they are; other files become pages of code
_LANGUAGES = {
    ".py": "python",
    ".cu": "c++",
    ".c": "c",
    ".sh": "sh",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".toml": "toml",
    ".service": "ini",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the site of the documentation.")
    parser.add_argument("--serve", action="store_true", help="show it on http://127.0.0.1:8000, until it is stopped")
    options = parser.parse_args()
    settings = {"INHERIT": "../tools/docs/zensical.yml", "docs_dir": PAGES.name, "site_dir": "site", "nav": stage()}
    configuration = PAGES.with_name("zensical.yml")
    configuration.write_text(json.dumps(settings), encoding="utf-8")
    command = ["serve"] if options.serve else ["build", "--strict", "--clean"]
    sys.exit(subprocess.run([sys.executable, "-m", "zensical", *command, "-f", str(configuration)]).returncode)


def stage() -> list[dict[str, str | list[dict[str, str]]]]:
    """Writes the pages to `PAGES`. Returns the site's navigation: sections with their pages, by title and path."""
    shutil.rmtree(PAGES, ignore_errors=True)
    sections = list(_sections())
    waiting, seen = [START, MANUAL, *(page for _, pages in sections for _, page in pages)], set[str]()
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += _copy(page)
    _write(API, _api())
    navigation: list[dict[str, str | list[dict[str, str]]]] = [{"Video segmentation": START}, {"Manual": MANUAL}]
    for title, pages in sections:
        further = [{"API": API}] if title == "Reference" else []
        navigation.append({title: [{name: page} for name, page in pages] + further})
    return navigation


def _sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields the manual's sections with their pages, each by title and path, as its index lists them."""
    for part in re.split(r"^## ", (ROOT / MANUAL).read_text(encoding="utf-8"), flags=re.M)[1:]:
        title, text = part.split("\n", 1)
        links = re.findall(r"\[([^\]]+)\]\(([^)#\s]+)\)", text)
        yield title, [(name, page) for name, link in links if (page := _path(MANUAL, link)) != START]


def _path(page: str, link: str) -> str:
    """Returns the path in the checkout that a link of a page leads to."""
    return (ROOT / page).parent.joinpath(link).resolve().relative_to(ROOT).as_posix()


def _copy(page: str) -> Iterator[str]:
    """Writes a page with links that hold on the site. Yields the pages that it leads to."""
    found: list[str] = []

    def adapted(match: re.Match[str]) -> str:
        begin, link, anchor, end = match.groups()
        if re.match(r"[a-z]+:", link):
            return match[0]
        target = _path(page, link)
        if (ROOT / target).is_dir():
            name = START if (ROOT / target / START).is_file() else "files.md"
            link, folder, target = f"{link.rstrip('/')}/{name}", ROOT / target, f"{target}/{name}"
            if name != START:
                names = sorted(path.name for path in folder.iterdir() if path.name[0] not in "._")
                _write(target, "\n".join([f"# {Path(target).parent}", "", *(f"- `{name}`" for name in names)]))
                return f"{begin}{link}{end}"
        suffix = Path(target).suffix
        if suffix == ".md":
            found.append(target)
        elif suffix in _SHOWN:
            (PAGES / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / target, PAGES / target)
        else:
            code = (ROOT / target).read_text(encoding="utf-8").replace("```", "` ` `")
            _write(f"{target}.md", f"# {target}\n\n```{_LANGUAGES.get(suffix, 'text')}\n{code}```\n")
            link += ".md"
        return f"{begin}{link}{anchor or ''}{end}"

    parts = _FENCE.split((ROOT / page).read_text(encoding="utf-8"))
    for i, part in enumerate(parts):
        if not part.startswith("```"):
            parts[i] = _LINK.sub(adapted, _CODE.sub(_code, part))
    _write(page, "".join(parts))
    yield from found


def _code(match: re.Match[str]) -> str:
    """Returns code as HTML: browsers break options at hyphens, and Python's Markdown leaves the backslash of bars."""
    text = re.sub(r"[][*_|]", lambda mark: f"&#{ord(mark[0])};", html.escape(match[1].replace("\\|", "|")))
    return f"<code>{re.sub(r'^--[a-z-]+', _WHOLE, text)}</code>"


def _api() -> str:
    """Returns the page of all names that the package exports."""
    names = sorted(segmentation.__all__, key=str.lower)
    return "\n\n".join(["# API", *(f"::: segmentation.{name}" for name in names if not name.startswith("_"))]) + "\n"


def _write(page: str, text: str) -> None:
    target = PAGES / page
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
