"""The stages of one input up to its refined masks, without outputs: for pictures and for iterators over frames."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from segmentation.errors import ConfigError, RefusesNetwork
from segmentation.frames import FORMATS, HostTransfer, MaskedBatch, Memory, Transfer, VideoInfo
from segmentation.gpu.errors import gpu_errors
from segmentation.interval.propagated_masks import network_masks
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.pipeline.compositor import MaskRefiner, make_refiner
from segmentation.pipeline.model_loader import ModelPreloader
from segmentation.pipeline.opened_run import OpenedRun
from segmentation.pipeline.planning.plan import Choice, Plan, choose_fallback, choose_network
from segmentation.pipeline.resources import Resources
from segmentation.stages.inference import Inference
from segmentation.stages.inference.shared_network import SharedNetwork
from segmentation.stages.mask_source import NetworkMasks
from segmentation.tracking.selected_masks import KEPT, with_selected_masks

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class MaskStages:
    """Preprocess, inference, smoothing and refinement of one input. `plan` may be another than that of the input."""

    def __init__(self, resources: Resources, opened: OpenedRun, pix_fmt: str) -> None:
        """The session's network is loaded for the batch size. Raises `ModelError` or `BackendError`."""
        info, config = opened.info, opened.config
        self.gpu, self.config, self.clock = opened.gpu, config, opened.clock
        self.turn = resources.turn
        with gpu_errors(), ExitStack() as building:
            self.transfer = make_transfer(self.gpu, info, pix_fmt, opened.batch_size)
            self.plan, self.masks = make_network_masks(resources, opened, pix_fmt, self.transfer, building)
            self._refine: MaskRefiner | None = None
            if config.refine:
                self._refine = make_refiner(self.masks.memory, info, pix_fmt, config, self.gpu, by_color=True)
            self._exits = building.pop_all()

    def __enter__(self) -> MaskStages:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def on_host(self, batch: MaskedBatch) -> MaskedBatch:
        """Returns a batch of `masks` on the host, with refined masks if the configuration says so."""
        self.transfer.enter()
        with gpu_errors(), self.turn.of(self.masks):
            batch = batch.to(self.masks.memory, self.transfer)
            keeping = self.config.keep is not None
            batch = with_selected_masks(batch, KEPT, self.config.threshold, self.transfer, keeping=keeping)
            if self._refine is not None:
                refined = self._refine(batch.frames, batch.masks)
                batch = replace(batch, masks=self._refine.by_color(batch.frames, batch.masks, refined))
            return batch.to("host", self.transfer)


def make_transfer(gpu: Gpu | None, info: VideoInfo, pix_fmt: str, batch_size: int) -> Transfer:
    """Returns the transfer of a run's batches between the host and `gpu`; nothing moves without a GPU."""
    if gpu is None:
        return HostTransfer()
    from segmentation.gpu.transfer import GpuTransfer  # needs PyTorch

    return GpuTransfer(gpu, info, FORMATS[pix_fmt], batch_size)


def make_network_masks(
    resources: Resources,
    opened: OpenedRun,
    pix_fmt: str,
    transfer: Transfer,
    exits: ExitStack,
    memory: Memory | None = None,
) -> tuple[Plan, NetworkMasks]:
    """Returns the network's masks, and the plan with the implementation that runs the network.

    The network is loaded last: another thread may be loading it meanwhile. `memory` is where the stages behind take the
    frames, by default where the network does. Raises `ModelError` or `BackendError`.
    """
    plan, model, info, config, gpu = opened.plan, opened.choices.model, opened.info, opened.config, opened.gpu
    assert plan.preprocess is not None and plan.infer is not None and model is not None, "these are no saved masks"
    preprocess = plan.preprocess.implementation(info, pix_fmt, model, config, gpu)
    exits.callback(preprocess.close)
    chosen, infer = load_network(resources, plan.infer, model, info, config, gpu, opened.choices.preloader)
    masks = network_masks(
        model,
        config,
        gpu,
        info.live,
        preprocess=preprocess,
        infer=infer,
        kept_memory=memory or infer.memory,
        transfer=transfer,
        clock=opened.clock,
        turn=resources.turn,
    )
    _add_further(masks, resources, opened, pix_fmt, exits)
    return replace(plan, infer=chosen), masks


def load_network(
    resources: Resources,
    infer: Choice[Inference],
    model: Model,
    info: VideoInfo,
    config: Config,
    gpu: Gpu | None,
    preloader: ModelPreloader | None = None,
) -> tuple[Choice[Inference], SharedNetwork]:
    """Returns the session's network, and the implementation that runs it: another than `infer` where that refuses."""
    while True:
        try:
            return infer, resources.network(infer, model, config, preloader, gpu)
        except RefusesNetwork as exc:
            infer, preloader = choose_fallback(infer, exc, config, info, model), None


def _add_further(masks: NetworkMasks, resources: Resources, opened: OpenedRun, pix_fmt: str, exits: ExitStack) -> None:
    """Adds the networks of `config.further` to the source of masks. Raises `ModelError` or `BackendError`."""
    info, config, gpu = opened.info, opened.config, opened.gpu
    further = []
    for one in config.further:
        mode = "baseline" if gpu is None else config.mode
        own = Config(model=one.model, device=config.device, mode=mode, batch_size=config.batch_size, smooth=0.0)
        model = resources.further_model(own, info)
        prepare, chosen = choose_network(own, info, model)
        _, infer = load_network(resources, chosen, model, info, own, gpu)
        preprocess = prepare.implementation(info, pix_fmt, model, own, gpu)
        exits.callback(preprocess.close)
        parts = {name: getattr(masks, name) for name in ("kept_memory", "transfer", "clock", "turn")}
        further.append(NetworkMasks(preprocess=preprocess, infer=infer, smoothing=None, **parts))
    masks.further = further


def without_outputs(config: Config) -> Config:
    """Returns the options without those of the files that runs write. Raises `ConfigError` for saved masks."""
    if config.masks is not None:
        raise ConfigError(f"masks {config.masks}: saved masks belong to a run of their video; leave out masks")
    return replace(
        config,
        on_loss="gap",
        video=True,
        also=(),
        codec=None,
        format=None,
        quality=None,
        preset=None,
        encode=None,
        verify=False,
        results=None,
        results_format="lines",
        audit=None,
        rle=False,
        pick=None,
        count=(),
        save_masks=None,
    )
