"""Opens an input and chooses its stages: the one way, for runs, frames, pictures, spans and `--plan`."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from segmentation.flow.threads import StageThreads
from segmentation.flow.timing import StageClock
from segmentation.flow.trace import Trace
from segmentation.frames import VideoInfo
from segmentation.frames.source import Source
from segmentation.gpu.errors import gpu_errors
from segmentation.live.reader import probe_any
from segmentation.media.output_stream import Target
from segmentation.models.model import Model
from segmentation.models.secondary import SecondaryNetwork, check_labels
from segmentation.options.access import access_of
from segmentation.options.config import Config, with_batch_size
from segmentation.options.times import exact
from segmentation.pipeline.model_loader import ModelPreloader
from segmentation.pipeline.planning.plan import Plan, make_plan, with_own_format
from segmentation.pipeline.resources import Resources
from segmentation.pipeline.stream_status import StreamMonitor
from segmentation.stages.masks.saved import MaskReader, about_masks
from segmentation.tracking.counts import CountSink

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The model and the stages for an input. No network is loaded yet."""

    plan: Plan
    model: Model | None  # `None` with saved masks
    classes: tuple[str, ...]  # of the network, or of the saved masks
    secondary: tuple[SecondaryNetwork, ...] = ()
    counts: CountSink | None = None  # with `--count`
    preloader: ModelPreloader | None = None  # of a network that is being loaded meanwhile

    @property
    def kept(self) -> tuple[str, ...]:
        """The network's classes; none with saved masks."""
        return () if self.model is None else self.model.kept

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels that instances can have."""
        return tuple(dict.fromkeys([*self.classes, *(label for network in self.secondary for label in network.labels)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """An open input, and all that its stages are made from."""

    info: VideoInfo
    config: Config  # with the batch size
    batch_size: int
    choices: Choices  # likewise
    gpu: Gpu | None  # `None` on a run without a GPU
    clock: StageClock
    saved: MaskReader | None = None  # masks of an earlier run

    @property
    def plan(self) -> Plan:
        """The stages."""
        return self.choices.plan

    @property
    def end(self) -> Fraction | None:
        """See `end_of`."""
        return end_of(self.info, self.config)

    def overlap(self, exits: ExitStack, trace: Trace | None = None) -> StageThreads:
        """Returns what starts the threads of the run. `exits` ends the input before it waits for them."""
        info = self.info
        watch = None if trace is None else trace.depth
        overlap = exits.enter_context(StageThreads(watch=watch, prompt=info.live is not None))
        if info.source.stream is not None:
            exits.callback(info.source.stream.end)
        if info.live is not None:
            exits.callback(info.live.close)
        return overlap


def open_run(
    resources: Resources,
    source: Source,
    config: Config,
    exits: ExitStack,
    *,
    target: Target | None = None,
    stop: threading.Event | None = None,
    monitor: StreamMonitor | None = None,
    trace: Trace | None = None,
    preload: bool = False,
    info: VideoInfo | None = None,
) -> OpenedRun:
    """Opens the input and chooses its stages; `exits` closes it. Without a `target`, frames keep their own format.

    `info` describes an input that is open already. With `preload`, network and kernels are loaded on threads of their
    own once they are chosen. Raises as `segment`.
    """
    info = info or probe_any(source, access_of(config, stop))
    if info.live is not None:
        exits.callback(info.live.close)
    if monitor is not None:
        monitor.opened(info, video=config.video)
    saved = MaskReader(info, config) if config.masks is not None else None
    choices = choose(resources, config, info, target, preload=preload)
    if target is None and config.video:
        choices = replace(choices, plan=with_own_format(choices.plan, config, info))
    if preload:
        resources.begin_kernels(choices.plan, info, config)
    if info.source.stream is not None:  # the decoder reads it, and each muxer
        info.source.stream.expect(1 + len(choices.plan.outputs))
    return on_machine(resources, choices, config, info, saved=saved, trace=trace)


def choose(
    resources: Resources,
    config: Config,
    info: VideoInfo | None,
    target: Target | None = None,
    *,
    preload: bool = False,
) -> Choices:
    """Chooses model and stages for a video, or for any. Raises as `make_plan`, and for labels and places that are not.

    `preload` as of `open_run`.
    """
    model = resources.model(info) if config.masks is None else None
    classes = model.kept if model is not None else about_masks(str(config.masks)).classes
    live = info is not None and info.live is not None
    preloader = resources.preloader(model, config, live=live) if preload else None
    labels = classes if model is not None else classes[:1]  # saved masks do not tell classes apart
    secondary = resources.secondary_networks(labels) if config.then else ()
    check_labels(config, labels, secondary)
    counts = CountSink(info, config) if config.count and info is not None else None
    begin = None if preloader is None else preloader.begin
    plan = make_plan(config, info, target, model=model, secondary=secondary, begin=begin)
    return Choices(plan=plan, model=model, classes=classes, secondary=secondary, counts=counts, preloader=preloader)


def on_machine(
    resources: Resources,
    choices: Choices,
    config: Config,
    info: VideoInfo,
    *,
    saved: MaskReader | None = None,
    trace: Trace | None = None,
) -> OpenedRun:
    """Returns an input with the GPU that its stages are on, if they are, and with the batch size that suits both."""
    plan, model = choices.plan, choices.model
    gpu = resources.gpu if plan.on_gpu else None
    if gpu is not None:
        gpu.enter()  # another thread's run may have made it
    batch_size = resources.batch_size(config, model, on_gpu=plan.on_gpu, live=info.live is not None)
    config = with_batch_size(config, batch_size)
    with gpu_errors():
        clock = StageClock(gpu, trace)
    return OpenedRun(
        info=info,
        config=config,
        batch_size=batch_size,
        choices=replace(choices, plan=plan.with_batch_size(batch_size)),
        gpu=gpu,
        clock=clock,
        saved=saved,
    )


def end_of(info: VideoInfo, config: Config) -> Fraction | None:
    """Returns where the wanted stretch ends, in seconds on the source's clock; `None` for the source's end."""
    if config.duration is None:
        return None
    return info.start + exact(config.start) + exact(config.duration)
