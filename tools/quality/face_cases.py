"""Measures how much of the faces is covered in the truth's frames, made harder: turned, blurred, faded and so on.

    python tools/quality/face_cases.py ../shared -o tools/lab/results/face-cases.json --deface VENV/bin/python

`--pictures` keeps a sheet of covered frames of each case, to look at. `--deface` is as in `faces.py`; it takes no
rotation tags.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import av
import cv2
import faces
import numpy as np
from numpy.typing import NDArray

from segmentation import Segmenter
from segmentation.frames.orientation import Orientation
from segmentation.media.pictures.exif import matrix_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import circumstances

RATE = 10  # frames a second, as of the clips
TURNED = Orientation(1, False)
TILES = 5, 4  # columns and rows of the picture of 4K
TILE = 768, 540
Picture = NDArray[np.uint8]  # (H, W, 3) RGB
Box = tuple[int, int, int, int, int, int]  # face, left, top, right, bottom, whether it is doubtful


@dataclass
class Scene:
    """Frames with the boxes in each of them."""

    frames: list[Picture]
    boxes: list[list[Box]]
    options: dict[str, str] = field(default_factory=dict)  # of x264
    turned: bool = False  # whether frames are stored on their side


def scenes(folder: Path) -> dict[str, Scene]:
    """Returns the spans of the truth with faces."""
    found = {}
    for clip, truth in json.loads(faces.TRUTH.read_text(encoding="utf-8"))["clips"].items():
        with av.open(str(folder / clip)) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        for number, (begin, end) in enumerate(truth["spans"]):
            rows = [row for row in truth["faces"] if begin <= row[0] < end]
            if rows and not all(row[6] for row in rows):
                boxes = [[tuple(row[1:]) for row in rows if row[0] == at] for at in range(begin, end)]
                found[f"{Path(clip).stem}-{number}"] = Scene(frames[begin:end], boxes)
    return found


def blurred(scene: Scene) -> Scene:
    """Moves the camera by a fiftieth of the width while each picture is taken."""
    kernel = np.zeros((1, scene.frames[0].shape[1] // 50 | 1), np.float32)
    kernel[:] = 1 / kernel.size
    return replace(scene, frames=[np.asarray(cv2.filter2D(one, -1, kernel), np.uint8) for one in scene.frames])


def faded(scene: Scene) -> Scene:
    """Fades in from black over a second, and out over another one."""
    count = len(scene.frames)
    levels = [min(1.0, (1 + at) / RATE, (count - at) / RATE) for at in range(count)]
    return replace(
        scene, frames=[np.rint(one * level).astype(np.uint8) for one, level in zip(scene.frames, levels, strict=True)]
    )


def interlaced(scene: Scene) -> Scene:
    """Weaves the lines of each picture with those of the next one, as fields."""
    frames = [one.copy() for one in scene.frames]
    for one, following in zip(frames, scene.frames[1:], strict=False):
        one[1::2] = following[1::2]
    return replace(scene, frames=frames, options={"x264-params": "tff=1"})


def turned(scene: Scene) -> Scene:
    """Stores the pictures on their side, with a tag."""
    return replace(scene, turned=True)


def panned(scene: Scene) -> Scene:
    """Pans over half of the picture's width, so that faces come in at the edges; boxes of half a face or more count."""
    width = scene.frames[0].shape[1]
    wide, count = width // 4 * 2, len(scene.frames)
    frames, boxes = [], []
    for at, (one, there) in enumerate(zip(scene.frames, scene.boxes, strict=True)):
        left = round((width - wide) * at / max(1, count - 1))
        frames.append(np.ascontiguousarray(one[:, left : left + wide]))
        shown = [
            (face, max(0, box[0] - left), box[1], min(wide, box[2] - left), box[3], doubtful)
            for face, *box, doubtful in there
            if min(wide, box[2] - left) - max(0, box[0] - left) >= (box[2] - box[0]) / 2
        ]
        boxes.append(shown)
    return replace(scene, frames=frames, boxes=boxes)


def mirrored(scene: Scene) -> Scene:
    """Shows the scene in a mirror beside it."""
    width = scene.frames[0].shape[1]
    frames = [np.hstack([one, one[:, ::-1]]) for one in scene.frames]
    boxes = [
        [*there, *((100 + face, 2 * width - right, top, 2 * width - left, bottom, doubtful)
                   for face, left, top, right, bottom, doubtful in there)]
        for there in scene.boxes
    ]  # fmt: skip
    return replace(scene, frames=frames, boxes=boxes)


