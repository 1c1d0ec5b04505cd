"""Makes one page of what `ladder.py` has measured and tools/lab/results keeps, and what documents show of it.

    python tools/lab/report/report.py -o report.html
    python tools/lab/report/report.py --documents         # the tables in performance.md and scale-out.md
    python tools/lab/report/report.py --pictures tools/lab    # figures as PNG; needs Chromium

The page needs neither network nor scripts, and follows the reader's choice of light or dark.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

import charts
import cv2
import numpy as np
from ladder_results import Measured, blocks, filled_in, ladder_head, ladder_rows, length_head, length_rows, load, where
from report_figures import Figure, figures, headline
from worker_results import worker_blocks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # the tools are programs, not a package

from circumstances import ROOT

RESULTS = ROOT / "tools" / "lab" / "results"
DOCUMENTS = (ROOT / "tools" / "lab" / "performance.md", ROOT / "tools" / "lab" / "scale-out.md")
PICTURES = {  # of which figures
    "ladder": ("ladder",),
    "lengths": ("time", "memory"),
    "timeline": ("timeline-optimized", "timeline-nothing-encoded", "timeline-baseline"),
}
_TITLES = {"gpu": "On a GPU", "cpu": "On a CPU"}
_PATIENCE = 60  # seconds: headless Chromium may hang where it has nothing to draw with
_WIDTH, _TALLEST, _MARGIN = 840, 2000, 12  # of a picture, in CSS pixels
_SCALE = 1.5  # pixels in one of those


def page(machines: dict[str, Measured]) -> str:
    """The whole report as HTML."""
    sections = "".join(_section(kind, machines[kind]) for kind in _TITLES if kind in machines)
    return document(
        f"<main><h1>How fast the segmentation of video is, and why</h1><p>Finds the people in a video and blurs "
        f"everything else: five stages, each in a baseline and an optimized form. All figures here are measured, from "
        f"files on disk to files on disk, each in a process of its own.</p>{sections}</main>"
    )


def document(body: str) -> str:
    """A page that needs nothing else."""
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Video segmentation: how fast</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>\n{style}</style></head><body>{body}</body></html>\n"
    )


def _section(kind: str, machine: Measured) -> str:
    parts = [f"<section><h2>{_TITLES[kind]}</h2>", f'<p class="soft">{escape(where(machine, "ladder"))}</p>']
    parts.append(f"<p>{escape(headline(machine))}</p>")
    for wide, group in groupby(figures(machine), lambda shown: shown.wide):
        shown = "".join(framed(kind, each) for each in group)
        parts.append(shown if wide else side_by_side(shown))
    parts.append(_details("The ladder in figures", charts.table(ladder_head(machine), list(ladder_rows(machine)))))
    if "lengths" in machine.rows:
        table = charts.table(length_head(machine), list(length_rows(machine)))
        parts.append(_details("The lengths in figures", table))
    parts.append(_details("How it was measured", "".join(_circumstances(machine))))
    return f"{''.join(parts)}</section>"


def framed(kind: str, shown: Figure) -> str:
    """A chart with its title; `kind` tells it from others of its name on the page."""
    return (
        f'<div class="figure" id="{kind}-{shown.name}"><h3>{escape(shown.title)}</h3>{shown.chart}'
        f'<p class="soft">{escape(shown.about)}</p></div>'
    )


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def _circumstances(machine: Measured) -> Iterator[str]:
    """For each file of figures: when, how, on what and with what."""
    for date, parts in groupby(machine.heads, lambda part: machine.heads[part]["date"]):
        names = list(parts)
        head = machine.heads[names[0]]
        versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
        hardware = ", ".join(f"{name} {value}" for name, value in head["hardware"].items())
        yield f"<p>{', '.join(names)}: {date}<br><code>{escape(head['command'])}</code></p>"
        yield f'<p class="soft">{escape(hardware)}<br>{escape(versions)}</p>'


def current(document: Path) -> str:
    """The document with the tables and pictures of what is stored now."""
    return filled_in(document.read_text(encoding="utf-8"), blocks(RESULTS) | worker_blocks(RESULTS))


def save_pictures(machines: dict[str, Measured], folder: Path) -> list[Path]:
    """Figures as PNG, in light colors."""
    made = []
    for kind, machine in machines.items():
        found = {shown.name: shown for shown in figures(machine)}
        for name, names in PICTURES.items():
            shown = [found[name] for name in names if name in found]
            if shown:
                body = "".join(framed(kind, each) for each in shown)
                made.append(folder / f"{kind}-{name}.png")
                _photograph(document(f"<main>{body if shown[0].wide else side_by_side(body)}</main>"), made[-1])
    return made


def side_by_side(content: str) -> str:
    """Narrow charts in rows, as many as there is room for."""
    return f'<div class="pair">{content}</div>'


def _photograph(html: str, target: Path) -> None:
    """A page as Chromium shows it, without the empty rest. Raises `SystemExit` where there is no Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("--pictures needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        source, shot = Path(folder) / "page.html", Path(folder) / "page.png"
        source.write_text(html, encoding="utf-8")
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--force-device-scale-factor={_SCALE}",
        ]
        size = [f"--window-size={_WIDTH},{_TALLEST}", f"--screenshot={shot}"]
        subprocess.run(
            [browser, *options, *size, f"file://{source}"], check=True, capture_output=True, timeout=_PATIENCE
        )
        picture = cv2.imread(str(shot))
    differs = np.any(picture != picture[-1, -1], axis=2)  # from the page's own color
    (top, bottom), (left, right) = (np.flatnonzero(differs.any(axis=axis))[[0, -1]] for axis in (1, 0))
    margin = round(_MARGIN * _SCALE)
    crop = picture[max(0, top - margin) : bottom + margin, max(0, left - margin) : right + margin]
    cv2.imwrite(str(target), crop, [cv2.IMWRITE_PNG_COMPRESSION, 9])


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a page of the figures that are stored in tools/lab/results.")
    parser.add_argument("-o", "--output", type=Path, help="an .html file")
    parser.add_argument("--documents", action="store_true", help="brings the tables in docs up to date")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="saves figures as PNG there; needs Chromium")
    options = parser.parse_args()
    if not (options.output or options.documents or options.pictures):
        parser.error("say what to make: -o FILE.html, --documents or --pictures FOLDER")
    machines = load(RESULTS)
    if options.output:
        options.output.write_text(page(machines), encoding="utf-8")
    if options.documents:
        for document in DOCUMENTS:
            document.write_text(current(document), encoding="utf-8")
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)  # OpenCV writes nothing otherwise, and says nothing
        print(*save_pictures(machines, options.pictures), sep="\n")


if __name__ == "__main__":
    main()
