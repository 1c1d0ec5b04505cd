"""Measures the CPU time a frame of what the host does for `--anonymize faces` while a GPU does the rest, part by part.

    python tools/benchmarks/covers.py ../shared/people/clips/his-girl-friday.mp4 --grid 1 2 -o covers.json

The network runs once; its boxes are replayed as those of a large picture, through each step on the host. `--grid 2`
shows the clip four times in the picture. What a GPU would draw is left out.
"""

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch, VideoInfo
from segmentation.frames.instances import BoxMap
from segmentation.frames.sinks import FinishedBatch, Sink
from segmentation.media.opening.probe import probe
from segmentation.models.model import Model, load_model
from segmentation.options.config import Config
from segmentation.pipeline.found import FoundSink
from segmentation.pipeline.result_files.audit import Audit
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.inference.instances.onnx_instances import InstanceInference, frame_instances
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor
from segmentation.tracking.instance_steps import make_instance_steps

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # the tools are programs, not a package

from circumstances import circumstances

BATCH = 16
CONFIG = Config(anonymize="faces", batch_size=BATCH)
Thing = tuple[float, float, float, float, float]  # a box in shares of the picture, and its score


@dataclass
class _OnGpu:
    """What the steps see of masks that lie on a GPU."""

    shape: tuple[int, ...]


def detections(clip: str) -> tuple[VideoInfo, Model, list[list[Thing]], list[NDArray[np.uint8]], list[int]]:
    """Returns what the network finds in each frame of a clip, small pictures as shots are found by, and the times."""
    info = probe(clip)
    model = load_model(CONFIG, info).for_video(info)
    preprocess, infer = OpenCVPreprocessor(info, "yuv420p", model, CONFIG), InstanceInference(model, CONFIG)
    found: list[list[Thing]] = []
    levels, pts = [], []
    for batch in PyAVDecoder(info, "yuv420p", CONFIG):
        result = infer(preprocess(batch))
        assert result.instances is not None
        found += [[(*one.box, one.score) for one in frame.instances] for frame in result.instances]
        levels += [cv2.resize(frame.planes[0], (256, 144)) for frame in batch.frames]
        pts += [frame.pts for frame in batch.frames]
    return info, model, found, levels, pts


class Replay:
    """Replays boxes through the host's steps, and adds up the CPU time of each."""

    def __init__(self, clip: str, grid: int, size: tuple[int, int]) -> None:
        """`size` is the mask's height and width."""
        self._info, self._model, found, self._levels, self._pts = detections(clip)
        self._size = size
        tiles = [(column, row) for row in range(grid) for column in range(grid)]
        sides = np.array([size[1], size[0], size[1], size[0], 1], np.float32)
        self._things = [
            np.array(
                [
                    ((left + x) / grid, (top + y) / grid, (right + x) / grid, (bottom + y) / grid, score)
                    for x, y in tiles
                    for left, top, right, bottom, score in frame
                ],
                np.float32,
            ).reshape(-1, 5)
            * sides
            for frame in found
        ]
        self.seconds: Counter[str] = Counter()  # with those of all steps before
        self.frames = self.covers = 0

    def measure(self) -> dict[str, float]:
        """Replays the clip once, and returns the microseconds of CPU time a frame of each step."""
        self.seconds.clear()
        self.frames = self.covers = 0
        sinks: list[Sink] = [FoundSink("clip", self._model.labels, CONFIG), Audit(self._time, self._info, CONFIG)]
        for batch in self._line(lambda count: _OnGpu((count, *self._size)), on_gpu=True):
            instances = tuple(batch.instances or ())
            self.frames += len(batch)
            self.covers += sum(len(one.instances) for one in instances)
            found = np.ones(len(batch), np.bool_)
            done = FinishedBatch(frames=batch.frames, found=found, instances=instances, shots=batch.shots)
            begin = time.thread_time()
            for sink in sinks:
                sink.write(done)
            self.seconds["sinks"] += time.thread_time() - begin
        sinks_alone = self.seconds.pop("sinks")
        before, parts = 0.0, {}
        for name, total in self.seconds.items():
            parts[name], before = total - before, total
        parts |= {"sinks": sinks_alone, "all": before + sinks_alone}
        return {name: round(seconds * 1e6 / self.frames, 1) for name, seconds in parts.items()}

    def digest(self) -> str:
        """Returns a hash of all masks, label maps, things and shots, to compare two revisions by."""
        made = hashlib.sha256()
        for batch in self._line(lambda count: np.zeros((count, *self._size), np.float32)):
            for mask, frame in zip(batch.masks, batch.instances or (), strict=True):
                made.update(np.packbits(np.asarray(mask) > 0).tobytes() + frame.label_map.tobytes())
                made.update(repr(frame.instances).encode())
            made.update(repr(batch.shots).encode())
        return made.hexdigest()

    def _line(self, masks: Callable[[int], Any], *, on_gpu: bool = False) -> Iterator[MaskedBatch]:
        steps = make_instance_steps(CONFIG, self._info, "yuv420p", self._model.labels, HostTransfer(), [], None, None)
        line = self._timed("read", self._batches(masks))
        for step in steps:
            name = type(step).__name__.lower()
            if name == "shots":
                step._sampler = self._samples  # type: ignore[attr-defined]  # a kernel's work on a GPU
            if name == "coverboxes" and on_gpu:
                step._there = lambda table, size: _OnGpu((len(table), *size))  # type: ignore[attr-defined]  # likewise
            line = self._timed(name, step(line))
        return line

    def _timed(self, name: str, line: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        while True:
            begin = time.thread_time()
            batch = next(line, None)
            self.seconds[name] += time.thread_time() - begin
            if batch is None:
                return
            yield batch

    def _batches(self, masks: Callable[[int], Any]) -> Iterator[MaskedBatch]:
        """Yields the batches as the network's outputs are read on a GPU's host."""
        for first in range(0, len(self._things), BATCH):
            found = self._things[first : first + BATCH]
            frames = tuple(Frame(planes=(), pts=pts, duration=1) for pts in self._pts[first : first + BATCH])
            kinds = [np.zeros(len(one), np.intp) for one in found]
            instances = tuple(
                frame_instances(one[:, :4], one[:, 4], kind, self._model, BoxMap(one[:, :4], self._size))
                for one, kind in zip(found, kinds, strict=True)
            )
            batch = FrameBatch(frames=frames, index=first)
            yield MaskedBatch(frames=batch, masks=masks(len(found)), instances=instances)

    def _samples(self, frames: FrameBatch, shape: tuple[int, int]) -> NDArray[np.uint8]:
        return np.stack(self._levels[frames.index : frames.index + len(frames)])[None]

    def _time(self, pts: int) -> Fraction:
        return pts * self._info.time_base


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clips", nargs="+")
    parser.add_argument("--grid", type=int, nargs="+", default=[1])
    parser.add_argument("--size", type=int, nargs=2, default=(1080, 1920), help="height and width of masks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", dest="output", type=Path)
    args = parser.parse_args()
    runs = []
    for clip in args.clips:
        for grid in args.grid:
            replay = Replay(clip, grid, tuple(args.size))
            best = min((replay.measure() for _ in range(args.rounds)), key=lambda parts: parts["all"])
            covers = round(replay.covers / replay.frames, 2)
            runs.append({"clip": Path(clip).name, "covers_a_frame": covers, "us_a_frame": best})
            runs[-1]["digest"] = replay.digest()
            print(json.dumps(runs[-1]), flush=True)
    if args.output is not None:
        whole = circumstances("benchmarks/covers.py", sys.argv[1:]) | {"runs": runs}
        args.output.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
