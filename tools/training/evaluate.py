"""Measures networks on held-out pictures whose masks were checked by eye (tools/training/truth.py).

    python tools/training/evaluate.py --network person=segmentation/models/person.onnx
    python tools/training/evaluate.py --network old=OLD.onnx --network person=segmentation/models/person.onnx \\
        --teachers --refine --json tools/results/person-model.json --card segmentation/models/README.md --sheet a.png

Networks get single pictures of at most 512 pixels by the pipeline's own stages, without smoothing over time. Their
probabilities are resized to the mask bilinearly; above 0.5 is a person. Pixels of 128 in the mask count for nothing.

IoU: intersection over union of a picture, mean over the pictures that show people. Boundary F: of DAVIS
(Perazzi et al., CVPR 2016), see `boundary_f` in tools/support/measures.py: the harmonic mean of the shares of either
outline's pixels that lie within 0.8 % of the diagonal of the other outline. Called person: the share of pixels above
0.5 in a picture that shows nobody. A picture of people counts in each of its kinds, one without people as nobody or
animal.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import segmentation  # noqa: F401 - before onnxruntime: switches its telemetry off

# isort: split
import av
import cv2
import numpy as np
import onnxruntime as ort
from av.video.reformatter import Colorspace
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

import measures
from circumstances import ROOT, circumstances
from label import TEACHERS, cached, pictures
from split import split
from truth import HERE, KINDS, PERSON, THRESHOLD, UNSURE, read_table, vote

from segmentation.frames import LIMITED, Color, Frame, FrameBatch, VideoInfo
from segmentation.media.planes import EXACT, plane_view
from segmentation.models.input_size import nearest_size, sizes_of
from segmentation.models.model import BUILT_IN, Model, load_model, open_session
from segmentation.models.tensor_form import Runner
from segmentation.options.config import Config
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

PIX_FMT = "yuv444p"  # of the pictures, as the pipeline gets them
PORTRAIT = "models/prisma-portrait.onnx"  # below the shared folder
WITHOUT_PEOPLE = ("nobody", "animal")  # kinds whose pictures are measured by false alarms
MARKERS = ("<!-- figures -->", "<!-- /figures -->")
RUNS, WARM_UP = 200, 20  # of one picture, to time a network
CELL = (240, 180)  # width and height of a picture on the sheet, pixels
SEED = 0

Picture = NDArray[np.uint8]  # (H, W, 3) RGB
Truth = NDArray[np.uint8]  # (h, w): 255 is a person, 0 is not, 128 counts for nothing
Map = NDArray[np.float32]  # (h, w): probability of a person
Mask = NDArray[np.bool_]  # (h, w)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """A held-out picture with its mask."""

    name: str
    file: str  # below the shared folder
    frame: int
    kinds: tuple[str, ...]
    truth: Truth = field(compare=False, repr=False)

    @property
    def shows_people(self) -> bool:
        return bool((self.truth == PERSON).any())

    def rows(self) -> list[str]:
        """The rows of the tables that this picture counts in."""
        if self.shows_people:
            return ["all", *(kind for kind in self.kinds if kind not in WITHOUT_PEOPLE)]
        return ["animal" if "animal" in self.kinds else "nobody"]


def read_items(part: str = "all") -> list[Item]:
    """The pictures of a split ("held", "reserve", or "all" for both)."""
    found = []
    for row in read_table():
        if part in ("all", split(row["file"])):
            mask = cv2.imread(str(HERE / f"{row['item']}.png"), cv2.IMREAD_GRAYSCALE)
            kinds = tuple(row["kinds"].split(",")) if row["kinds"] else ()
            found.append(Item(row["item"], row["file"], int(row["frame"]), kinds, mask))
    return found


def read_picture(item: Item, shared: Path, cache: Path | None) -> Picture:
    """The picture of an item from the cache, or from the shared folder where it is not there; both are the same."""
    if cache is not None and (labels := cached(cache, (item.file, item.frame))).exists():
        with np.load(labels) as stored:
            return stored["rgb"]
    return _frames(shared, item.file)[item.frame]


@lru_cache(maxsize=1)  # frames of one clip follow each other
def _frames(shared: Path, file: str) -> dict[int, Picture]:
    return dict(pictures(shared, file))


# Candidates: whatever gives a mask.


class Network:
    """An ONNX network, run on single pictures by the pipeline's own stages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.models = {(model.height, model.width): model for model in load_models(path)}
        self._config = Config(model=path)
        self._infer = {size: OnnxRuntimeInference(model, self._config, None) for size, model in self.models.items()}

    def __call__(self, rgb: Picture) -> Map:
        """The probability of a person (h, w), at the size that the network puts out."""
        info, batch = as_video(rgb)
        size = nearest_size(list(self.models), info)
        preprocess = OpenCVPreprocessor(info, PIX_FMT, self.models[size], self._config, None)
        mask: Map = self._infer[size](preprocess(batch)).masks[0]
        return mask


