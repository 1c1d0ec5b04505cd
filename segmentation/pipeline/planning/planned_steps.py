"""Lines of the plan for what options add between inference and postprocess: interval, tracker, further networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import onnxruntime as ort

from segmentation.errors import BackendError, ConfigError
from segmentation.frames import Memory
from segmentation.interval.auto_interval import longest_gap
from segmentation.interval.overload import may_rise
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.options.project import read_project

if TYPE_CHECKING:
    from segmentation.models.secondary import SecondaryNetwork

TRACKERS = {
    "fast": "by overlap with the last frame",
    "balanced": "by overlap with where things should be now",
    "accurate": "by overlap with where things should be now, and by colors",
}


class PlannedStep(NamedTuple):
    """A line of the plan."""

    stage: str
    name: str
    reason: str


def planned_steps(
    config: Config,
    model: Model | None,
    memory: Memory,
    secondary: Sequence[SecondaryNetwork],
    frames: Memory,
    *,
    live: bool,
) -> tuple[PlannedStep, ...]:
    """Returns the steps of a run, whose frames are in `frames` meanwhile.

    The network infers in `memory`; `model` is None with saved masks.

    Raises `ConfigError` for an interval with a network that carries states from frame to frame or finds single things.
    """
    return (
        *_interval(config, model, memory, live=live),
        *([] if config.project is None else [PlannedStep("correct", "project", _about_project(config.project))]),
        *(PlannedStep("beside", one.kind, f"the network {one.model} sees each frame too") for one in config.further),
        *([] if config.tracker is None else [PlannedStep("track", config.tracker, f"CPU, {TRACKERS[config.tracker]}")]),
        *(
            PlannedStep(f"then {one.then.name}", f"{one.then.file}@{one.then.parent}", _about(one, frames))
            for one in secondary
        ),
    )


def _interval(config: Config, model: Model | None, memory: Memory, *, live: bool) -> Iterator[PlannedStep]:
    interval = config.interval
    rises = live and model is not None and may_rise(memory, model, config)
    if not interval and not rises:
        return
    if model is not None and model.form.recurrent:
        raise ConfigError(f"interval {interval}: {model.name} carries states from frame to frame; leave it out")
    if model is not None and model.detection is not None:
        raise ConfigError(f"interval {interval}: {model.name} finds single things, frame by frame; leave it out")
    shares = "every frame" if not interval else f"one frame of {longest_gap(interval)}"
    reason = f"the network sees {'at least ' * (interval == 'auto')}{shares}"
    if rises:
        reason += f", and one of {longest_gap(config.max_interval)} while frames wait, if that gains time"
    yield PlannedStep("interval", str(interval), reason)


def _about_project(path: str | Path) -> str:
    project = read_project(str(path))
    return f"CPU, {len(project.corrections)} corrections from {path}, carried along the motion"


def _about(network: SecondaryNetwork, frames: Memory) -> str:
    model = network.model
    how, why = f"ONNX Runtime {ort.__version__}, CPU, FP32", ""
    if frames == "cuda":
        from segmentation.stages.inference.crop_network import CropNetwork  # needs PyTorch

        try:
            how = CropNetwork.describe(model)
        except BackendError as exc:
            why = f" ({exc})"
    return f"{how}, {network.detection.task}, crops at {model.height}x{model.width}{why}"
