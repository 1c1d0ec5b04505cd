"""Measures what is left of the old background at the subject's edge when it is replaced, on clips with a known matte.

    python tools/quality/spill.py --shared ../shared

The picture is put before a green of --effect color:#00b140 by the program, with the mask refined by luma alone and by
color too, and by a plain blend with the alpha of the first. All are compared with the exact composite, the person's
true colors before that green with her true alpha, around the true edge. Masks: the network's, and the true alpha at the
network's size. Also measured is how wide a rim of background the alphas keep, and how much of the person they lose.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import fmean

import cv2
import numpy as np
import quality
import synthetic
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

import measures
from circumstances import ROOT, circumstances

from segmentation import Config, Effect
from segmentation.frames import FrameBatch, MaskedBatch, Planes, VideoInfo
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor, composite

GREEN = (0, 177, 64)
FRAMES = 20


def exact(truth: synthetic.Synthetic) -> NDArray[np.float32]:
    """The person before the green, (H, W, 3) float32: `picture - (1 - a) * background` is `a * person`."""
    behind = 1 - truth.alpha[..., None]
    own = np.clip(truth.picture - behind * truth.background, 0, 255 * truth.alpha[..., None])
    return own + behind * np.float32(GREEN)


class Refined:
    """Makes alpha and composites of (a frame, its mask): with the mask refined by luma alone, and by color too."""

    def __init__(self, info: VideoInfo) -> None:
        self._color = info.color
        self._alpha_of = quality.Enlarger(info)
        self._refine = Refiner(info, quality.PIX_FMT)
        self._stage = OpenCVPostprocessor(info, quality.PIX_FMT, Effect.parse("color:#00b140"), Config(), None)

    def __call__(
        self, batch: FrameBatch, mask: NDArray[np.float32]
    ) -> tuple[dict[str, measures.Alpha], dict[str, NDArray[np.float32]]]:
        alphas, made = {}, {}
        luma = self._refine(batch, mask[None])
        for name, refined in {"luma": luma, "color": self._refine.by_color(batch, mask[None], luma)}.items():
            alphas[name] = self._alpha_of(batch, refined[0])
            made[name] = self._stage(MaskedBatch(frames=batch, masks=refined)).frames[0].planes
        made["plain"] = self._blended(batch, alphas["luma"])
        return alphas, {name: quality.to_rgb(planes, self._color) for name, planes in made.items()}  # type: ignore[arg-type]

    def _blended(self, batch: FrameBatch, alpha: measures.Alpha) -> Planes:
        weight = (alpha * 255 + 0.5).astype(np.uint8)
        chroma = cv2.dilate(weight, np.ones((2, 2), np.uint8), anchor=(0, 0))[::2, ::2]
        parts = zip(batch.frames[0].planes, self._color.from_rgb(GREEN, 8), (weight, chroma, chroma), strict=True)
        y, u, v = (composite(p, np.full_like(p, value), np.ascontiguousarray(a)) for p, value, a in parts)
        return y, u, v


def errors(
    refined: Refined, batch: FrameBatch, mask: NDArray[np.float32], truth: synthetic.Synthetic
) -> dict[str, float]:
    """Mean differences from the exact composite around the edge, in levels of 255, and rims in pixels."""
    alphas, made = refined(batch, mask)
    edge, wanted = measures.edge_band(truth.alpha), exact(truth)
    found = {name: measures.color_error(picture, wanted, edge) for name, picture in made.items()}
    for name, alpha in alphas.items():
        found[f"{name}_rim"], found[f"{name}_lost"] = measures.rim(alpha, truth.alpha)
    return found


def measure(background: Path, move: synthetic.Move, path: Path, model: str) -> dict[str, dict[str, float]]:
    """Errors by kind of mask, means over the frames."""
    truths = list(synthetic.frames(background, move, FRAMES))
    synthetic.write((t.picture for t in truths), path)
    masks, _ = quality.run_network(path, FRAMES, model)
    info, source = quality.batches(path, FRAMES)
    refined = Refined(info)
    rows: dict[str, list[dict[str, float]]] = {"network": [], "exact": []}
    for batch, mask, truth in zip(source, masks, truths, strict=True):
        small = cv2.resize(truth.alpha, mask.shape[::-1], interpolation=cv2.INTER_AREA)
        rows["network"].append(errors(refined, batch, mask, truth))
        rows["exact"].append(errors(refined, batch, small, truth))
    return {
        kind: {name: round(fmean(row[name] for row in found), 3) for name in found[0]} for kind, found in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what is left of the old background at the subject's edge.")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with corpus/")
    parser.add_argument("--model", default="person", help="the network that finds the masks, as of the program")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "spill.json")
    options = parser.parse_args()
    found = {}
    for name, (background, move, _) in quality.SYNTHETIC.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(options.shared / background, move, Path(folder) / f"{name}.mkv", options.model)
        for kind, figures in found[name].items():
            print(f"{name:8} {kind:8}", ", ".join(f"{key} {value:.2f}" for key, value in figures.items()))
    results = circumstances("quality/spill.py", sys.argv[1:]) | {"frames": FRAMES, "clips": found}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
