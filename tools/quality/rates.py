"""Measures what each rate factor costs in size and keeps of the picture, to choose the encoders' default quality.

    python tools/quality/rates.py VIDEO... -o FILE.json

Each video is blurred and encoded as the program does it, once for each candidate. Where the mask is full, frames go
into the encoder as they were decoded, so there the output is compared with the input: PSNR and SSIM of luma (Wang et
al., "Image Quality Assessment", IEEE TIP 2004: Gaussian window of 11x11, sigma 1.5). The default is the largest factor
that keeps `LEAST` of PSNR in every video. The yardstick for sizes is libx264's medium at crf 18, which FFmpeg's guide
to H.264 says to take as visually lossless, or nearly.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from quality import batches

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import circumstances

from segmentation import Config, segment

YARDSTICK = ("h264", "medium", 18)
LEAST = 45.0  # dB
CANDIDATES: list[tuple[str, str | None, tuple[int, ...]]] = [  # codec, preset (None: the program's own), rate factors
    ("h264", "medium", (12, 14, 16, 18)),
    ("h264", None, (13, 14, 15, 16, 17, 18, 20)),
    ("h264", "veryfast", (10, 11, 12, 13, 14, 16)),
    ("h264", "ultrafast", (16, 17, 18, 19)),
    ("hevc", None, (10, 11, 12, 13, 14, 16, 19)),
    ("av1", None, (4, 6, 8, 10, 12, 15, 20)),
]
WINDOW, SIGMA = (11, 11), 1.5
_WHITE = 235  # of limited range
Plane = NDArray[np.uint8]
Area = NDArray[np.bool_]


def ssim(a: Plane, b: Plane) -> NDArray[np.float32]:
    """The SSIM of two lumas (H, W) at each pixel."""
    x, y = a.astype(np.float32), b.astype(np.float32)
    mean_x, mean_y, xx, yy, xy = (cv2.GaussianBlur(p, WINDOW, SIGMA) for p in (x, y, x * x, y * y, x * y))
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    likeness = (2 * mean_x * mean_y + c1) * (2 * (xy - mean_x * mean_y) + c2)
    return likeness / ((mean_x**2 + mean_y**2 + c1) * (xx - mean_x**2 + yy - mean_y**2 + c2))


def lumas(path: Path, frames: int) -> Iterator[Plane]:
    for batch in batches(path, frames)[1]:
        yield batch.frames[0].planes[0]


def kept(clip: Path, frames: int, folder: Path) -> list[Area]:
    """Where the mask is full, and everything within the window of SSIM too."""
    target = folder / "mask.mkv"
    segment(clip, target, effect="mask", codec="ffv1", max_frames=frames, overwrite=True)
    masks = list(lumas(target, frames))
    white = max(mask.max() for mask in masks)
    if white < _WHITE:
        raise SystemExit(f"{clip}: nothing is kept in its first {frames} frames; choose another stretch")
    return [cv2.erode((mask == white).astype(np.uint8), np.ones(WINDOW, np.uint8)) > 0 for mask in masks]


def measured(clip: Path, target: Path, areas: list[Area], config: Config) -> dict[str, float]:
    """One run: what it kept, its size and its time."""
    begin = time.process_time()
    segment(clip, target, config)
    cpu = time.process_time() - begin
    likenesses, errors = [], []
    for source, shown, area in zip(lumas(clip, len(areas)), lumas(target, len(areas)), areas, strict=True):
        if area.any():
            likenesses.append(float(ssim(source, shown)[area].mean()))
            errors.append(float(np.square(source[area].astype(float) - shown[area]).mean()))
    return {
        "ssim": round(fmean(likenesses), 5),
        "ssim_worst_frame": round(min(likenesses), 5),
        "psnr_db": round(10 * math.log10(255**2 / fmean(errors)), 2),
        "kilobits_a_second": round(_bits(target) / 1000, 1),
        "cpu_seconds": round(cpu, 2),
    }


def _bits(path: Path) -> float:
    """Bits a second of the video stream."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert stream.time_base is not None
        times = [packet.pts * stream.time_base for packet in packets if packet.pts is not None]
        length = (max(times) - min(times)) * len(times) / (len(times) - 1)
        return float(8 * sum(packet.size for packet in packets) / length)


def rows(clip: Path, frames: int, folder: Path) -> Iterator[dict[str, Any]]:
    areas = kept(clip, frames, folder)
    for codec, preset, factors in CANDIDATES:
        for factor in factors:
            config = Config(codec=codec, preset=preset, quality=factor, max_frames=frames, overwrite=True)  # type: ignore[arg-type]
            row = {"clip": clip.name, "codec": codec, "preset": preset, "quality": factor}
            yield {**row, **measured(clip, folder / "out.mp4", areas, config)}


def verdict(found: list[dict[str, Any]]) -> dict[str, Any]:
    """For each codec and preset the largest factor that keeps `LEAST` in every clip, what it keeps, and its size in
    relation to the yardstick's (geometric mean)."""
    of = {(row["codec"], row["preset"], row["quality"], row["clip"]): row for row in found}
    clips = {row["clip"] for row in found}
    best = {}
    for codec, preset, factors in CANDIDATES:
        kept = {factor: [of[codec, preset, factor, clip]["psnr_db"] for clip in clips] for factor in factors}
        good = max((factor for factor in factors if min(kept[factor]) >= LEAST), default=None)
        if good is not None:
            pairs = [(of[codec, preset, good, clip], of[(*YARDSTICK, clip)]) for clip in clips]
            size = math.exp(fmean(math.log(a["kilobits_a_second"] / b["kilobits_a_second"]) for a, b in pairs))
            best[f"{codec} {preset or 'default'}"] = {
                "quality": good, "psnr_db": [min(kept[good]), max(kept[good])], "size_to_yardstick": round(size, 3)
            }  # fmt: skip
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what rate factors cost and keep.")
    parser.add_argument("videos", nargs="+", type=Path)
    parser.add_argument("--frames", type=int, default=90, help="of each video (default: 90)")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    head = circumstances("quality/rates.py", sys.argv[1:])
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for clip in options.videos:
            for row in rows(clip, options.frames, Path(folder)):
                found.append(row)
                print(row, file=sys.stderr, flush=True)
    result = {**head, "yardstick": "h264 medium crf 18", "rows": found, "least_db": LEAST, "chosen": verdict(found)}
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["chosen"], indent=1))


if __name__ == "__main__":
    main()
