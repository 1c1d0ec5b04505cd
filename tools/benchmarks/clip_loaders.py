"""Measures how many frames of random clips a loader brings, on the CPU: ours, PyAV and OpenCV as they are usually used.

    python tools/benchmarks/clip_loaders.py ../shared/corpus/05_default_juggle.mp4

Clips of 16 frames of 1920x1080 become 224x224 RGB. Loaders take turns; each decodes all clips of the video once, in
random order, with a thread for each core. What they bring is compared first: with the right pictures, not only as many.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import ROOT, circumstances

from segmentation.clips import ClipDataset, ClipLoader, Output
from segmentation.cores import core_count

LENGTH, SIDE, SIZE = 16, 224, (1920, 1080)
OUTPUT = {"input": Output(size=(SIDE, SIDE), dtype="uint8")}
Pictures = NDArray[np.uint8]  # (T, 224, 224, 3)


def encoded(source: str, target: Path, frames: int, distance: int) -> Path:
    """Makes a video whose keyframes are so far apart, with three B-frames between others."""
    with av.open(source) as container, av.open(str(target), "w") as to:
        shown = [frame.reformat(*SIZE, "yuv420p") for frame in islice(container.decode(video=0), frames)]
        options = {"preset": "fast", "crf": "23", "g": str(distance), "bf": "3"}
        stream: Any = to.add_stream("libx264", rate=30, options=options)
        (stream.width, stream.height), stream.pix_fmt = SIZE, "yuv420p"
        for number, frame in enumerate(islice(cycle(shown), frames)):
            frame.pts, frame.time_base, frame.pict_type = number, Fraction(1, 30), 0
            to.mux(stream.encode(frame))
        to.mux(stream.encode(None))
    return target


def by_pyav(path: str, first: int, pts: int) -> Pictures:
    """Seeks to the time of the first frame, and decodes on."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        container.seek(pts, stream=stream)
        shown = islice((frame for frame in container.decode(stream) if (frame.pts or 0) >= pts), LENGTH)
        return np.stack([frame.reformat(SIDE, SIDE, "rgb24", interpolation="AREA").to_ndarray() for frame in shown])


def by_opencv(path: str, first: int, pts: int) -> Pictures:
    """Goes to the number of the first frame, and reads on."""
    capture = cv2.VideoCapture(path, cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    capture.set(cv2.CAP_PROP_POS_FRAMES, first)
    shown = [capture.read()[1] for _ in range(LENGTH)]
    capture.release()
    return np.stack([cv2.resize(frame, (SIDE, SIDE), interpolation=cv2.INTER_AREA)[..., ::-1] for frame in shown])


def loaders(dataset: ClipDataset) -> dict[str, Callable[[], int]]:
    """Returns functions that bring each clip once, and return how many frames that were."""
    index = dataset.videos[0]
    clips = list(range(len(dataset)))
    random.Random(1).shuffle(clips)

    def ours(shuffle: Any) -> Callable[[], int]:
        loader = ClipLoader(dataset, 4, outputs=OUTPUT, shuffle=shuffle, drop_last=False)
        return lambda: sum(len(batch.clips) * LENGTH for batch in loader)

    def theirs(load: Callable[[str, int, int], Pictures]) -> Callable[[], int]:
        def run() -> int:
            with ThreadPoolExecutor(core_count()) as pool:
                begins = [dataset.numbers(clip)[0] for clip in clips]
                return sum(map(len, pool.map(lambda first: load(index.path, first, int(index.pts[first])), begins)))

        return run

    return {"full": ours("full"), "pool": ours("pool"), "PyAV": theirs(by_pyav), "OpenCV": theirs(by_opencv)}


def differences(dataset: ClipDataset) -> dict[str, float]:
    """Returns by how many levels of 255 the pictures of some clips differ from ours, in the mean."""
    found: dict[str, float] = {}
    loader, index = ClipLoader(dataset, 1, outputs=OUTPUT), dataset.videos[0]
    for name, load in {"PyAV": by_pyav, "OpenCV": by_opencv}.items():
        errors = []
        for clip in range(1, len(dataset), 5):
            first = dataset.numbers(clip)[0]
            own = loader.sample(clip)["input"].transpose(0, 2, 3, 1).astype(int)
            errors.append(float(abs(load(index.path, first, int(index.pts[first])) - own).mean()))
        found[name] = round(max(errors), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video")
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--distances", type=lambda text: list(map(int, text.split(","))), default=[30, 250])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "tools" / "results" / "clip-loaders.json")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for distance in options.distances:
            path = encoded(options.video, Path(folder, f"{distance}.mp4"), options.frames, distance)
            dataset = ClipDataset(path, length=LENGTH)
            rates: dict[str, list[float]] = {name: [] for name in loaders(dataset)}
            for repeat in range(options.repeats + 1):
                for name, run in loaders(dataset).items():
                    begin = time.perf_counter()
                    count = run()
                    if repeat:  # the first round warms up
                        rates[name].append(round(count / (time.perf_counter() - begin), 1))
            fps = {name: {"median": statistics.median(found), "all": found} for name, found in rates.items()}
            results[f"keyframes {distance} apart"] = {"fps": fps, "difference_to_ours": differences(dataset)}
            print(distance, {name: found["median"] for name, found in fps.items()}, differences(dataset), flush=True)
    about = circumstances(f"benchmarks/{Path(__file__).name}", sys.argv[1:])
    options.output.write_text(json.dumps(about | {"clip": [LENGTH, SIDE, SIDE], "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
