"""What `ladder.py` measures: which function of `ladder_runs` or `gpu_runs`, on which clip, with which options."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from segmentation.options.config import STAGES
from segmentation.stages.inference import GPU_BATCH

PARTS = ("ladder", "lengths", "codecs", "sizes", "batches", "alone", "trace")
SIZES = {"540p": (960, 540), "720p": (1280, 720), "1080p": (1920, 1080), "4K": (3840, 2160)}  # width, height
MOVED = ("infer", "preprocess", "postprocess", "decode", "encode")  # the order in which stages are optimized
PEER_FRAMES = (
    480  # on a GPU, what others do is measured over so many of the clip's frames at the most: slow, and steady
)
ON_CORES = {"encode": "x264-segments"}  # the one other form of a stage that there is without a GPU
NULL = {"encode": "null"}
Options = dict[str, Any]  # fields of `Config`


@dataclass(frozen=True)
class Clip:
    """What a clip is made by, see `clips.make_clip`."""

    frames: int
    codec: str = "h264"
    size: str = "1080p"

    def __str__(self) -> str:
        return f"{self.codec} {self.size}"


@dataclass(frozen=True)
class Case:
    """One process: a function, and what it is given after a folder and the clip's path."""

    part: str
    name: str
    clip: Clip
    work: str
    arguments: tuple[Any, ...]
    once: bool = False  # slow, and steady

    def __str__(self) -> str:
        return f"{self.part}: {self.name}: {self.clip}, {self.clip.frames} frames"


class Machine:
    """What can be measured on a machine of which `plans` is what `ladder_runs.plans` says."""

    def __init__(self, plans: dict[str, Any], preset: str) -> None:
        self.gpu: bool = plans["gpu"]
        self.baseline: Options = {"mode": "baseline", **plans["baseline"], "preset": preset}
        best = plans["best"]
        self.moves = [(stage, best[stage]) for stage in MOVED if best[stage] != plans["baseline"][stage]]
        self.top = self.baseline | dict(self.moves)

    def tops(self) -> dict[str, Options]:
        """The top of the ladder, and on a GPU also what that does when nothing has to be encoded."""
        return {"optimized": self.top, "nothing encoded": self.top | NULL} if self.gpu else {"baseline": self.top}

    def ladder(self, frames: int, asked: Sequence[Options]) -> Iterator[Case]:
        """What others do, the stages in turn, and the rungs; `asked` are changes to the baseline, further rungs."""
        clip, few = Clip(frames), min(frames, PEER_FRAMES)
        name = "typical workflow"
        if not self.gpu:
            yield Case("ladder", name, clip, "typical_on_cpu", (name, frames))
        else:
            yield Case("ladder", name, clip, "typical", ("person", few), once=True)
            yield Case("ladder", "sample", clip, "sample", ("person", few), once=True)
            yield _run("ladder", "baseline, CPU", clip, self.baseline | {"device": "cpu", "infer": "onnxruntime"})
        name = "baseline, in turn"
        yield Case("ladder", name, clip, "in_turn", (name, self.baseline, frames))
        for name, options in self._rungs():
            yield _run("ladder", name, clip, options)
        for options in asked:
            yield _run("ladder", " ".join(options.values()), clip, self.baseline | options)

    def _rungs(self) -> Iterator[tuple[str, Options]]:
        """The baseline, one stage more each time, and then what else could take the frames."""
        options = self.baseline
        yield "baseline", options
        if self.gpu:  # the next rung would bring it along
            options = options | {"batch_size": GPU_BATCH}
            yield f"batches of {GPU_BATCH}", options
        for stage, name in self.moves:
            options = options | {stage: name}
            yield f"{stage} {name}", options
        if not self.gpu:
            yield f"encode {ON_CORES['encode']}", options | ON_CORES
        else:
            yield "jpeg", {key: value for key, value in options.items() if key != "preset"} | {"encode": "jpeg"}
            yield "nothing encoded", options | NULL

    def lengths(self, lengths: Sequence[int]) -> Iterator[Case]:
        """The bottom and the top of the ladder over files of these lengths; on a GPU, the slow bottom over the shortest
        and the longest only."""
        for frames in lengths:
            if self.gpu and frames in (min(lengths), max(lengths)):
                yield _run("lengths", "baseline", Clip(frames), self.baseline)
            for name, options in self.tops().items():
                yield _run("lengths", name, Clip(frames), options)

    def codecs(self, frames: int) -> Iterator[Case]:
        for codec in ("h264", "hevc", "vp9"):
            for name, options in self.tops().items():
                yield _run("codecs", name, Clip(frames, codec=codec), options)

    def sizes(self, frames: int) -> Iterator[Case]:
        for size in SIZES:
            for name, options in self.tops().items():
                yield _run("sizes", name, Clip(frames, size=size), options)

    def batches(self, frames: int, batches: Sequence[int]) -> Iterator[Case]:
        """On a GPU with nothing encoded: x264 would hide what batches change."""
        name, options = list(self.tops().items())[-1]
        for batch in batches:
            yield _run("batches", f"{name}, {batch}", Clip(frames), options | {"batch_size": batch})

    def alone(self, frames: int) -> Iterator[Case]:
        """Each stage alone, and what sets a limit to it."""
        clip = Clip(frames)
        if not self.gpu:
            for stage in STAGES:
                yield Case("alone", stage, clip, "alone_on_cpu", (self.baseline, stage))
            return
        yield Case("alone", "decode", clip, "decoding", (frames,))
        yield Case("alone", "preprocess, infer, postprocess", clip, "alone_on_gpu", (self.top, frames))
        yield Case("alone", "encode", clip, "segments", ("person", frames // 2))

    def trace(self, frames: int) -> Iterator[Case]:
        clip = Clip(frames)
        for name, options in self.tops().items():
            yield Case("trace", name, clip, "traced", (name, options, frames), once=True)


def _run(part: str, name: str, clip: Clip, options: Options) -> Case:
    return Case(part, name, clip, "pipeline", (name, options, clip.frames))
