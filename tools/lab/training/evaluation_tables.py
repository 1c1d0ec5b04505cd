"""The figures of networks on held-out pictures as tables in Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from held_out import WITHOUT_PEOPLE, Figures
from truth import KINDS

MEASURES = {  # of pictures that show people: by key, a table's title, and its digits
    "iou": ("Mean IoU", 3),
    "boundary_f": ("Boundary F, to 0.8 % of the diagonal", 3),
    "rim": ("Rim of background that is kept along the outline, in pixels of a picture of 1080 lines", 2),
    "lost": ("What is lost of the person there, likewise", 2),
}
MARKERS = ("<!-- figures -->", "<!-- /figures -->")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its columns padded to be read as plain text."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    text.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in text)


def tables(results: Figures) -> str:
    """All figures as Markdown."""
    figures = results["figures"]
    rows = next(iter(figures.values()))
    present = [row for row in ("all", *KINDS) if row in rows]
    people = [row for row in present if row not in WITHOUT_PEOPLE]

    def head(names: Sequence[str]) -> list[str]:
        return ["", *(f"{name} ({rows[name]['pictures']})" for name in names)]

    parts = []
    for key, (title, digits) in MEASURES.items():
        if people:
            body = [[name, *(f"{found[row][key]:.{digits}f}" for row in people)] for name, found in figures.items()]
            parts += [f"{title}, by what the pictures show (number of pictures):", table(head(people), body)]
    alarms = [row for row in present if row in WITHOUT_PEOPLE]
    if alarms:
        body = [[name, *(alarm(found[row]) for row in alarms)] for name, found in figures.items()]
        parts += ["Pixels called person where nobody is, mean and the worst picture:", table(head(alarms), body)]
    if limbs := {name: found["limbs"] for name, found in figures.items() if "limbs" in found}:
        ends = next(iter(limbs.values()))
        heading = ["", *(f"{end} ({about['joints']:.0f})" for end, about in ends.items())]
        body = [[name, *(f"{found[end]['in_mask']:.1%}" for end in ends)] for name, found in limbs.items()]
        parts += [
            "Ends of limbs in the mask, of those that are seen on the true person:",
            table(heading, body),
        ]
    if flickers := {name: found["flicker"] for name, found in figures.items() if "flicker" in found}:
        clips = list(next(iter(flickers.values())))
        body = [
            [name, *(" / ".join(f"{value:.2f}" for value in found[clip].values()) for clip in clips)]
            for name, found in flickers.items()
        ]
        title = "Flicker of held-out clips in percent, of single frames' masks / of the default's:"
        parts += [title, table(["", *clips], body)]
    times = [
        [
            name,
            f"{run['input'][0]}x{run['input'][1]}",
            str(run["threads"]),
            f"{run['least']:.1f}",
            f"{run['median']:.1f}",
        ]
        for name, network in results["networks"].items()
        for run in network.get("milliseconds", ())
    ]
    if times:
        heading = ["", "input, height x width", "threads", "least", "median"]
        parts += ["Milliseconds a picture, the network alone:", table(heading, times)]
    return "\n\n".join(parts)


def alarm(found: Figures) -> str:
    worst = found["worst"]
    return f"{found['called_person']:.2%} (worst {worst['called_person']:.1%}: {shown(worst['picture'])})"


def shown(name: str) -> str:
    """The name of a picture as people read it: stills have one frame only."""
    return name.removesuffix("__00000")


def write_card(path: Path, text: str, markers: tuple[str, str] = MARKERS) -> None:
    """Replaces what stands between the markers of a Markdown file."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not begin or not end:
        raise SystemExit(f"{path}: {markers[0]} and {markers[1]} are needed, between which the figures go")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def card(results: Figures) -> str:
    """The tables, and on what and with what they were measured."""
    made = (
        f"`{results['command']}`, {results['date'][:10]}: {results['pictures']} pictures, split {results['split']}, "
        f"truth {results['truth']}; ONNX Runtime {results['versions']['onnxruntime']}, "
        f"{results['hardware']['cores']} cores of {results['hardware']['cpu']}."
    )
    return f"{tables(results)}\n\n{made}"
