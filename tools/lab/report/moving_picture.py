"""Makes the moving picture of the README: a video, its mask, its blurred background and a cut-out, side by side.

python tools/lab/report/moving_picture.py samples/astronaut.mp4 -o docs/demo.webp
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation import segment

EFFECTS = {"mask": "mask", "blur": "blur:20", "color": "color:#00b140"}


def frames(path: Path, size: tuple[int, int], every: int) -> Iterator[NDArray[np.uint8]]:
    """Yields each `every`-th frame of a video as RGB of `size` (width, height) pixels."""
    with av.open(str(path)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            if number % every == 0:
                yield cv2.resize(frame.to_ndarray(format="rgb24"), size, interpolation=cv2.INTER_AREA)


def write(path: Path, pictures: Iterator[NDArray[np.uint8]], rate: int, quality: int) -> None:
    """Writes an animated WebP that is shown again and again."""
    with av.open(str(path), "w", options={"loop": "0"}) as container:
        stream = None
        for number, picture in enumerate(pictures):
            if stream is None:
                stream = container.add_stream("libwebp_anim", rate=rate, options={"quality": str(quality)})
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = "yuv420p"
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        assert stream is not None
        container.mux(stream.encode(None))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--width", type=int, default=320, help="pixels of each of the four pictures")
    parser.add_argument("--every", type=int, default=3, help="shows one frame of so many")
    parser.add_argument("--quality", type=int, default=60, help="of WebP, 0 to 100")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [given.input]
        for name, effect in EFFECTS.items():
            paths.append(Path(folder) / f"{name}.mkv")
            segment(given.input, paths[-1], effect=effect)
        with av.open(str(given.input)) as container:
            video = container.streams.video[0]
            size = given.width, round(given.width * video.height / video.width / 2) * 2
            rate = round((video.average_rate or 30) / given.every)
        columns = zip(*(frames(path, size, given.every) for path in paths), strict=True)
        rows = (np.vstack([np.hstack(four[:2]), np.hstack(four[2:])]) for four in columns)
        write(given.output, rows, rate, given.quality)


if __name__ == "__main__":
    main()
