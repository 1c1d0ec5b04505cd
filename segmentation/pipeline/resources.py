"""Resources of a session: whatever outlives a file."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from segmentation.errors import BackendError, RefusesNetwork
from segmentation.flow.threads import GpuTurn
from segmentation.frames import Memory, VideoInfo
from segmentation.frames.source import Source
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.discovery import device_index, device_kept, pin_by_threads
from segmentation.gpu.errors import gpu_errors
from segmentation.models.model import Model, load_model
from segmentation.models.secondary import SecondaryNetwork
from segmentation.options.config import Config, with_batch_size
from segmentation.options.then import networks_on
from segmentation.pipeline.first_run import begin_kernels
from segmentation.pipeline.model_loader import ModelPreloader
from segmentation.pipeline.planning.plan import Choice, Plan
from segmentation.pipeline.stream_status import StreamBoard
from segmentation.stages.encode.worker_process import EncoderService
from segmentation.stages.inference import GPU_BATCH, LIVE_BATCH, Inference, keys_at_once, wants_class_map
from segmentation.stages.inference.shared_network import SharedNetwork
from segmentation.stages.preprocess.crops import AT_ONCE

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
    from segmentation.stages.inference.crop_network import CropNetwork
    from segmentation.tracking.process.tracker_processes import TrackerProcesses

log = logging.getLogger(__name__)

_NetworkKey = tuple[type[Inference], Model, int | None, bool]


class Resources:
    """The GPU with its stream, loaded networks with their CUDA graphs, NVDEC sessions, and processes.

    Everything is made when a run first asks for it, and kept for the next. Runs on several threads may share it.
    Compiled kernels are kept per process, and PyTorch keeps the planes' memory for the stream.
    """

    def __init__(self, config: Config) -> None:
        pin_by_threads()
        self.turn = GpuTurn()
        self.composites_turn = GpuTurn()
        self.encoders = EncoderService()
        self.streams = StreamBoard()
        self._config = config
        self._batch_limit: int | None = None  # after a retry: a larger batch does not fit into the GPU's memory
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._gpu: Gpu | None = None
        self._nvdec_sessions: NvdecSessionPool | None = None
        self._model: Model | None = None
        self._further: dict[str, Model] = {}
        self._secondary: tuple[SecondaryNetwork, ...] | None = None
        self._crop_networks: dict[SecondaryNetwork, CropNetwork | None] = {}
        self._trackers: TrackerProcesses | None = None
        self._networks: dict[_NetworkKey, SharedNetwork] = {}
        self._refused: dict[_NetworkKey, tuple[type[RefusesNetwork], str]] = {}
        # Of networks that are being loaded: the model, the batch, and whether class maps are wanted.
        self._preloaders: dict[tuple[Model, int | None, bool], ModelPreloader] = {}

    @property
    def gpu(self) -> Gpu:
        """The GPU that `config.device` names, with the stream that all stages share."""
        with self._lock:
            if self._gpu is None:
                from segmentation.gpu.context import Gpu  # needs libraries that machines without a GPU lack

                self._gpu = Gpu(device_index(self._config))
            return self._gpu

    def turn_to_start(self, source: Source) -> AbstractContextManager[object]:
        """Returns what is held while a run of `source` starts: a lock, if it is a file and the GPU is in use already.

        A start gives up the GIL some two hundred times, and two at once wait for each other each time. Pipes and live
        sources take no turn: they may have to wait for whoever sends.
        """
        return self._starting if self._gpu is not None and source.size else nullcontext()

    def begin_kernels(self, plan: Plan, info: VideoInfo, config: Config) -> None:
        """Begins to compile the kernels of a run with the options `config`, where any of its stages is on the GPU."""
        if plan.on_gpu:
            begin_kernels(plan, info, config, device_index(self._config))

    @property
    def nvdec_sessions(self) -> NvdecSessionPool:
        with self._lock:
            if self._nvdec_sessions is None:
                from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool  # likewise

                self._nvdec_sessions = NvdecSessionPool()
            return self._nvdec_sessions

    def trackers(self, *, on_gpu: bool) -> TrackerProcesses | None:
        """The processes that follow instances. On a CPU the network is the limit, and each run follows its own."""
        with self._lock:
            if self._trackers is None and on_gpu:
                from segmentation.tracking.process.tracker_processes import TrackerProcesses  # most runs do without

                self._trackers = TrackerProcesses()
            return self._trackers if on_gpu else None

    def model(self, info: VideoInfo | None) -> Model:
        """The model that `config` names, at the size that suits the video, if one is given. Raises `ModelError`."""
        with self._lock:
            if self._model is None:
                self._model = load_model(self._config, info)
            return self._model if info is None else self._model.for_video(info)

    def further_model(self, config: Config, info: VideoInfo) -> Model:
        """Returns the model that `config` names, another one than the session's, for a video. Raises `ModelError`."""
        with self._lock:
            if config.model_name not in self._further:
                self._further[config.model_name] = load_model(config, info)
            return self._further[config.model_name].for_video(info)

    def secondary_networks(self, labels: Sequence[str]) -> tuple[SecondaryNetwork, ...]:
        """The networks of `--then`, on what is found of `labels`. Raises `ModelError` or `ConfigError`."""
        wanted = networks_on(self._config.then, labels)
        with self._lock:
            if self._secondary is None:
                self._secondary = tuple(map(SecondaryNetwork, wanted))
            return self._secondary

    def with_crop_networks(
        self, secondary: Sequence[SecondaryNetwork], frames: Memory
    ) -> list[tuple[SecondaryNetwork, CropNetwork | None]]:
        """Returns each network with the one that runs it on the GPU, loaded once for all runs.

        That is `None` where `frames` are on the host, and for networks that PyTorch can't run.
        """
        if frames == "host":
            return [(network, None) for network in secondary]
        with self._lock:
            for network in secondary:
                if network not in self._crop_networks:
                    self._crop_networks[network] = self._crop_network(network)
            return [(network, self._crop_networks[network]) for network in secondary]

    def _crop_network(self, network: SecondaryNetwork) -> CropNetwork | None:
        from segmentation.stages.inference.crop_network import CropNetwork  # needs PyTorch

        try:
            CropNetwork.describe(network.model)
        except BackendError:  # the plan says so
            return None
        try:
            with gpu_errors():
                return CropNetwork(network.model, AT_ONCE, self.gpu, self.turn.of(CropNetwork))
        except (BackendError, RefusesNetwork) as exc:
            log.warning("then %s: onnxruntime on the CPU (%s)", network.then.name, exc)
            return None

    def preloader(self, model: Model | None, config: Config, *, live: bool) -> ModelPreloader | None:
        """For a network that is not loaded yet, one for all runs that begin together; `None` where there is none."""
        with self._lock:
            if model is None or any(known == model for _, known, _, _ in self._networks):
                return None
            config = with_batch_size(config, self.batch_size(config, model, on_gpu=True, live=live))
            config = with_batch_size(config, keys_at_once(config, model))
            key = (model, config.batch_size, wants_class_map(model, config))
            return self._preloaders.setdefault(key, ModelPreloader(model, config))

    def batch_size(self, config: Config, model: Model | None, *, on_gpu: bool, live: bool) -> int:
        """Frames that are processed at a time. On a GPU, a network with a fixed batch decides."""
        if on_gpu and model is not None and model.batch_on_gpu is not None:
            return model.batch_on_gpu
        wanted = config.batch_size or (1 if not on_gpu else LIVE_BATCH if live else GPU_BATCH)
        return min(wanted, self._batch_limit or wanted)

    def network(
        self, choice: Choice[Inference], model: Model, config: Config, preloader: ModelPreloader | None, gpu: Gpu | None
    ) -> SharedNetwork:
        """The network, loaded once for all runs that give it as many frames at a time.

        Raises `ModelError` or `RefusesNetwork`.
        """
        at_once = keys_at_once(config, model)
        config = with_batch_size(config, at_once)
        key = (choice.implementation, model, at_once if choice.on_gpu else None, wants_class_map(model, config))
        with self._lock:
            if key in self._refused:
                kind, text = self._refused[key]
                raise kind(text)
            if key not in self._networks:
                self._preloaders = {of: one for of, one in self._preloaders.items() if of[0] != model}
                preloaded = None if preloader is None else preloader.result(choice.implementation)
                try:
                    # What another run queues meanwhile must not get into a CUDA graph.
                    with self.composites_turn.of(choice), self.turn.of(choice):
                        infer = choice.implementation(model, config, gpu, preloaded)
                except RefusesNetwork as exc:
                    self._refused[key] = type(exc), str(exc)
                    raise
                self._networks[key] = self._shared(infer, model, at_once, gpu)
            return self._networks[key].for_run()

    def _shared(self, infer: Inference, model: Model, batch: int, gpu: Gpu | None) -> SharedNetwork:
        if infer.memory == "host" or gpu is None:
            return SharedNetwork(infer)
        from segmentation.stages.inference.batched_network import BatchedNetwork, RecurrentNetwork  # needs PyTorch

        turn = self.turn.of(infer)
        return RecurrentNetwork(infer, turn, gpu) if model.form.recurrent else BatchedNetwork(infer, batch, turn, gpu)

    def limit_batch(self, size: int) -> None:
        """Frees the networks of larger batches and idle NVDEC sessions, for an attempt with a smaller batch."""
        with self._lock:
            self._batch_limit = size
            self._free_networks()
            if self._nvdec_sessions is not None:
                self._nvdec_sessions.close()

    def close(self) -> None:
        """Frees everything."""
        with self._lock, device_kept():
            if self._gpu is not None:
                self._gpu.enter()
            self._free_networks()
            if self._nvdec_sessions is not None:
                self._nvdec_sessions.close()
            self.encoders.close()
            if self._trackers is not None:
                self._trackers.close()
        release_cached_memory()

    def _free_networks(self) -> None:
        for network in self._networks.values():
            network.close()
        for crops in filter(None, self._crop_networks.values()):
            crops.close()
        self._networks.clear()
        self._crop_networks.clear()


def release_cached_memory() -> None:
    """Frees the GPU memory that PyTorch keeps for later use on streams that are gone."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with capture_unsafe(), suppress(RuntimeError):  # a GPU that has failed was reported where it failed
            torch.cuda.empty_cache()
