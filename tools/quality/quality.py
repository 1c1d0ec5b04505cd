"""Measures how steady masks are and how well they and the blur fit the subject, on clips in motion.

    python tools/quality/quality.py --shared ../shared

Variants of the masks are compared, all made from the same run of the network and enlarged by the program itself: `off`,
each frame's own; `causal`, the running average that is usually taken against flicker; `smooth`, the program's, at
several strengths; and `default`, at half strength with the edges drawn along the picture's.
On real clips: flicker, and agreement of the outline with another network's. On clips with a known alpha
(tools/quality/synthetic.py): errors of the matte, lag, and the halo around the subject. The measures are defined in
tools/support/measures.py.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import cv2
import numpy as np
import synthetic
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

import measures
from circumstances import ROOT, circumstances

from segmentation import Config, Effect
from segmentation.frames import FULL, Color, FrameBatch, MaskedBatch, Planes, VideoInfo
from segmentation.media.opening.probe import probe
from segmentation.models.model import load_model
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.masks.smoothing import HostSmoothing, small_lumas
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor, composite

Masks = NDArray[np.float32]  # (T, h, w), as the network puts them out
Lumas = NDArray[np.float32]  # of the network's input, as `--smooth` takes them
Figures = dict[str, Any]

TEACHER = "models/prisma-portrait.onnx"
PIX_FMT = "yuv420p"
REAL = {  # clip: frames
    "corpus/05_default_juggle.mp4": 120,
    "corpus/04_coffee.mp4": 120,
    "corpus/selfie_segmentation_web.mp4": 120,
    "clips/person-walking.mp4": 200,
    "clips/signing-night.mkv": 68,
    "clips/signing-eat.mkv": 47,
    "people/clips/retail-from-above.mp4": 101,  # a shop
    "people/clips/person-bicycle-car.mp4": 41,
}
# Name: background, movement in pixels of 1280x720, the sensor's noise in levels.
SYNTHETIC = {
    "still": ("corpus/bottle-detection.mp4", synthetic.Move(0, 0, 60), 4.0),
    "sway": ("corpus/hdr10-av1.mp4", synthetic.Move(40, 10, 90), 2.0),
    "fast": ("corpus/bottle-detection.mp4", synthetic.Move(220, 0, 32), 2.0),  # 27.5 pixels a frame
}
SYNTHETIC_FRAMES = 60
CAUSAL = 0.6  # of the running average stays at each frame
STRENGTH = 25.0  # of the blur whose halo is measured
HALO_STRIDE = 10  # frames
LAG_SIZE = (256, 256)


def causal(masks: Masks, lumas: Lumas) -> Masks:
    """The exponential running average of masks: past frames only."""
    smoothed = masks.copy()
    for i in range(1, len(masks)):
        smoothed[i] = CAUSAL * smoothed[i - 1] + (1 - CAUSAL) * masks[i]
    return smoothed


def smooth(strength: float) -> Callable[[Masks, Lumas], Masks]:
    """As `--smooth` does it, all frames being one batch."""
    backend = HostSmoothing(load_model(Config()), strength)
    return lambda masks, lumas: backend.average(list(zip(masks, lumas, strict=True)), 0, len(masks))


VARIANTS: dict[str, Callable[[Masks, Lumas], Masks]] = {
    "off": lambda masks, lumas: masks,
    "causal": causal,
    "smooth 0.5": smooth(0.5),
    "smooth 1": smooth(1),
    "default": smooth(0.5),
}
REFINED = {"default"}  # variants whose edges are drawn along the picture's, as `--refine` does it


def batches(path: Path, count: int) -> tuple[VideoInfo, Iterator[FrameBatch]]:
    """The first frames of a video, one a batch, as the pipeline gets them."""
    config, info = Config(mode="baseline", batch_size=1, max_frames=count), probe(str(path))
    return info, iter(make_plan(config).decode.implementation(info, PIX_FMT, config, None))


def run_network(path: Path, count: int, model_name: str = "person", *, mirror: bool = False) -> tuple[Masks, Lumas]:
    """A network's mask of each frame, by the program's own stages; with `mirror`, averaged with the mirror image's."""
    config = Config(mode="baseline", model=model_name)
    info, source = batches(path, count)
    plan, model = make_plan(config), load_model(config, info)
    preprocess = plan.preprocess.implementation(info, PIX_FMT, model, config, None)
    infer = plan.infer.implementation(model, config, None)

    def run(batch: FrameBatch) -> tuple[Masks, Lumas]:
        tensor = preprocess(batch)
        mask = infer(tensor).masks[0]
        if mirror:
            mask = (mask + infer(np.ascontiguousarray(tensor[..., ::-1])).masks[0, :, ::-1]) / 2
        return mask, small_lumas(tensor, model, mask.shape)[0]

    with ThreadPoolExecutor(infer.workers) as pool:
        masks, lumas = zip(*pool.map(run, source), strict=True)
    return np.stack(masks), np.stack(lumas)


