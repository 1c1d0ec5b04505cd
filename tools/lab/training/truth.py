"""Masks of held-out pictures: begun from the teachers' vote, checked by eye and corrected by hand.

    python tools/lab/training/truth.py begin                            # writes truth/*.png, the vote as a first guess
    python tools/lab/training/truth.py show ITEM -o view.png [--region X,Y,W,H] # picture and mask at 300 % and more
    python tools/lab/training/truth.py add|cut|doubt ITEM X,Y X,Y X,Y ... # a polygon, in pixels of the mask
    python tools/lab/training/truth.py fit ITEM X,Y X,Y X,Y ...         # draws it anew in a polygon, by color (GrabCut)
    python tools/lab/training/truth.py kind ITEM full-body several ...  # what the picture shows

An item is a file's name and the number of its frame, `name__00000`, as below `tools/lab/training/truth`. A mask is a
PNG of at most 384 pixels on the longer side: 255 is a person, 0 is not, 128 can't be told or need not be and counts for
nothing. `truth.tsv` holds, for each, the file, the frame and its kinds. `truth/clips` is for `evaluate_clips.py`.
"""

import argparse
import csv
import fcntl
from pathlib import Path

import cv2
import numpy as np
from label import cached, sources, step
from split import split
from teachers import vote

HERE = Path(__file__).parent / "truth"
KINDS = ("portrait", "hands", "full-body", "several", "small", "dark", "grey", "nobody", "animal")
THRESHOLD = 0.4  # of the vote
PERSON, UNSURE = 255, 128  # values of a mask
# Of clips, these frames; of stills, all that are held out.
FRAMES = {
    "people/clips/his-girl-friday.mp4": (4, 16, 30, 44, 58, 70, 80, 90),
    "people/clips/google-paris.mp4": (15, 45, 75, 102, 129, 153, 180, 207, 234, 261, 288, 324),
    "corpus/05_default_juggle.mp4": (15, 90, 150, 225),
    "corpus/selfie_segmentation_web.mp4": (15, 90, 150, 210),
    "corpus/sample_fragmented.mp4": (0, 15),
    "clips/signing-eat.mkv": (36,), "clips/signing-night.mkv": (60,), "clips/signing-sister.mkv": (60,),
}  # fmt: skip


def items(shared: Path) -> list[tuple[str, int]]:
    """All held-out (file, frame)."""
    found = []
    for name in sources(shared):
        if split(name) == "train":
            continue
        numbers = (0,) if "/stills/" in name else FRAMES[name]
        assert all(number % step(name) == 0 for number in numbers if "/stills/" not in name), name
        found += [(name, number) for number in numbers]
    return found


def path_of(item: tuple[str, int]) -> Path:
    """Where an item's mask is."""
    return HERE / f"{Path(item[0]).parent.name}-{Path(item[0]).stem}__{item[1]:05d}.png"