def load_models(path: Path) -> list[Model]:
    """The network at each input size that it names in its metadata; one of a fixed size has that alone."""
    session = open_session(path)
    said = session.get_modelmeta().custom_metadata_map.get("input_size")
    if said is None or all(isinstance(side, int) for side in session.get_inputs()[0].shape[2:]):
        return [load_model(Config(model=path))]
    return [load_model(Config(model=path, input_size=size)) for size in sizes_of(json.loads(said), path)]


def as_video(rgb: Picture) -> tuple[VideoInfo, FrameBatch]:
    """The picture as the only frame of a video: 8-bit YUV without subsampling, BT.601 in limited range."""
    height, width = rgb.shape[:2]
    yuv = av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
    yuv = yuv.reformat(format=PIX_FMT, dst_colorspace=Colorspace.ITU601, dst_color_range=LIMITED, interpolation=EXACT)
    y, u, v = (plane_view(yuv, i, np.uint8) for i in range(3))
    info = VideoInfo(
        path="", stream_index=0, width=width, height=height, pix_fmt=PIX_FMT, codec="", color=Color(range=LIMITED),
        time_base=Fraction(1, 25), rate=Fraction(25), start=Fraction(0), frames=1, frames_exact=True, end=None,
        sample_aspect_ratio=None, display_matrix=None, rotation=0, interlaced=False,
    )  # fmt: skip
    return info, FrameBatch(frames=(Frame(planes=(y, u, v), pts=0, duration=1),), index=0)


def refine(probability: Map, rgb: Picture) -> Map:
    """The mask with its edges drawn along the picture's, as the pipeline does it by default."""
    info, batch = as_video(rgb)
    return Refiner(info, PIX_FMT)(batch, probability[None])[0]


def above(probability: Map, shape: tuple[int, ...], threshold: float = 0.5) -> Mask:
    """The mask of `shape` (h, w): where a probability, resized bilinearly, exceeds the threshold."""
    return cv2.resize(probability, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR) > threshold


def teachers_masks(item: Item, cache: Path) -> dict[str, Mask]:
    """What each teacher and their vote call person; both are means over the picture and its mirror image."""
    with np.load(cached(cache, (item.file, item.frame))) as labels:
        masks = labels["masks"]
    found = {
        name: above(mask.astype(np.float32) / 255, item.truth.shape) for name, mask in zip(TEACHERS, masks, strict=True)
    }
    return found | {"vote": above(vote(masks), item.truth.shape, THRESHOLD)}


@dataclass(frozen=True)
class Candidates:
    """All that give masks: networks by name, with and without refinement, and the teachers where there is a cache."""

    networks: dict[str, Network]
    shared: Path
    cache: Path | None = None
    refine: bool = False
    teachers: bool = False

    def masks(self, item: Item, rgb: Picture) -> dict[str, Mask]:
        """The mask of each candidate (h, w), at the size of the truth."""
        found = {}
        for name, network in self.networks.items():
            probability = network(rgb)
            found[name] = above(probability, item.truth.shape)
            if self.refine:
                found[f"{name}, refined"] = above(refine(probability, rgb), item.truth.shape)
        if self.teachers:
            assert self.cache is not None
            found |= teachers_masks(item, self.cache)
        return found

    def picture(self, item: Item) -> Picture:
        return read_picture(item, self.shared, self.cache)