def crowd(all_scenes: Sequence[Scene]) -> Scene:
    """Puts scenes beside each other in a picture of 4K, each as long as the shortest."""
    chosen = list(islice(cycle(all_scenes), TILES[0] * TILES[1]))
    count = min(len(scene.frames) for scene in chosen)
    frames = [np.zeros((4 * TILE[1], 5 * TILE[0], 3), np.uint8) for _ in range(count)]
    boxes: list[list[Box]] = [[] for _ in range(count)]
    for number, scene in enumerate(chosen):
        height, width = scene.frames[0].shape[:2]
        scale = min(TILE[0] / width, TILE[1] / height)
        left, top = number % TILES[0] * TILE[0], number // TILES[0] * TILE[1]
        for at in range(count):
            small = cv2.resize(scene.frames[at], None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
            frames[at][top : top + small.shape[0], left : left + small.shape[1]] = small
            for face, x, y, right, bottom, doubtful in scene.boxes[at]:
                sides = [round(side * scale) for side in (x, y, right, bottom)]
                place = (left + sides[0], top + sides[1], left + sides[2], top + sides[3])
                boxes[at].append((100 * number + face, *place, doubtful))
    return Scene(frames, boxes)


CASES: dict[str, Callable[[Scene], Scene]] = {
    "as they are": lambda scene: scene,
    "motion blur": blurred,
    "fades": faded,
    "interlaced": interlaced,
    "rotation tag": turned,
    "enters at the edge": panned,
    "mirror": mirrored,
}


def write(scene: Scene, target: Path) -> None:
    """Encodes a scene."""
    frames = [np.ascontiguousarray(np.rot90(one, -1)) if scene.turned else one for one in scene.frames]
    with av.open(str(target), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"crf": "12", "preset": "fast", **scene.options})
        stream.height, stream.width = (side // 4 * 4 for side in frames[0].shape[:2])
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, RATE)
        if scene.turned:
            stream.set_display_matrix(matrix_of(TURNED))
        for number, picture in enumerate(frames):
            shown = av.VideoFrame.from_ndarray(picture[: stream.height, : stream.width].copy(), format="rgb24")
            shown.pts = number
            container.mux(stream.encode(shown))
        container.mux(stream.encode())


def sheet(clip: Path, target: Path) -> None:
    """Writes five frames of a covered clip below each other."""
    with av.open(str(clip)) as container:
        frames = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    chosen = [frames[round(part * (len(frames) - 1))] for part in (0.05, 0.3, 0.5, 0.7, 0.95)]
    cv2.imwrite(str(target), np.vstack(chosen))


def measured(
    found: dict[str, Scene], segmenter: Segmenter, folder: Path, pictures: Path | None, deface: str | None
) -> dict[str, Any]:
    """Returns the figures of some scenes."""
    clips, masks, theirs = {}, {}, {}
    for name, scene in found.items():
        clip = folder / "clip.mp4"
        write(scene, clip)
        masks[name], _ = faces.ours(clip, folder, segmenter)
        if deface is not None and not scene.turned:
            theirs[name], _ = faces.theirs(clip, deface)
        rows = [[at, *box] for at, there in enumerate(scene.boxes) for box in there]
        clips[name] = {"faces": rows, "spans": [[0, len(scene.frames)]]}
        if pictures is not None:
            sheet(folder / "out.mp4", pictures / f"{name}.jpg")
    beside = {"deface": faces.measure(clips, theirs)} if theirs else {}
    return faces.measure(clips, masks) | beside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the clips of the truth are")
    parser.add_argument("--only", type=lambda text: text.split(","), help="cases, by default all")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--deface", metavar="PYTHON", help="an interpreter whose environment has deface")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    results = circumstances("quality/face_cases.py", sys.argv[1:]) | {"cases": {}}
    plain = scenes(options.folder)
    cases = {name: {f"{name}-{clip}": make(scene) for clip, scene in plain.items()} for name, make in CASES.items()}
    cases["4K with 20 faces"] = {"4K": crowd([scene for scene in plain.values() if all(scene.boxes)])}
    with tempfile.TemporaryDirectory() as folder, Segmenter(anonymize="faces") as segmenter:
        for name in options.only or cases:
            found = cases[name]
            results["cases"][name] = measured(found, segmenter, Path(folder), options.pictures, options.deface)
            print(name, json.dumps(results["cases"][name]), flush=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