def read_table() -> list[dict[str, str]]:
    """The rows of `truth.tsv`: item, file, frame, kinds."""
    with (HERE / "truth.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def write_table(rows: list[dict[str, str]]) -> None:
    with (HERE / "truth.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("item", "file", "frame", "kinds"), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def begin(shared: Path, cache: Path) -> None:
    HERE.mkdir(exist_ok=True)
    kinds = {row["item"]: row["kinds"] for row in read_table()} if (HERE / "truth.tsv").exists() else {}
    rows = []
    for item in items(shared):
        target = path_of(item)
        if not target.exists():
            with np.load(cached(cache, item)) as labels:
                cv2.imwrite(str(target), np.where(vote(labels["masks"]) > THRESHOLD, 255, 0).astype(np.uint8))
        rows.append({"item": target.stem, "file": item[0], "frame": str(item[1]), "kinds": kinds.get(target.stem, "")})
    write_table(rows)


def show(picture: np.ndarray, mask: np.ndarray, region: tuple[int, int, int, int]) -> np.ndarray:
    """The picture, then with the mask's outline and all else darkened, both with a grid in pixels of the mask."""
    x, y, width, height = region
    zoom = max(3, 1080 // width)
    scale = picture.shape[1] / mask.shape[1]
    left, top, right, bottom = (round(v * scale) for v in (x, y, x + width, y + height))
    large = cv2.resize(picture[top:bottom, left:right], (width * zoom, height * zoom), interpolation=cv2.INTER_CUBIC)
    part = cv2.resize(
        mask[y : y + height, x : x + width], (width * zoom, height * zoom), interpolation=cv2.INTER_NEAREST
    )
    over = np.where(part[..., None] == PERSON, large, large // 3)
    over[part == UNSURE] = over[part == UNSURE] // 2 + np.array([0, 90, 120], np.uint8)
    outlines = cv2.findContours((part == PERSON).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)[0]
    cv2.drawContours(over, outlines, -1, (0, 255, 0), 1)
    every = 10 if width <= 160 else 20
    for view in (large, over):
        for column in range(-(-x // every) * every, x + width, every):
            at = (column - x) * zoom
            cv2.putText(view, str(column), (at, 9), cv2.FONT_HERSHEY_SIMPLEX, 0.33, (0, 255, 255), 1)
            cv2.line(view, (at, 10), (at, 16), (0, 255, 255), 1)
        for row in range(-(-y // every) * every, y + height, every):
            at = (row - y) * zoom
            cv2.putText(view, str(row), (0, at + 4), cv2.FONT_HERSHEY_SIMPLEX, 0.33, (0, 255, 255), 1)
            for column in range(-(-x // every) * every, x + width, every):
                cv2.circle(view, ((column - x) * zoom, at), 1, (0, 255, 255), -1)
    return np.vstack([large, over]) if width >= height else np.hstack([large, over])


def fit(picture: np.ndarray, mask: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The mask, drawn anew where `inside` by GrabCut: colors of the picture, and the mask as the first guess."""
    small = cv2.resize(picture, (mask.shape[1], mask.shape[0]), interpolation=cv2.INTER_AREA)
    labels = np.where(mask == 255, cv2.GC_FGD, cv2.GC_BGD).astype(np.uint8)
    labels[inside & (mask == 255)] = cv2.GC_PR_FGD
    labels[inside & (mask != 255)] = cv2.GC_PR_BGD
    cv2.grabCut(small, labels, None, np.zeros((1, 65)), np.zeros((1, 65)), 4, cv2.GC_INIT_WITH_MASK)
    found = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD))
    return np.where(inside, np.where(found, 255, 0), mask).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("begin", "show", "add", "cut", "doubt", "fit", "kind", "blank"))
    parser.add_argument("item", nargs="?")
    parser.add_argument("values", nargs="*", help="corners of a polygon as X,Y, or kinds")
    parser.add_argument("-o", "--output", type=Path, default=Path("view.png"))
    parser.add_argument("--region")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--cache", type=Path, default=Path(".train/labels"))
    options = parser.parse_args()
    if options.action == "begin":
        begin(options.shared, options.cache)
        return
    rows = read_table()
    row = next(row for row in rows if row["item"] == options.item)
    target = HERE / f"{row['item']}.png"
    if options.action == "kind":
        unknown = set(options.values) - set(KINDS)
        if unknown:
            raise SystemExit(f"{', '.join(sorted(unknown))}: no such kind; choose from {', '.join(KINDS)}")
        with (HERE / "truth.tsv").open("r+") as held:  # several people may be at it
            fcntl.flock(held, fcntl.LOCK_EX)
            rows = read_table()
            next(r for r in rows if r["item"] == options.item)["kinds"] = ",".join(options.values)
            write_table(rows)
        return
    mask = cv2.imread(str(target), cv2.IMREAD_GRAYSCALE)
    with np.load(cached(options.cache, (row["file"], int(row["frame"])))) as labels:
        picture = np.ascontiguousarray(labels["rgb"][..., ::-1])
    if options.action == "show":
        height, width = mask.shape
        region = tuple(map(int, options.region.split(","))) if options.region else (0, 0, width, height)
        cv2.imwrite(str(options.output), show(picture, mask, region))
        return
    if options.action == "blank":
        mask[:] = 0
    else:
        corners = np.array([[float(v) for v in corner.split(",")] for corner in options.values])
        inside = np.zeros_like(mask)
        cv2.fillPoly(inside, [np.round(corners * 16).astype(np.int32)], 255, shift=4)
        if options.action == "fit":
            mask = fit(picture, mask, inside > 0)
        else:
            mask[inside > 0] = {"add": PERSON, "cut": 0, "doubt": UNSURE}[options.action]
    cv2.imwrite(str(target), mask)


if __name__ == "__main__":
    main()