# Measures.


def iou(found: Mask, truth: Truth) -> float:
    """Intersection over union where the truth is known; 1 if both are empty."""
    known, person = truth != UNSURE, truth == PERSON
    union = np.count_nonzero((found | person) & known)
    return float(np.count_nonzero(found & person) / union) if union else 1.0


def boundary_f(found: Mask, truth: Truth) -> float:
    """The boundary F of tools/support/measures.py, with doubtful pixels outside both masks."""
    return measures.boundary_f(found & (truth != UNSURE), truth == PERSON)


def called_person(found: Mask, truth: Truth) -> float:
    """The share in 0..1 of pixels found among those that are certainly not a person; 0 if there are none."""
    nobody = truth == 0
    return float(found[nobody].mean()) if nobody.any() else 0.0


def score(found: Mask, item: Item) -> dict[str, float]:
    """The measures of one picture: `iou` and `boundary_f` if it shows people, else `called_person`."""
    if item.shows_people:
        return {"iou": iou(found, item.truth), "boundary_f": boundary_f(found, item.truth)}
    return {"called_person": called_person(found, item.truth)}


def measure(items: Sequence[Item], candidates: Candidates) -> Figures:
    """The figures of each candidate by row of the tables, see `summary`."""
    scores: dict[str, list[dict[str, float]]] = {}
    for item in items:
        for name, mask in candidates.masks(item, candidates.picture(item)).items():
            scores.setdefault(name, []).append(score(mask, item))
    return {name: summary(items, found) for name, found in scores.items()}


def summary(items: Sequence[Item], scores: Sequence[dict[str, float]]) -> Figures:
    """By row: the number of `pictures`, the mean of each measure, and the `worst` picture with its value.

    `scores` are those of `items`, in their order. Rows without pictures are missing.
    """
    figures = {}
    for row in ("all", *KINDS):
        found = [(item, score) for item, score in zip(items, scores, strict=True) if row in item.rows()]
        if not found:
            continue
        values = {name: round(fmean(score[name] for _, score in found), 5) for name in found[0][1]}
        key, worst = ("called_person", max) if "called_person" in values else ("iou", min)
        item, value = worst(((item, score[key]) for item, score in found), key=lambda pair: pair[1])
        figures[row] = {"pictures": len(found), **values, "worst": {"picture": item.name, key: round(value, 5)}}
    return figures


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


# Output.


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
    for key, title in (("iou", "Mean IoU"), ("boundary_f", "Boundary F, to 0.8 % of the diagonal")):
        if people:
            body = [[name, *(f"{found[row][key]:.3f}" for row in people)] for name, found in figures.items()]
            parts += [f"{title}, by what the pictures show (number of pictures):", table(head(people), body)]
    alarms = [row for row in present if row in WITHOUT_PEOPLE]
    if alarms:
        body = [[name, *(alarm(found[row]) for row in alarms)] for name, found in figures.items()]
        parts += ["Pixels called person where nobody is, mean and the worst picture:", table(head(alarms), body)]
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
        heading = ["", "input, height x width", "threads", f"least of {RUNS}", "median"]
        parts += ["Milliseconds a picture, the network alone:", table(heading, times)]
    return "\n\n".join(parts)


def alarm(found: Figures) -> str:
    worst = found["worst"]
    return f"{found['called_person']:.2%} (worst {worst['called_person']:.1%}: {shown(worst['picture'])})"


def shown(name: str) -> str:
    """The name of a picture as people read it: stills have one frame only."""
    return name.removesuffix("__00000")


