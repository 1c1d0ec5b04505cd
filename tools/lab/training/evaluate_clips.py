"""Measures networks on clips whose masks were drawn frame by frame, below `truth/clips`.

    python tools/lab/training/evaluate_clips.py --json tools/lab/results/person-clips.json \\
        --card segmentation/models/README.md

A mask is a PNG of one bit, at most 512 pixels on the longer side, named by its clip and the number of its frame.
Measured are the network's own masks of single frames and what the program makes of them by default (smoothed over time,
edges drawn along the picture's; it begins at the clip's first frame), both above 0.5 at the size of the truth.

IoU and boundary F: means over the frames, as in `held_out.py`. Flicker of the error: `dtssd` of
tools/support/measures.py, in hundredths, the mean over successive frames. A mask whose faults stay has none.
"""

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import cv2
import numpy as np
from evaluation_tables import table, write_card
from held_out import Figures, Mask, Truth, boundary_f, iou

# isort: split
# Those before let tools/support be found.
import measures
from circumstances import ROOT, circumstances
from truth import HERE

sys.path.insert(0, str(ROOT / "tools" / "quality"))

from quality import VARIANTS, Enlarger, batches, run_network

from segmentation.models.model import PEOPLE

CLIPS = ("clips/signing-eat.mkv", "corpus/05_default_juggle.mp4")  # below the shared folder; no network learned them
KINDS = {"single": "off", "default": "default"}  # of masks: the variant of tools/quality/quality.py
MARKERS = ("<!-- clips -->", "<!-- /clips -->")
COLUMNS = {"iou": ("IoU", 3), "boundary_f": ("boundary F", 3), "error_flicker": ("flicker of the error", 2)}


def truths(clip: str) -> dict[int, Truth]:
    """By the frame's number, in order: its mask (h, w), 255 is a person, 0 is not."""
    paths = sorted((HERE / "clips").glob(f"{Path(clip).stem}__*.png"))
    return {int(path.stem.rpartition("__")[2]): cv2.imread(str(path), cv2.IMREAD_GRAYSCALE) for path in paths}


def figures(found: list[Mask], wanted: list[Truth]) -> dict[str, float]:
    """The means of the measures over successive frames."""
    alphas = [
        (mask.astype(np.float32), (truth / 255).astype(np.float32)) for mask, truth in zip(found, wanted, strict=True)
    ]
    values = {
        "iou": fmean(map(iou, found, wanted)),
        "boundary_f": fmean(map(boundary_f, found, wanted)),
        "error_flicker": fmean(measures.dtssd(a, b, u, v) for (a, u), (b, v) in pairwise(alphas)),
    }
    return {name: round(value, 5) for name, value in values.items()}


def measure(model: str, path: Path, wanted: dict[int, Truth]) -> Figures:
    """The figures of a network on a clip, of each kind of mask."""
    count = max(wanted) + 1
    raw = run_network(path, count, model)
    masks = {kind: VARIANTS[variant](*raw) for kind, variant in KINDS.items()}
    info, source = batches(path, count)
    alpha_of = Enlarger(info)
    found: dict[str, list[Mask]] = {kind: [] for kind in KINDS}
    for number, batch in enumerate(source):
        if number in wanted:
            height, width = wanted[number].shape
            for kind, alpha in alpha_of.of_all(batch, masks, number).items():
                found[kind].append(cv2.resize(alpha, (width, height), interpolation=cv2.INTER_AREA) > 0.5)
    return {kind: figures(each, list(wanted.values())) for kind, each in found.items()}


def card(results: Figures) -> str:
    """A table of each clip, and on what and with what it was measured."""
    parts = []
    for clip, about in results["clips"].items():
        first, last = about["frames"]
        body = [
            [
                name,
                *(
                    " / ".join(f"{found[kind][key]:.{digits}f}" for kind in KINDS)
                    for key, (_, digits) in COLUMNS.items()
                ),
            ]
            for name, found in about["figures"].items()
        ]
        title = f"`{clip}`, each of the frames {first} to {last}, of single frames' masks / of the default's:"
        parts += [title, table(["", *(title for title, _ in COLUMNS.values())], body)]
    made = f"`{results['command']}`, {results['date'][:10]}; ONNX Runtime {results['versions']['onnxruntime']}."
    return "\n\n".join([*parts, made])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help="as the program's; default: those built in that find people")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--card", type=Path, metavar="FILE", help=f"Markdown that gets the tables, after {MARKERS[0]}")
    options = parser.parse_args()
    results = circumstances("lab/training/evaluate_clips.py", sys.argv[1:]) | {"clips": {}}
    for clip in CLIPS:
        wanted = truths(clip)
        found = {name: measure(name, options.shared / clip, wanted) for name in options.model or PEOPLE}
        results["clips"][Path(clip).stem] = {"frames": [min(wanted), max(wanted)], "figures": found}
    print(card(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if options.card:
        write_card(options.card, card(results), MARKERS)


if __name__ == "__main__":
    main()
