"""Measures what each rate factor costs in size and keeps of the picture, to choose the encoders' default quality.

    python tools/quality/rates.py VIDEO... -o FILE.json

Each video is blurred and encoded as the program does it, once for each candidate. Where the mask is full, frames go
into the encoder as they were decoded, so there the output is compared with the input: PSNR and SSIM of luma (Wang et
al., "Image Quality Assessment", IEEE TIP 2004: Gaussian window of 11x11, sigma 1.5).

The default is the smallest factor with which no output is larger than `MOST` times its input, frame by frame the same
stretch. `--quality high` is the largest factor that keeps `LEAST` of PSNR in every video. The yardstick is libx264's
medium at crf 18, which FFmpeg's guide to H.264 says to take as visually lossless, or nearly.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
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
MOST = 1.5
CANDIDATES: list[tuple[str, str | None, tuple[int, ...]]] = [  # codec, preset (None: the program's own), rate factors
    ("h264", "medium", (18,)),
    ("h264", None, (16, 17, 23, 24, 25, 26)),
    ("hevc", None, (11, 12, 18, 19, 20, 21, 22)),
    ("av1", None, (8, 10, 18, 21, 24, 27, 30)),
]
WINDOW, SIGMA = (11, 11), 1.5
KEPT = ("psnr_db", "ssim", "of_input")
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
    """One run: what it kept, its size, also as a part of the input's, and its time."""
    begin = time.process_time()
    segment(clip, target, config)
    cpu = time.process_time() - begin
    likenesses, errors = [], []
    for source, shown, area in zip(lumas(clip, len(areas)), lumas(target, len(areas)), areas, strict=True):
        if area.any():
            likenesses.append(float(ssim(source, shown)[area].mean()))
            errors.append(float(np.square(source[area].astype(float) - shown[area]).mean()))
    bits = _bits(target, len(areas))
    return {
        "ssim": round(fmean(likenesses), 5),
        "ssim_worst_frame": round(min(likenesses), 5),
        "psnr_db": round(10 * math.log10(255**2 / fmean(errors)), 2),
        "kilobits_a_second": round(bits / 1000, 1),
        "of_input": round(bits / _bits(clip, len(areas)), 3),
        "cpu_seconds": round(cpu, 2),
    }


def _bits(path: Path, frames: int) -> float:
    """Bits a second of the video stream's first packets in presentation order."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size and packet.pts is not None]
        assert stream.time_base is not None
        packets = sorted(packets, key=lambda packet: packet.pts or 0)[:frames]
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


def span(values: Iterable[float]) -> list[float]:
    """The least and the largest."""
    found = sorted(values)
    return [found[0], found[-1]]


def verdict(found: list[dict[str, Any]]) -> dict[str, Any]:
    """For each codec with the program's own preset: the factors by the rules above, with what they keep and cost."""
    best: dict[str, Any] = {}
    for codec, preset, factors in CANDIDATES:
        rows = {factor: [r for r in found if (r["codec"], r["preset"], r["quality"]) == (codec, preset, factor)]
                for factor in factors}  # fmt: skip
        good = [factor for factor in factors if min(row["psnr_db"] for row in rows[factor]) >= LEAST]
        small = [factor for factor in factors if max(row["of_input"] for row in rows[factor]) <= MOST]
        chosen = {"high": max(good, default=None), "default": min(small, default=None)}
        best[f"{codec} {preset or 'default'}"] = {
            name: {"quality": factor, **{key: span(row[key] for row in rows[factor]) for key in KEPT}}
            for name, factor in chosen.items()
            if factor is not None
        }
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
