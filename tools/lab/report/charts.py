"""Charts as HTML and SVG without scripts: bars, stacked bars, lines, and when who was busy.

Colors and sizes are `report.css`'s; text stands in HTML, so that it stays readable on a phone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STAGES = ("decode", "preprocess", "infer", "postprocess", "encode")  # those that have a color
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 190, 46, 22, 10, 22  # of a line chart, in its own units


@dataclass(frozen=True)
class Bar:
    """One line of a chart: what it is called, its parts (color and length), and what is written beside it."""

    label: str
    parts: tuple[tuple[str, float], ...]
    text: str


@dataclass(frozen=True)
class Line:
    """Points of a line chart, with a name for the legend."""

    name: str
    points: tuple[tuple[float, float], ...]


def bars(rows: Sequence[Bar]) -> str:
    """Horizontal bars from zero, all to one scale."""
    longest = max(sum(length for _, length in row.parts) for row in rows)
    return f'<ul class="bars">{"".join(_bar(row, longest) for row in rows)}</ul>'


def _bar(row: Bar, longest: float) -> str:
    filled = "".join(
        f'<i class="{kind}" style="width:{100 * length / longest:.2f}%" title="{kind} {length:.2f}"></i>'
        for kind, length in row.parts
    )
    label, text = escape(row.label), escape(row.text)
    return (
        f'<li><span class="name">{label}</span><span class="bar">{filled}</span><span class="value">{text}</span></li>'
    )


def legend(names: Sequence[str]) -> str:
    """What the colors mean, for stages."""
    keys = "".join(f'<span><i class="{name}"></i>{name}</span>' for name in names)
    return f'<p class="legend">{keys}</p>'


def lines(series: Sequence[Line], x_title: str, y_title: str) -> str:
    """Lines through points, from zero on both axes."""
    most_x, step_x = _scale(max(x for line in series for x, _ in line.points))
    most_y, step_y = _scale(max(y for line in series for _, y in line.points))

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + x / most_x * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y / most_y * (_HEIGHT - _BOTTOM - _TOP),
        )

    drawn = []
    for i in range(round(most_y / step_y) + 1):
        x, y = place(0, i * step_y)
        drawn.append(f'<path class="grid" d="M{x:.1f} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        drawn.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{_number(i * step_y)}</text>')
    for i in range(round(most_x / step_x) + 1):
        x, y = place(i * step_x, 0)
        drawn.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{_number(i * step_x)}</text>')
    for i, line in enumerate(series):
        points = [place(*point) for point in line.points]
        drawn.append(f'<polyline class="line{i}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        drawn += [f'<circle class="line{i}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points]
    title = f"{y_title} over {x_title}: {', '.join(line.name for line in series)}"
    keys = "".join(f'<span><i class="line{i}"></i>{escape(line.name)}</span>' for i, line in enumerate(series))
    return (
        f'<p class="axis">{escape(y_title)}</p><svg class="lines" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(drawn)}</svg><p class="axis x">{escape(x_title)}</p>'
        f'<p class="legend">{keys}</p>'
    )


def timeline(tracks: Sequence[tuple[str, Sequence[tuple[str, int | None, float, float]]]]) -> str:
    """A strip for each track, whose slices (name, batch, begin, end in milliseconds) have their stage's color."""
    end = max(slice_[3] for _, slices in tracks for slice_ in slices)
    strips = []
    for name, slices in tracks:
        boxes = "".join(
            f'<rect class="{escape(kind)} {"odd" if (batch or 0) % 2 else "even"}" x="{1000 * begin / end:.1f}" y="0" '
            f'width="{max(1000 * (stop - begin) / end, 0.8):.1f}" height="20"><title>{escape(kind)}, '
            f"{'' if batch is None else f'batch {batch}, '}{stop - begin:.2f} ms</title></rect>"
            for kind, batch, begin, stop in slices
        )
        strips.append(
            f'<p class="axis">{escape(name)}</p><svg class="strip" viewBox="0 0 1000 20" preserveAspectRatio="none" '
            f'role="img" aria-label="{escape(name)}">{boxes}</svg>'
        )
    marks = "".join(f"<span>{_number(end * i / 4)}{' ms' if i == 4 else ''}</span>" for i in range(5))
    return f'<div class="timeline">{"".join(strips)}<p class="marks">{marks}</p></div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """All columns but the first hold figures. On narrow screens each row becomes a block with the heads as labels."""
    heads = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = []
    for row in rows:
        cells = (f'<td data-head="{escape(h)}">{escape(cell)}</td>' for h, cell in zip(head, row, strict=True))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _scale(most: float) -> tuple[float, float]:
    """A round end of an axis that begins at zero, and the distance of its marks: four to six of them.

    The axis of a single point at zero ends at 1.
    """
    most = most or 1.0
    power = 1.0
    while power * 10 <= most:
        power *= 10
    while power > most:
        power /= 10
    step = next(power * s for s in (0.2, 0.25, 0.5, 1, 2) if power * s * 5 >= most)
    count = -(-most // step)
    return step * count, step


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.3g}"
