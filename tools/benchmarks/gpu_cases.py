"""What `benchmark_gpu.py` measures: which function of `gpu_runs` with which clip, model and length."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTS = ("cold", "decode", "segments", "null", "jpeg", "x264", "typical", "sample", "flat")
MARKS = (1200, 12_000)  # frames after which what one run holds is compared
TYPICAL_FRAMES = 150  # both peers are slow, and steady
SAMPLE_FRAMES = 600


@dataclass(frozen=True)
class Case:
    """One process: a function of `gpu_runs`, what it is given, and which results it belongs to."""

    part: str
    work: str
    clip: str  # "gop30"
    model: str  # "person"; "" where none is used
    arguments: tuple[Any, ...]
    once: bool = False

    def __str__(self) -> str:
        return " ".join(filter(None, (self.part, self.clip, self.model)))


def cases(clips: dict[str, Path], models: dict[str, str], frames: int, *, full: bool, long: Path) -> list[Case]:
    """All that is measured. x264 does not mind where its pictures come from, so unless `full` it gets the first clip
    and model only; other models see the first clip, other clips the first model.

    `models` are files or names for the pipeline, by name; `long` is a clip that goes on after the last of `MARKS`.
    """
    first_clip, first_model = next(iter(clips)), next(iter(models))
    made = []
    for clip, path in clips.items():
        made.append(Case("decode", "decoding", clip, "", (path, frames)))
        for model, file in models.items():
            if not full and first_clip != clip and first_model != model:
                continue
            made += [Case(kind, "pipeline", clip, model, (path, file, kind, frames)) for kind in ("null", "jpeg")]
            if full or (first_clip == clip and first_model == model):
                for kind in ("x264 ultrafast", "x264 default"):
                    made.append(Case("x264", "pipeline", clip, model, (path, file, kind, frames)))
                made.append(Case("segments", "segments", clip, model, (path, file, frames)))
    for model in models:
        path, file = clips[first_clip], models[model]
        peer = model if Path(file).stem.startswith("fcn_resnet50") else file  # torchvision's own, not the exported one
        made.append(Case("typical", "typical", first_clip, model, (path, peer, TYPICAL_FRAMES), once=True))
        made.append(Case("sample", "sample", first_clip, model, (path, peer, SAMPLE_FRAMES), once=True))
    made.append(Case("flat", "flatness", first_clip, first_model, (long, models[first_model], MARKS), once=True))
    return made
