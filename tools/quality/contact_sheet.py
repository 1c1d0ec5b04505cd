"""Shows what the pipeline does to a video: a PNG with frames below each other; input, mask and output side by side.

    python tools/quality/contact_sheet.py samples/astronaut.mp4 -o sheet.png
    python tools/quality/contact_sheet.py in.mp4 -o edge.png --successive --start 2.5 --crop 300,40,200,150 --zoom 3

The real pipeline makes the masks and the outputs, written losslessly, so that the codec adds nothing to what is seen.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from av import VideoFrame
from numpy.typing import NDArray

from segmentation import Config, SegmentationError, segment
from segmentation.frames import FULL, VideoInfo
from segmentation.media.opening.open_input import open_input, video_stream
from segmentation.media.opening.probe import probe
from segmentation.stages.decode.timestamps import Timeline

Picture = NDArray[np.uint8]  # (h, w, 3) RGB
Crop = tuple[int, int, int, int]  # x, y, width, height in pixels of the upright picture

GAP = 4  # pixels between the cells
LABEL_HEIGHT = 20  # pixels above each
CELL_WIDTH = 480  # pixels, unless --zoom says more or less


def extent(path: str, info: VideoInfo) -> tuple[int, float]:
    """The number of frames of a video, and the seconds from its start to the start of its last frame.

    Both come from its packets: what containers say of their length includes the sound, and raw H.264 says nothing.
    """
    with open_input(path) as container:
        packets = [packet.pts for packet in container.demux(video_stream(container, path)) if packet.size]
    times = [pts for pts in packets if pts is not None]
    length = max(times) * info.time_base - info.start if times else (len(packets) - 1) / info.rate
    return len(packets), max(0.0, float(length))


def stretches(frames: int, length: float, count: int, start: float, *, successive: bool) -> list[tuple[float, int]]:
    """(start in seconds, number of frames) of what is shown: one run of frames, or single ones evenly spread.

    `frames` and `length` are those of `extent`; of a video with fewer than `count` frames each is shown once.
    """
    if successive or frames == 1:
        return [(start, count)]
    count = min(count, frames)
    return [(start + max(0.0, length - start) * (i + 0.5) / count, 1) for i in range(count)]


def pictures(path: Path | str, start: float, count: int) -> Iterator[tuple[float, Picture]]:
    """`count` frames from `start` seconds on, upright RGB, each with its time in seconds; 0 is all frames.

    Frames without a timestamp get one as in the pipeline. A frame of another size is resized to that of the first.
    """
    info = probe(str(path))
    timeline = Timeline(info, Config(start=start))
    with open_input(str(path)) as container:
        stream = video_stream(container, str(path))
        if timeline.first is not None and container.start_time is not None:  # raw H.264 has no times to seek by
            container.seek(timeline.first, stream=stream)
        shown = 0
        for frame in container.decode(stream):
            pts = timeline.place(frame.pts)
            if timeline.begun(pts):
                rgb = to_rgb(frame, info.width, info.height)
                yield float(pts * info.time_base - info.start), np.rot90(rgb, info.rotation // 90)
                shown += 1
                if shown == count:
                    return


def to_rgb(frame: VideoFrame, width: int, height: int) -> Picture:
    """A frame in RGB by its own matrix and range, as a player shows it (HDR is not mapped to less)."""
    if frame.format.is_rgb:
        return frame.to_ndarray(format="rgb24")
    full = 2 if frame.color_range == FULL or frame.format.name.startswith("yuvj") else 1
    rgb = frame.reformat(width, height, "rgb24", interpolation="BICUBIC", src_color_range=full, dst_color_range=2)
    return rgb.to_ndarray()


def cell(picture: Picture, label: str, crop: Crop | None, zoom: float | None) -> Picture:
    """`picture` cut to `crop` and enlarged, with its label above it."""
    if crop is not None:
        x, y, width, height = crop
        picture = picture[y : y + height, x : x + width]
    zoom = zoom or CELL_WIDTH / picture.shape[1]
    # Enlarged pixels stay squares: an edge is looked at as it is.
    method = cv2.INTER_NEAREST if zoom > 1 else cv2.INTER_AREA
    picture = cv2.resize(np.ascontiguousarray(picture), None, fx=zoom, fy=zoom, interpolation=method)
    picture = cv2.copyMakeBorder(picture, LABEL_HEIGHT, GAP, 0, GAP, cv2.BORDER_CONSTANT, value=(60, 60, 60))
    return cv2.putText(picture, label, (6, LABEL_HEIGHT - 6), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (255,) * 3, 1)


def rows(path: str, options: argparse.Namespace) -> Iterator[Picture]:
    """The rows of one video: input, mask and output of each frame."""
    name = Path(path).name
    with tempfile.TemporaryDirectory() as folder:
        shown = stretches(*extent(path, probe(path)), options.frames, options.start, successive=options.successive)
        for start, count in shown:
            columns = [[(f"{name} {t:.3f} s", p) for t, p in pictures(path, start, count)]]
            for effect in ("mask", options.effect):
                target = Path(folder) / "out.mkv"
                config = Config(model=options.model, effect=effect, start=start, max_frames=count, overwrite=True)
                codec = None if effect == "cutout" else "ffv1"  # that of a cut-out in .mkv anyway
                segment(path, target, config, codec=codec, smooth=options.smooth, refine=options.refine)
                columns.append([(effect, picture) for _, picture in pictures(target, 0, count)])
            for row in zip(*columns, strict=True):
                yield np.hstack([cell(picture, label, options.crop, options.zoom) for label, picture in row])


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts input, mask and output of some frames side by side in a PNG.")
    add = parser.add_argument
    add("inputs", nargs="+", metavar="INPUT", help="videos")
    add("-o", "--output", type=Path, required=True, help="the PNG")
    add("--frames", type=int, default=6, help="frames of each video (default: 6)")
    add("--successive", action="store_true", help="successive frames, to see flicker, instead of evenly spread ones")
    add("--start", type=float, default=0.0, metavar="SECONDS", help="where to begin")
    add("--crop", type=lambda text: tuple(map(int, text.split(","))), metavar="X,Y,W,H", help="only this part")
    add("--zoom", type=float, help=f"enlarge by this (default: cells become {CELL_WIDTH} pixels wide)")
    add("--effect", default="blur", help="of the third column (default: blur)")
    add(
        "--smooth",
        type=float,
        default=Config().smooth,
        metavar="0..1",
        help="as of the program; spread frames have none",
    )
    add("--refine", action=argparse.BooleanOptionalAction, default=Config().refine, help="as of the program")
    add("--model", default="person", metavar="NAME|FILE.onnx")
    options = parser.parse_args()

    logging.getLogger("segmentation").setLevel(logging.ERROR)  # each cell is a run, and would say the same again
    try:
        found = [row for path in options.inputs for row in rows(path, options)]
    except SegmentationError as exc:
        sys.exit(f"contact_sheet: error: {exc}")
    width = max(row.shape[1] for row in found)
    sheet = np.vstack([np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0))) for row in found])
    cv2.imwrite(str(options.output), cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))
    print(f"{options.output}: {sheet.shape[1]}x{sheet.shape[0]}")


if __name__ == "__main__":
    main()
