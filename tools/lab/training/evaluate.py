"""Measures networks on held-out pictures whose masks were checked by eye (tools/lab/training/truth.py).

    python tools/lab/training/evaluate.py --network person=segmentation/models/person.onnx
    python tools/lab/training/evaluate.py --network old=OLD.onnx --network person=segmentation/models/person.onnx \\
        --teachers --refine --json tools/lab/results/person-model.json --card segmentation/models/README.md \\
        --sheet a.png

What is measured, and how, is told in `held_out.py`.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import cv2
import numpy as np
from evaluation_sheet import evenly, sheet
from evaluation_tables import MARKERS, card, tables, write_card
from held_out import PORTRAIT, Candidates, Figures, Item, Network, measure, read_items

# isort: split
# Those before switch ONNX Runtime's telemetry off, and let tools/support be found.
import onnxruntime as ort
from circumstances import ROOT, circumstances
from label import cached
from split import RESERVE_CLIPS
from teachers import TEACHERS
from truth import HERE

sys.path.insert(0, str(ROOT / "tools" / "quality"))

from quality import measure_real

from segmentation.models.model import BUILT_IN, Model
from segmentation.models.tensor_form import Runner

RUNS, WARM_UP = 200, 20  # of one picture, to time a network
SEED = 0


def timed(network: Network) -> list[Figures]:
    """Milliseconds of one picture through the network alone, at each input size with 1 and 2 threads."""
    return [
        {"input": [height, width], "threads": threads, **milliseconds(model, threads)}
        for (height, width), model in network.models.items()
        for threads in (1, 2)
    ]


def milliseconds(model: Model, threads: int) -> dict[str, float]:
    """The least and the median time of a run, after a warm-up; threads wait spinning, as is ONNX Runtime's default."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
    run = Runner(session, model.input_name, model.output_name, model.form)
    noise = np.random.default_rng(SEED).random((1, 3, model.height, model.width)).astype(model.dtype)
    times = []
    for _ in range(WARM_UP + RUNS):
        begin = time.perf_counter()
        run(noise)
        times.append(1000 * (time.perf_counter() - begin))
    return {"least": round(min(times[WARM_UP:]), 3), "median": round(median(times[WARM_UP:]), 3)}


def flickers(network: Path, shared: Path, frames: int) -> Figures:
    """Flicker in percent on the first frames of each held-out clip: of single frames' masks, and of the default's."""
    found = {Path(clip).stem: measure_real(shared / clip, frames, None, str(network)) for clip in sorted(RESERVE_CLIPS)}
    return {
        clip: {"single": row["off"]["flicker_percent"], "default": row["default"]["flicker_percent"]}
        for clip, row in found.items()
    }


def inconsistent(items: Iterable[Item]) -> Iterator[str]:
    """A line for each way in which kinds and masks do not fit each other."""
    items = list(items)
    checks = {
        "have no kind yet": [item for item in items if not item.kinds],
        "are of kind nobody, but their mask shows people": [i for i in items if "nobody" in i.kinds and i.shows_people],
        "are of a kind with people, but their mask shows none": [
            i for i in items if not i.shows_people and set(i.kinds) & {"portrait", "hands", "full-body", "several"}
        ],
    }
    for what, found in checks.items():
        if found:
            yield f"{len(found)} pictures {what}: {', '.join(item.name for item in found[:5])}{' …' * (len(found) > 5)}"


def digest(paths: Iterable[Path]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of files, one after the other."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def named(text: str) -> tuple[str, Path]:
    """NAME=FILE of an option."""
    name, equals, path = text.partition("=")
    if not equals or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text}: NAME=FILE.onnx is needed, of a file that exists")
    return name, Path(path)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--network", type=named, action="append", metavar="NAME=FILE.onnx", help="default: the built-in network")
    add(
        "--teachers",
        action="store_true",
        help="also the teachers and their vote, from the cache, and the portrait network",
    )
    add("--refine", action="store_true", help="also each network's masks with their edges drawn along the picture's")
    add("--split", choices=("held", "reserve", "all"), default="all", help="see split.py (default: all)")
    add("--flicker", type=int, default=0, metavar="FRAMES", help="also the flicker of so many frames of held-out clips")
    add("--no-time", action="store_true", help="leave out the time that the networks take")
    add("--json", type=Path, metavar="FILE", help="where to write all figures")
    add(
        "--card",
        type=Path,
        metavar="FILE",
        help=f"Markdown that gets the tables, between {MARKERS[0]} and {MARKERS[1]}",
    )
    add("--sheet", type=Path, metavar="FILE.png", help="where to draw some of the pictures with their masks")
    add("--count", type=int, default=20, help="pictures on the sheet (default: 20)")
    add("--shared", type=Path, default=ROOT.parent / "shared")
    add(
        "--cache", type=Path, default=ROOT / ".train" / "labels", help="where label.py put pictures and teachers' masks"
    )
    return made


def main() -> None:
    options = parser().parse_args()
    asked = {name: Network(path) for name, path in options.network or [("person", BUILT_IN["person"])]}
    networks = dict(asked)
    items = read_items(options.split)
    if options.teachers:
        missing = [item for item in items if not cached(options.cache, (item.file, item.frame)).exists()]
        if missing:
            raise SystemExit(
                f"{len(missing)} pictures are not in {options.cache}: python tools/lab/training/label.py labels them"
            )
        taken = sorted({*TEACHERS, "vote"} & set(networks))
        if taken:
            raise SystemExit(f"{', '.join(taken)}: a teacher is called so; give the network another name")
        networks[Path(PORTRAIT).stem] = Network(options.shared / PORTRAIT)
    candidates = Candidates(networks, options.shared, options.cache, options.refine, options.teachers)
    for line in inconsistent(items):
        print(line, file=sys.stderr)
    results = circumstances("lab/training/evaluate.py", sys.argv[1:]) | {
        "split": options.split,
        "pictures": len(items),
        "truth": digest([HERE / "truth.tsv", *(HERE / f"{item.name}.png" for item in items)]),
        "networks": {
            name: {"bytes": network.path.stat().st_size, "sha256": digest([network.path])}
            for name, network in networks.items()
        },
        "figures": measure(items, candidates),
    }
    if options.flicker:
        for name, network in asked.items():
            results["figures"][name]["flicker"] = flickers(network.path, options.shared, options.flicker)
    if not options.no_time:
        for name, network in asked.items():
            results["networks"][name]["milliseconds"] = timed(network)
    print(tables(results))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if options.card:
        write_card(options.card, card(results))
    if options.sheet:
        page = sheet(evenly(items, options.count), candidates)
        cv2.imwrite(str(options.sheet), page[..., ::-1])
        print(f"{options.sheet}: {page.shape[1]}x{page.shape[0]}")


if __name__ == "__main__":
    main()
