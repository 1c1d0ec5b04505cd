"""Measures what is left of the old background at the subject's edge when it is replaced, on clips with a known matte.

    python tools/quality/spill.py --shared ../shared

The picture is put before a green of --effect color:#00b140 by the program, and by a plain blend with the same alpha;
both are compared with the exact composite, the person's true colors before that green with her true alpha, where the
program's alpha says that the edge is. Masks: the network's, and the true alpha at the network's size.
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
from segmentation.frames import FrameBatch, MaskedBatch, VideoInfo
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor, composite

GREEN = (0, 177, 64)
FRAMES = 20


def exact(truth: synthetic.Synthetic) -> NDArray[np.float32]:
    """The person before the green, (H, W, 3) float32: `picture - (1 - a) * background` is `a * person`."""
    behind = 1 - truth.alpha[..., None]
    own = np.clip(truth.picture - behind * truth.background, 0, 255 * truth.alpha[..., None])
    return own + behind * np.float32(GREEN)


def errors(
    info: VideoInfo, batch: FrameBatch, mask: NDArray[np.float32], truth: synthetic.Synthetic
) -> dict[str, float]:
    """Mean differences from the exact composite within the edge, in levels of 255: a plain blend's, and ours."""
    alpha = quality.Enlarger(info)(batch, mask)
    edge = (alpha > 0) & (alpha < 1)
    stage = OpenCVPostprocessor(info, quality.PIX_FMT, Effect.parse("color:#00b140"), Config(), None)
    ours = stage(MaskedBatch(frames=batch, masks=mask[None])).frames[0].planes
    weight = (alpha * 255 + 0.5).astype(np.uint8)
    chroma = cv2.dilate(weight, np.ones((2, 2), np.uint8), anchor=(0, 0))[::2, ::2]
    parts = zip(batch.frames[0].planes, info.color.from_rgb(GREEN, 8), (weight, chroma, chroma), strict=True)
    plain = tuple(composite(plane, np.full_like(plane, value), np.ascontiguousarray(a)) for plane, value, a in parts)
    wanted = exact(truth)
    return {
        "plain": measures.color_error(quality.to_rgb(plain, info.color), wanted, edge),  # type: ignore[arg-type]
        "ours": measures.color_error(quality.to_rgb(ours, info.color), wanted, edge),
    }


def measure(background: Path, move: synthetic.Move, path: Path) -> dict[str, dict[str, float]]:
    """Errors by kind of mask, means over the frames."""
    truths = list(synthetic.frames(background, move, FRAMES))
    synthetic.write((t.picture for t in truths), path)
    masks, _ = quality.run_network(path, FRAMES)
    info, source = quality.batches(path, FRAMES)
    rows: dict[str, list[dict[str, float]]] = {"network": [], "exact": []}
    for batch, mask, truth in zip(source, masks, truths, strict=True):
        small = cv2.resize(truth.alpha, mask.shape[::-1], interpolation=cv2.INTER_AREA)
        rows["network"].append(errors(info, batch, mask, truth))
        rows["exact"].append(errors(info, batch, small, truth))
    return {
        kind: {name: round(fmean(row[name] for row in found), 3) for name in found[0]} for kind, found in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what is left of the old background at the subject's edge.")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with corpus/")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "spill.json")
    options = parser.parse_args()
    found = {}
    for name, (background, move, _) in quality.SYNTHETIC.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(options.shared / background, move, Path(folder) / f"{name}.mkv")
        for kind, figures in found[name].items():
            print(f"{name:8} {kind:8} plain blend {figures['plain']:.2f}, ours {figures['ours']:.2f} levels")
    results = circumstances("quality/spill.py", sys.argv[1:]) | {"frames": FRAMES, "clips": found}
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