def write_card(path: Path, text: str) -> None:
    """Replaces what stands between the markers of a Markdown file."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(MARKERS[0])
    _, end, after = rest.partition(MARKERS[1])
    if not begin or not end:
        raise SystemExit(f"{path}: {MARKERS[0]} and {MARKERS[1]} are needed, between which the figures go")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def card(results: Figures) -> str:
    """The tables, and on what and with what they were measured."""
    made = (
        f"`{results['command']}`, {results['date'][:10]}: {results['pictures']} pictures, split {results['split']}, "
        f"truth {results['truth']}; ONNX Runtime {results['versions']['onnxruntime']}, "
        f"{results['hardware']['cores']} cores of {results['hardware']['cpu']}."
    )
    return f"{tables(results)}\n\n{made}"


def digest(paths: Iterable[Path]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of files, one after the other."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


# The sheet.


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """Up to `count` pictures, in turn of each kind and spread over the pictures of that kind."""
    queues = [[item for item in items if kind in item.kinds] for kind in KINDS]
    golden = (5**0.5 - 1) / 2  # its multiples spread over 0..1, however many are taken
    queues = [[queue[i] for i in sorted(range(len(queue)), key=lambda i: i * golden % 1)] for queue in queues]
    chosen: dict[str, Item] = {}
    while any(queues) and len(chosen) < count:
        for queue in queues:
            while queue and queue[0].name in chosen:
                queue.pop(0)
            if queue and len(chosen) < count:
                item = queue.pop(0)
                chosen[item.name] = item
    return sorted(chosen.values(), key=lambda item: KINDS.index(item.kinds[0]))


def masked(rgb: Picture, person: Mask, doubt: Mask | None = None) -> Picture:
    """A picture, darkened where no person is, with a green outline around people; doubt is tinted."""
    inside = cv2.resize(person.astype(np.uint8), rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    view = np.where(inside[..., None] > 0, rgb, rgb // 3)
    if doubt is not None:
        tinted = cv2.resize(doubt.astype(np.uint8), rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST) > 0
        view[tinted] = view[tinted] // 2 + np.array([120, 90, 0], np.uint8)
    outlines = cv2.findContours(inside, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0]
    return cv2.drawContours(view, outlines, -1, (0, 255, 0), 1)


def framed(view: Picture, label: str) -> Picture:
    """A picture in the upper left of a grey cell, below its label."""
    width, height = CELL
    page = np.full((height + 22, width + 4, 3), 40, np.uint8)
    page[18 : 18 + view.shape[0], : view.shape[1]] = view
    return cv2.putText(page, label, (3, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1, cv2.LINE_AA)


def strip(item: Item, candidates: Candidates) -> Picture:
    """One picture, its truth, and the masks of the networks and the vote, side by side with their figures."""
    rgb = candidates.picture(item)
    found = candidates.masks(item, rgb)
    scale = min(CELL[0] / rgb.shape[1], CELL[1] / rgb.shape[0])
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    truth = masked(small, item.truth == PERSON, item.truth == UNSURE)
    cells = [
        framed(small, shown(item.name)[:34]),
        framed(truth, f"truth: {', '.join(item.kinds) or 'no kind yet'}"),
    ]
    for name in [*candidates.networks, "vote"]:
        if name in found and name != Path(PORTRAIT).stem:
            key, value = next(iter(score(found[name], item).items()))
            text = f"IoU {value:.2f}" if key == "iou" else f"{value:.1%} called person"
            cells.append(framed(masked(small, found[name]), f"{name}: {text}"))
    return np.hstack(cells)


def sheet(items: Sequence[Item], candidates: Candidates) -> Picture:
    """The strips of the pictures, two in a row."""
    strips = [strip(item, candidates) for item in items]
    strips += [np.full_like(strips[0], 40)] * (len(strips) % 2)
    return np.vstack([np.hstack(strips[i : i + 2]) for i in range(0, len(strips), 2)])


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
                f"{len(missing)} pictures are not in {options.cache}: python tools/training/label.py labels them"
            )
        networks[Path(PORTRAIT).stem] = Network(options.shared / PORTRAIT)
    candidates = Candidates(networks, options.shared, options.cache, options.refine, options.teachers)
    for line in inconsistent(items):
        print(line, file=sys.stderr)
    results = circumstances("training/evaluate.py", sys.argv[1:]) | {
        "split": options.split,
        "pictures": len(items),
        "truth": digest([HERE / "truth.tsv", *(HERE / f"{item.name}.png" for item in items)]),
        "networks": {
            name: {"bytes": network.path.stat().st_size, "sha256": digest([network.path])}
            for name, network in networks.items()
        },
        "figures": measure(items, candidates),
    }
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