class Enlarger:
    """Makes (a frame, its mask) the alpha (H, W) that the program composites with."""

    def __init__(self, info: VideoInfo) -> None:
        # The effect `mask`, in full range: its luma is alpha.
        full = replace(info, color=Color(range=FULL))
        self._postprocess = OpenCVPostprocessor(full, PIX_FMT, Effect("mask"), Config(), None)
        self._refine = Refiner(info, PIX_FMT)

    def __call__(self, batch: FrameBatch, mask: NDArray[np.float32]) -> measures.Alpha:
        (shown,) = self._postprocess(MaskedBatch(frames=batch, masks=mask[None])).frames
        return shown.planes[0].astype(np.float32) / 255

    def refined(self, batch: FrameBatch, mask: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._refine(batch, mask[None])[0]

    def of_all(self, batch: FrameBatch, variants: dict[str, Masks], number: int) -> dict[str, measures.Alpha]:
        """The alpha of each variant of one frame."""
        small = {name: masks[number] for name, masks in variants.items()}
        small |= {name: self.refined(batch, small[name]) for name in REFINED}
        return {name: self(batch, mask) for name, mask in small.items()}


def means(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    rows = list(rows)
    return {name: round(fmean(row[name] for row in rows), 5) for name in rows[-1]}


def measure_real(path: Path, count: int, teacher: Path | None, model_name: str = "person") -> Figures:
    """Flicker of each variant in percent, and its outline's F-score against the teacher's if there is one."""
    found = run_network(path, count, model_name)
    variants = {name: variant(*found) for name, variant in VARIANTS.items()}
    truth = run_network(path, count, str(teacher), mirror=True)[0] if teacher else None
    info, source = batches(path, count)
    alpha_of = Enlarger(info)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    before: dict[str, measures.Alpha] = {}
    luma = None
    for i, batch in enumerate(source):
        now = alpha_of.of_all(batch, variants, i)
        previous, luma = luma, np.ascontiguousarray(batch.frames[0].planes[0])
        if previous is not None:
            motion = measures.Motion(previous, luma)
            wanted = None if truth is None else cv2.resize(truth[i], luma.shape[::-1]) > 0.5
            for name, alpha in now.items():
                row = {"flicker_percent": 100 * measures.flicker(before[name], alpha, motion)}
                if wanted is not None:
                    row["boundary_f"] = measures.boundary_f(alpha > 0.5, wanted)
                rows[name].append(row)
        before = now
    return {"frames": i + 1, **{name: means(row) for name, row in rows.items()}}


def measure_synthetic(
    background: Path, move: synthetic.Move, noise: float, path: Path, model_name: str = "person"
) -> Figures:
    """Errors of each variant's matte, its lag, and what color the subject leaves in the blur around it."""
    truths = list(synthetic.frames(background, move, SYNTHETIC_FRAMES, noise))
    synthetic.write((t.picture for t in truths), path)
    found = run_network(path, SYNTHETIC_FRAMES, model_name)
    variants = {name: variant(*found) for name, variant in VARIANTS.items()}
    info, source = batches(path, SYNTHETIC_FRAMES)
    alpha_of = Enlarger(info)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    small: dict[str, list[measures.Alpha]] = {name: [] for name in [*variants, "truth"]}
    halos: dict[str, list[dict[str, float]]] = {"network": [], "exact": []}
    before: dict[str, measures.Alpha] = {}
    for i, (batch, truth) in enumerate(zip(source, truths, strict=True)):
        now = alpha_of.of_all(batch, variants, i)
        small["truth"].append(cv2.resize(truth.alpha, LAG_SIZE, interpolation=cv2.INTER_AREA))
        for name, alpha in now.items():
            small[name].append(cv2.resize(alpha, LAG_SIZE, interpolation=cv2.INTER_AREA))
            if before:
                rows[name].append(errors(alpha, truth.alpha, before[name], truths[i - 1].alpha))
        if i % HALO_STRIDE == 0:
            for kind, mask in (("network", variants["default"][i]), ("exact", small["truth"][-1])):
                halos[kind].append(halo(info, batch, alpha_of.refined(batch, mask), truth))
        before = now
    figures: Figures = {name: means(row) for name, row in rows.items()}
    if move.across > 100:
        for name in variants:
            figures[name]["lag_frames"] = round(measures.lag(small[name], small["truth"]), 3)
    return {"frames": len(truths), **figures, "halo": {kind: means(errors) for kind, errors in halos.items()}}


def errors(alpha: measures.Alpha, truth: measures.Alpha, *before: measures.Alpha) -> dict[str, float]:
    return {
        "sad": measures.sad(alpha, truth),
        "mse": measures.mse(alpha, truth),
        "gradient": measures.gradient_error(alpha, truth),
        "dtssd": measures.dtssd(before[0], alpha, before[1], truth),
        "boundary_f": measures.boundary_f(alpha > 0.5, truth > 0.5),
    }


def halo(info: VideoInfo, batch: FrameBatch, mask: NDArray[np.float32], truth: synthetic.Synthetic) -> dict[str, float]:
    """How far the blur around the subject is from the blur of what is behind it: ours, and that of the whole frame."""
    sigma = STRENGTH * min(truth.alpha.shape) / 1080
    wanted = cv2.GaussianBlur(truth.background, (0, 0), sigma).astype(np.float32)
    area = measures.band_outside(truth.alpha)
    postprocess = OpenCVPostprocessor(info, PIX_FMT, Effect("blur", strength=STRENGTH), Config(), None)
    ours = postprocess(MaskedBatch(frames=batch, masks=mask[None])).frames[0].planes
    weight = np.dstack([(Enlarger(info)(batch, mask) * 255 + 0.5).astype(np.uint8)] * 3)
    plain = composite(truth.picture, cv2.GaussianBlur(truth.picture, (0, 0), sigma), weight)
    return {
        "plain": measures.color_error(plain, wanted, area),
        "ours": measures.color_error(to_rgb(ours, info.color), wanted, area),
    }


def to_rgb(planes: Planes, color: Color) -> NDArray[np.float32]:
    """(H, W, 3) float32 in 0..255."""
    size = planes[0].shape[::-1]
    yuv = cv2.merge([cv2.resize(plane, size, interpolation=cv2.INTER_LINEAR) for plane in planes])
    return np.clip(cv2.transform(yuv.astype(np.float32), color.yuv_to_rgb(8)), 0, 1) * 255


def table(results: Figures) -> Iterator[str]:
    """A line for each clip and variant."""
    for group in ("real", "synthetic"):
        for clip, figures in results[group].items():
            for variant in VARIANTS:
                shown = "  ".join(f"{name} {value:.4g}" for name, value in figures[variant].items())
                yield f"{clip:28} {variant:10} {shown}"
            for kind, found in figures.get("halo", {}).items():
                yield f"{clip:28} halo, {kind} mask: plain blur {found['plain']:.2f}, ours {found['ours']:.2f} levels"
    for name in results["missing"]:
        yield f"{name}: not here, left out"


def measure(shared: Path, model_name: str) -> Figures:
    """All figures of a network; clips that are not below `shared` are named in `missing`."""
    results: Figures = {"real": {}, "synthetic": {}, "missing": []}
    needed = [*REAL, *(background for background, _, _ in SYNTHETIC.values()), TEACHER]
    results["missing"] = sorted({name for name in needed if not (shared / name).is_file()})
    teacher = shared / TEACHER if TEACHER not in results["missing"] else None
    for name, count in REAL.items():
        if name not in results["missing"]:
            print(f"  {name}", file=sys.stderr)
            results["real"][Path(name).stem] = measure_real(shared / name, count, teacher, model_name)
    for name, (background, move, noise) in SYNTHETIC.items():
        if background not in results["missing"]:
            print(f"  synthetic, {name}", file=sys.stderr)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{name}.mkv"
                results["synthetic"][name] = measure_synthetic(shared / background, move, noise, path, model_name)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures masks and blur in motion; writes JSON and prints a table.")
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with clips/, corpus/, models/")
    parser.add_argument("--model", default="person", help="the network that finds the masks, as of the program")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "quality.json")
    options = parser.parse_args()
    results = (
        circumstances("quality/quality.py", sys.argv[1:]) | {"causal": CAUSAL} | measure(options.shared, options.model)
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
