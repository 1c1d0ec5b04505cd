"""Measures what formats for training clips cost: bytes against PSNR and SSIM, of videos and of pictures.

    python tools/quality/clip_formats.py ../shared/corpus/05_default_juggle.mp4 ../shared/corpus/04_coffee.mp4

The first frames of each source, scaled to 960x540, are the reference. Videos are made by `segmentation.clips.transcode`
with keyframes 16 apart. A JPEG burst is one file with the pictures of the folder. PSNR and SSIM are those of FFmpeg's
filters on RGB.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import av
import cv2
from av.filter import Graph
from av.video.frame import VideoFrame

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation.clips.transcode import Recipe, transcode

SIZE = 960, 540
QUALITIES = {"h264": (18, 23, 28), "hevc": (20, 25, 30), "vp9": (20, 28, 36), "av1": (20, 30, 40)}
JPEGS = (95, 90, 80, 60)


class Cost(NamedTuple):
    """What a format makes of a source."""

    bytes: int
    on_disk: int  # bytes of the blocks that its files take up
    psnr: float | None  # dB; None: without loss
    ssim: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--frames", type=int, default=48)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "lab" / "results" / "clip-formats.json")
    options = parser.parse_args()
    found: dict[str, dict[str, Cost]] = {}
    for video in options.videos:
        with tempfile.TemporaryDirectory() as folder:
            for name, cost in costs(video, options.frames, Path(folder)):
                found.setdefault(name, {})[Path(video).name] = cost
                print(f"{Path(video).name} {name}: {cost}", flush=True)
    results = {name: summary(list(of.values())) | {"videos": as_lists(of)} for name, of in found.items()}
    about = circumstances(f"quality/{Path(__file__).name}", sys.argv[1:])
    measured = {"frames": options.frames, "size": SIZE, "keyframes": 16, "results": results}
    options.output.write_text(json.dumps(about | measured, indent=2) + "\n")


def costs(video: str, frames: int, folder: Path) -> Iterator[tuple[str, Cost]]:
    """Yields what each format makes of the first frames of a video."""
    source = folder / "source.mkv"
    shown = reference(video, frames, source)
    for codec, qualities in QUALITIES.items():
        for crf in qualities:
            recipe = Recipe(codec=codec, crf=crf)
            target = folder / f"{codec}-{crf}{recipe.suffix}"
            transcode(str(source), target, recipe)
            with av.open(str(target)) as container:
                yield f"{codec} crf {crf}", cost([target], shown, container.decode(video=0))
    for name, suffix, parameters in (
        *((f"JPEG folder, quality {q}", "jpg", [cv2.IMWRITE_JPEG_QUALITY, q]) for q in JPEGS),
        ("PNG folder", "png", [cv2.IMWRITE_PNG_COMPRESSION, 6]),
    ):
        where = folder / name
        where.mkdir()
        files = [where / f"{number:05d}.{suffix}" for number in range(frames)]
        for file, frame in zip(files, shown, strict=True):
            cv2.imwrite(str(file), frame.to_ndarray(format="bgr24"), parameters)
        pictures = (VideoFrame.from_ndarray(cv2.imread(str(file)), format="bgr24") for file in files)
        made = cost(files, shown, pictures)
        yield name, made
        if suffix == "jpg":
            burst = folder / "burst"
            burst.write_bytes(b"".join(file.read_bytes() for file in files))
            yield name.replace("folder", "burst"), made._replace(on_disk=on_disk([burst]))


def reference(video: str, frames: int, target: Path) -> list[VideoFrame]:
    """Writes the first frames of a video, scaled, without loss; returns them in RGB."""
    with av.open(video) as given, av.open(str(target), "w") as made:
        stream: Any = made.add_stream("ffv1", rate=30)
        (stream.width, stream.height), stream.pix_fmt = SIZE, "yuv420p"
        for number, frame in enumerate(islice(given.decode(video=0), frames)):
            picture = frame.reformat(*SIZE, "yuv420p")
            picture.pts, picture.time_base = number, Fraction(1, 30)
            made.mux(stream.encode(picture))
        made.mux(stream.encode(None))
    with av.open(str(target)) as again:
        shown = [frame.reformat(format="gbrp") for frame in again.decode(video=0)]
    return shown


def cost(files: list[Path], shown: list[VideoFrame], decoded: Iterable[VideoFrame]) -> Cost:
    """Returns the size of files, and how near their frames are to those that were to be shown."""
    errors, likenesses = [], []
    for true, frame in zip(shown, decoded, strict=True):
        other = frame.reformat(format="gbrp")
        errors.append(float(compared("psnr", true, other)["lavfi.psnr.mse_avg"]))
        likenesses.append(float(compared("ssim", true, other)["lavfi.ssim.All"]))
    error = statistics.mean(errors)
    psnr = round(10 * math.log10(255**2 / error), 2) if error else None
    size = sum(file.stat().st_size for file in files)
    return Cost(size, on_disk(files), psnr, round(statistics.mean(likenesses), 4))


def compared(measure: str, true: VideoFrame, other: VideoFrame) -> dict[str, str]:
    """Returns what one of FFmpeg's filters finds of two frames."""
    graph = Graph()
    about = {"width": true.width, "height": true.height, "format": "gbrp", "time_base": 1}
    inputs = [graph.add_buffer(**about), graph.add_buffer(**about)]  # type: ignore[arg-type]
    node, end = graph.add(measure), graph.add("buffersink")
    for place, context in enumerate(inputs):
        context.link_to(node, 0, place)
    node.link_to(end)
    graph.configure()
    for context, frame in zip(inputs, (other, true), strict=True):
        frame.pts = 0
        context.push(frame)
        context.push(None)
    return dict(end.pull().metadata)  # type: ignore[union-attr]


def on_disk(files: list[Path]) -> int:
    """Returns the bytes of the blocks of files."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)  # blocks are given out when data are written
        os.close(descriptor)
    return sum(file.stat().st_blocks * 512 for file in files)


def summary(of: list[Cost]) -> dict[str, Any]:
    """Returns the sums of bytes and the means of the measures over the sources."""
    lossless = any(one.psnr is None for one in of)
    return {
        "bytes": sum(one.bytes for one in of),
        "on_disk": sum(one.on_disk for one in of),
        "psnr": None if lossless else round(statistics.mean(one.psnr or 0 for one in of), 2),
        "ssim": round(statistics.mean(one.ssim for one in of), 4),
    }


def as_lists(of: dict[str, Cost]) -> dict[str, dict[str, Any]]:
    return {video: one._asdict() for video, one in of.items()}


if __name__ == "__main__":
    main()
