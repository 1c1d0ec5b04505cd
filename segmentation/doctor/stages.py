"""Each stage's implementations, in whole runs over a clip: one of them amid the CPU's own, against the CPU's result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmentation.doctor.finding import ABSENT, FAILED, OK, REPORT, Finding, Request, refused
from segmentation.doctor.pictures import limited_lumas, lumas, moving, psnr, steady, times, write
from segmentation.engines.variant import installed
from segmentation.errors import BackendError, NotProven, SegmentationError
from segmentation.models.graph.comparison import compare
from segmentation.options.config import STAGES, Config
from segmentation.options.devices import PROCESSORS, processor
from segmentation.options.keywords import Codec, Quality
from segmentation.pipeline.planning.implementations import candidates
from segmentation.pipeline.report import Report
from segmentation.sessions.segment import segment
from segmentation.system.installation import install

_COUNT, _SIZE = 48, (640, 360)
_CLIP, _OUTPUT, _MASKS, _TIMES = "clip.mp4", "cpu.mkv", "cpu-masks.mkv", "cpu.json"
_CPU = {stage: candidates(stage, "baseline")[-1] for stage in STAGES}
_LEAST_IOU = 0.98  # of masks, after smoothing
_LEAST_LOSSLESS, _LEAST_LOSSY = 35, 30  # dB of the luma to the CPU's picture
_LOSSY: dict[str, tuple[Codec, Quality]] = {
    "nvenc": ("h264", "high"),
    "x264-segments": ("h264", "high"),
    "jpeg": ("mjpeg", "high"),
}
_OPTIONAL = ("nvdec-native", "nvenc", "onnxruntime-cuda")  # that not every GPU has, or not everybody needs


def make_clip(request: Request) -> Iterator[Finding]:
    """Makes the clip, runs it on the CPU, and yields the finding: frames, times, the person, the kept pixels."""
    folder = Path(request.folder)
    write(folder / _CLIP, list(moving(_COUNT, _SIZE)), "libx264", {"crf": "14", "preset": "veryfast", "g": "24"})
    config = Config(device="cpu", codec="ffv1", save_masks=folder / _MASKS, verify=True)
    report = segment(str(folder / _CLIP), folder / _OUTPUT, _with_stages(config, _CPU))
    (folder / _TIMES).write_text(json.dumps(asdict(report)["stages"]), encoding="utf-8")
    covered = float(np.mean([mask > 127 for mask in lumas(folder / _MASKS)]))
    faults = []
    if report.frames != _COUNT or not steady(times(folder / _CLIP), times(folder / _OUTPUT)):
        faults.append(f"{report.frames} of {_COUNT} frames, or at other times")
    if report.found != _COUNT:
        faults.append(f"a person in {report.found} of {_COUNT} frames")
    detail = f"{_COUNT} frames, a person in each ({covered:.0%} of the picture), {_speed(report)}"
    yield _judged("run on the CPU", faults, detail, {**_figures(report), "covered": round(covered, 4)})


def check(request: Request) -> Iterator[Finding]:
    """Yields the finding of one implementation; none of a processor that nobody has asked for and that is not here."""
    name, chosen = f"{request.stage} {request.implementation}", request.implementation
    asked = processor(request.device) == chosen
    if chosen == "tensorrt" and not installed():
        mend = f"{install('tensorrt')}, or {install('rtx')}"
        yield Finding(name=name, outcome=ABSENT, detail="no TensorRT is installed", mend=mend)
        return
    try:
        yield _compared(name, request)
    except NotProven as exc:  # the verdict on an engine: slower than its rival is no fault
        yield refused(name, exc, FAILED if exc.failed else ABSENT)
    except BackendError as exc:
        reason = str(exc).removeprefix(f"{request.stage} can't be served here: ").removeprefix(f"{chosen}: ")
        if chosen == "tensorrt":  # a reason for each variant, with its remedy
            yield Finding(name=name, outcome=ABSENT, detail=reason)
        elif asked or chosen not in PROCESSORS:
            yield refused(name, reason, ABSENT if chosen in _OPTIONAL else FAILED)
    except SegmentationError as exc:
        yield refused(name, exc)


def _config(request: Request) -> Config:
    """Returns the options of the run."""
    config = Config(device=request.device, save_masks=Path(request.folder) / "masks.mkv", overwrite=True)
    chosen = request.implementation
    if request.stage == "run":
        return replace(config, quality="high")
    if chosen in PROCESSORS and processor(request.device) != chosen:
        config = replace(config, device=chosen)
    lossless: tuple[Codec, None] = ("ffv1", None)
    codec, quality = _LOSSY.get(chosen, lossless)
    return _with_stages(replace(config, codec=codec, quality=quality), {**_CPU, request.stage: chosen})


def _with_stages(config: Config, names: dict[str, str]) -> Config:
    """Returns the options with the implementation of each stage."""
    decode, preprocess, infer, postprocess, encode = (names[stage] for stage in STAGES)
    return replace(config, decode=decode, preprocess=preprocess, infer=infer, postprocess=postprocess, encode=encode)


def _compared(name: str, request: Request) -> Finding:
    """Runs the clip, and compares frames, times, masks and pictures with the CPU's. Raises `SegmentationError`."""
    folder, config = Path(request.folder), _config(request)
    output = folder / "output.mkv"
    report = segment(str(folder / _CLIP), output, config)
    found, expected = limited_lumas(output), limited_lumas(folder / _OUTPUT)
    if len(found) != _COUNT or not steady(times(folder / _CLIP), times(output)):
        detail = f"{len(found)} of {_COUNT} frames, or at other times"
        return Finding(name=name, outcome=FAILED, detail=detail, mend=REPORT)
    compared, quality, faults = compare(_unit(folder / _MASKS), _unit(folder / "masks.mkv")), psnr(expected, found), []
    if compared.iou < _LEAST_IOU:
        faults.append(f"masks agree with the CPU's only to an IoU of {compared.iou:.4f}")
    if quality < (_LEAST_LOSSLESS if config.codec == "ffv1" else _LEAST_LOSSY):
        faults.append(f"the picture agrees with the CPU's only to {quality:.1f} dB")
    detail = f"masks' IoU {compared.iou:.4f}, {quality:.1f} dB to the CPU's picture, {_speed(report)}"
    if request.stage == "run":
        detail += " (" + ", ".join(report.plan[stage] for stage in STAGES) + ")"
    figures = {**_figures(report), **asdict(compared), "psnr": quality, "cpu_stages": _cpu_stages(folder)}
    return _judged(name, faults, detail, figures)


def _judged(name: str, faults: list[str], detail: str, figures: dict[str, object]) -> Finding:
    """Returns the finding: the faults, or `detail` where there are none."""
    if faults:
        return Finding(name=name, outcome=FAILED, detail="; ".join(faults), mend=REPORT, figures=figures)
    return Finding(name=name, outcome=OK, detail=detail, figures=figures)


def _unit(path: Path) -> NDArray[np.float32]:
    """Returns saved masks (N, h, w) as 0 to 1."""
    return np.stack(lumas(path)).astype(np.float32) / np.float32(255)


def _speed(report: Report) -> str:
    return f"{report.seconds:.2f} s with start"


def _figures(report: Report) -> dict[str, object]:
    stages = {stage: round(seconds, 4) for stage, seconds in report.stages.items()}
    return {"seconds": round(report.seconds, 3), "frames": report.frames, "plan": report.plan, "stages": stages}


def _cpu_stages(folder: Path) -> dict[str, float]:
    """Returns what the CPU took for each stage."""
    found: dict[str, float] = json.loads((folder / _TIMES).read_text(encoding="utf-8"))
    return {stage: round(seconds, 4) for stage, seconds in found.items()}
