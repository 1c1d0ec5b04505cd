"""The page of figures, made from those that are stored, and the tables that documents show of them."""

import json
import re
import shutil
import subprocess
import sys
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import cv2
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "lab" / "report"))  # the tools are programs, not a package

import ladder_results as results
import report
import report_figures
from charts import Line, lines, timeline
from program import run_tool

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Checks that elements end where they should, and collects what they are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("report") / "report.html"
    run_tool("tools/lab/report/report.py", "-o", target)
    return target.read_text(encoding="utf-8")


def test_page_is_well_formed_and_needs_nothing_else(page: str) -> None:
    parsed = Page(page)
    assert parsed.addresses == ["data:,"]  # an empty icon, so that browsers ask nobody for one
    assert not {"script", "img", "iframe", "object", "embed"} & set(parsed.tags)
    assert "@import" not in page and "url(" not in page and "http:" not in page and "https:" not in page
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert 'name="viewport"' in page and "prefers-color-scheme: dark" in page


def test_page_shows_every_figure_that_is_stored(page: str) -> None:
    machines = results.load(report.RESULTS)
    ids = Page(page).ids
    for kind, machine in machines.items():
        shown = [figure.name for figure in report_figures.figures(machine)]
        assert {"ladder", "work"} < set(shown) and {f"{kind}-{name}" for name in shown} <= set(ids)
        for row in machine.rows["ladder"]:
            assert escape(results.label(row["name"])) in page
            assert f">{results.figure(row, 'seconds'):.2f}<" in page
        assert machine.head["command"] in page and machine.head["versions"]["git"] in page


def test_tables_in_the_documents_are_current() -> None:
    marked = []
    for document in report.DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        assert report.current(document) == text, f"tools/lab/report/report.py --documents brings {document} up to date"
        marked += re.findall("<!-- /([a-z-]+) -->", text)
    assert {"models-cpu", "ladder-cpu", "busy-cpu", "lengths-cpu", "compared-cpu", "workers"} <= set(marked)


def test_documents_show_pictures_that_are_there() -> None:
    for document in report.DOCUMENTS:
        for address in re.findall(r"!\[[^]]+\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / address).exists(), address


def test_filling_in_replaces_what_is_between_the_marks() -> None:
    text = "before\n<!-- a-b -->\nold\n<!-- /a-b -->\nafter"
    assert results.filled_in(text, {"a-b": "new"}) == "before\n<!-- a-b -->\nnew\n<!-- /a-b -->\nafter"
    assert results.filled_in(text, {"a": "new"}) == text


def test_newer_files_replace_the_parts_that_they_have(tmp_path: Path) -> None:
    def file(date: str, parts: list[str], fps: float) -> None:
        rows = [
            {"part": part, "name": "baseline", "frames": 1, "runs": [{"fps": fps}, {"fps": fps + 2}]} for part in parts
        ]
        about = {"date": date, "plans": {"gpu": False}, "rows": rows}
        (tmp_path / f"ladder-cpu-{date}.json").write_text(json.dumps(about))

    file("2026-01-02", ["ladder"], 20)
    file("2026-01-01", ["ladder", "lengths"], 10)
    machine = results.load(tmp_path)["cpu"]
    found = {part: results.figure(rows[0], "fps") for part, rows in machine.rows.items()}
    assert found == {"ladder": 21, "lengths": 11}
    assert machine.heads["ladder"]["date"] == "2026-01-02"


def test_lines_are_placed_by_their_figures() -> None:
    drawn = lines([Line("a", ((0, 0), (100, 50))), Line("b", ((100, 25),))], "frames", "seconds")
    first, second = (
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall('points="([^"]+)"', drawn)
    )
    (x0, y0), (x1, y1) = first
    assert x1 > x0 and y1 < y0  # upwards on a screen
    ((x, y),) = second
    assert x == x1 and y == pytest.approx((y0 + y1) / 2, abs=0.1)


def test_slices_of_a_timeline_keep_their_place() -> None:
    drawn = timeline([("decode", [("decode", 0, 0.0, 5.0), ("decode", 1, 10.0, 20.0)])])
    boxes = re.findall(r'class="decode (\w+)" x="([\d.]+)" y="0" width="([\d.]+)"', drawn)
    assert boxes == [("even", "0.0", "250.0"), ("odd", "500.0", "500.0")]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_page_fits_a_phone(page: str, tmp_path: Path) -> None:
    """The page is as wide as a narrow window, not wider; told by a frame that a picture is taken of."""
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    tell = "document.title=frames[0].document.documentElement.scrollWidth"
    (tmp_path / "phone.html").write_text(
        f'<iframe src="report.html" width="390" height="800" onload="{tell}"></iframe>'
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    command = ["chromium", *options, f"file://{tmp_path}/phone.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    (width,) = re.findall(r"<title>(\d+)</title>", done.stdout)
    assert int(width) <= 390


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_pictures_show_what_they_are_of(tmp_path: Path) -> None:
    made = run_tool("tools/lab/report/report.py", "--pictures", tmp_path).split()
    assert any(Path(path).name == "cpu-ladder.png" for path in made)
    for path in made:
        picture = cv2.imread(path)
        assert picture.shape[1] > 1200 and 200 < picture.shape[0] < 3000 and picture.std() > 10
        assert (ROOT / "tools" / "lab" / Path(path).name).exists()
