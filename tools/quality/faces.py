"""Measures how much of the faces of real clips `--anonymize faces` covers, beside deface on the same frames.

    python tools/quality/faces.py ../shared -o tools/lab/results/faces.json --deface VENV/bin/python
    python tools/quality/faces.py ../shared -o heads.json --anonymize heads --truth tools/lab/faces/heads.json

The truth, `tools/lab/faces/truth.json`, has the boxes of faces in frames of clips in a folder. A face is missed in a
frame if less than 90 % of its box is covered. deface (https://pypi.org/project/deface/) runs in an environment of its
own: its detector at its own threshold, and its ellipses at its own scale.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation import Segmenter
from segmentation.media.opening.probe import probe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

TRUTH = ROOT / "tools" / "lab" / "faces" / "truth.json"
COVERED = 0.9  # of a box
SIZES = {"below 15": (0, 15), "15 to 20": (15, 20), "20 and more": (20, 10_000)}  # pixels of a face's shorter side
Mask = NDArray[np.bool_]
_DEFACE = """
import json, sys, time
import av, numpy as np
from deface.centerface import CenterFace
from deface.deface import scale_bb
network, found, seconds = CenterFace(in_shape=None, backend="onnxrt"), [], 0.0
with av.open(sys.argv[1]) as container:
    for frame in container.decode(video=0):
        picture = frame.to_ndarray(format="rgb24")
        begin = time.perf_counter()
        boxes, _ = network(picture, threshold=0.2)
        seconds += time.perf_counter() - begin
        found.append([[float(side) for side in scale_bb(*box[:4], 1.3)] for box in boxes])
print(json.dumps({"boxes": found, "seconds": seconds}))
"""


def ours(clip: Path, folder: Path, segmenter: Segmenter) -> tuple[list[Mask], float]:
    """Returns what is covered in each frame (H, W), and the seconds of the run."""
    masks = folder / "masks.mkv"
    begin = time.perf_counter()
    segmenter.run(str(clip), folder / "out.mp4", save_masks=masks, overwrite=True)
    seconds = time.perf_counter() - begin
    with av.open(str(masks)) as container:
        grays = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    size = probe(str(clip)).upright_size
    return [_placed(gray, size) for gray in grays], seconds


def _placed(gray: NDArray[np.uint8], size: tuple[int, int]) -> Mask:
    return np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_LINEAR) > 127)


def theirs(clip: Path, python: str) -> tuple[list[Mask], float]:
    """Returns the same of deface; its seconds are those of its detector alone."""
    done = subprocess.run([python, "-c", _DEFACE, str(clip)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    with av.open(str(clip)) as container:
        shape = container.streams.video[0].height, container.streams.video[0].width
    masks = []
    for boxes in found["boxes"]:
        mask = np.zeros(shape, np.uint8)
        for left, top, right, bottom in boxes:
            center = ((left + right) / 2, (top + bottom) / 2)
            cv2.ellipse(mask, (center, (right - left, bottom - top), 0.0), 1, cv2.FILLED)
        masks.append(mask > 0)
    return masks, found["seconds"]


def measure(clips: dict[str, Any], masks: dict[str, list[Mask]]) -> dict[str, Any]:
    """Returns missed face frames by size, the longest uncovered span, and the area that is covered."""
    faces: dict[str, list[bool]] = {**{name: [] for name in SIZES}, "doubtful": []}
    longest, area, needed = 0, [], []
    for clip, truth in clips.items():
        spans: dict[int, int] = {}
        for frame, face, left, top, right, bottom, doubtful in truth["faces"]:
            mask = masks[clip][frame]
            missed = float(mask[max(0, top) : bottom, max(0, left) : right].mean()) < COVERED
            side = min(right - left, bottom - top)
            kind = "doubtful" if doubtful else next(n for n, (low, high) in SIZES.items() if low <= side < high)
            faces[kind].append(missed)
            if not doubtful and side >= 20:
                spans[face] = spans.get(face, 0) + 1 if missed else 0
                longest = max(longest, spans[face])
        for begin, end in truth["spans"]:
            for frame in range(begin, end):
                boxes = np.zeros_like(masks[clip][frame])
                for _, _, left, top, right, bottom, _ in (one for one in truth["faces"] if one[0] == frame):
                    boxes[max(0, top) : bottom, max(0, left) : right] = True
                area.append(float(masks[clip][frame].mean()))
                needed.append(float(boxes.mean()))
    missed = {name: {"missed": sum(found), "of": len(found)} for name, found in faces.items()}
    return {
        "missed": missed,
        "longest_span_20_and_more": longest,
        "covered_share": round(float(np.mean(area)), 4),
        "faces_share": round(float(np.mean(needed)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures how much of the faces of real clips is covered.")
    parser.add_argument("folder", type=Path, help="where the clips of the truth are")
    parser.add_argument("--deface", metavar="PYTHON", help="an interpreter whose environment has deface")
    parser.add_argument("--anonymize", default="faces", help="as the program takes it (default: faces)")
    parser.add_argument("--truth", type=Path, default=TRUTH, help="the file with the boxes (default: that of faces)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    clips = json.loads(options.truth.read_text(encoding="utf-8"))["clips"]
    results = circumstances("quality/faces.py", sys.argv[1:])
    masks: dict[str, dict[str, list[Mask]]] = {"segmentation": {}, "deface": {}}
    seconds = dict.fromkeys(masks, 0.0)
    frames = 0
    with tempfile.TemporaryDirectory() as folder, Segmenter(anonymize=options.anonymize) as segmenter:
        for clip in clips:
            found, took = ours(options.folder / clip, Path(folder), segmenter)
            masks["segmentation"][clip], frames = found, frames + len(found)
            seconds["segmentation"] += took
            if options.deface:
                masks["deface"][clip], took = theirs(options.folder / clip, options.deface)
                seconds["deface"] += took
    for name, found_masks in masks.items():
        if found_masks:
            results[name] = measure(clips, found_masks) | {"fps": round(frames / seconds[name], 1)}
            print(name, json.dumps(results[name]))
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
