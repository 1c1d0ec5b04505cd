"""Where a run's stages find what they work on: the GPU if there is one, and what moves between it and the host.

Nothing here needs the GPU's libraries until there is a GPU.
"""

import logging
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from segmentation.config import Config
from segmentation.errors import DeviceError, DeviceMemoryError
from segmentation.frames import FORMATS, FrameBatch, HostTransfer, MaskedBatch, VideoInfo
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.discovery import device_index
from segmentation.models.model import Model, load_model
from segmentation.stages.inference import Inference
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.masks.smoothing import HostSmoothing, SmoothingBackend

log = logging.getLogger(__name__)

GPU_BATCH = 16  # frames at a time: fewer leave the GPU waiting for the host, more only take memory


def open_gpu(config: Config) -> Any:
    """The `Gpu` that `config` means."""
    from segmentation.gpu.context import Gpu  # only where there is one: its libraries are not on other machines

    return Gpu(device_index(config))


def release_cached_memory() -> None:
    """Gives back what GPU memory PyTorch keeps for later: it keeps it for each stream, and each run has its own."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with capture_unsafe(), suppress(RuntimeError):  # a GPU that has failed, which was said
            torch.cuda.empty_cache()


def batch_size(config: Config, model: Model | None, *, on_gpu: bool) -> int:
    """Frames that are processed at a time. On a GPU, a network with a fixed batch decides."""
    if on_gpu and model is not None and model.batch is not None:
        return model.batch
    return config.batch_size or (GPU_BATCH if on_gpu else 1)


def with_half_the_batch(config: Config, source: str, fault: DeviceError, exc: Exception) -> Config:
    """For another attempt, if a GPU's memory was full. Raises the fault behind `exc` if that does not help."""
    half = (config.batch_size or GPU_BATCH) // 2
    try:
        if not isinstance(fault, DeviceMemoryError) or not half:
            raise fault from (exc if fault is not exc else exc.__cause__)
        if config.masks is None and (fixed := load_model(config).batch) is not None:
            raise DeviceMemoryError(
                f"{fault}; {config.model} takes {fixed} frames at a time, try one for fewer"
            ) from exc
        log.warning("%s: %s; starting again with --batch-size %d", source, str(fault), half)  # records may be kept
    finally:
        del fault, exc  # or they, who know this frame, would refer to themselves, and to all of the run
    return replace(config, batch_size=half)


class ModelPreloader:
    """A network that is loaded while the libraries of other stages are imported, if what infers can `load` it without a
    `Gpu`."""

    def __init__(self, model: Model | None, config: Config) -> None:
        self._model, self._config = model, config
        self._loaded: Future[Any] | None = None

    def begin(self, infer: Any) -> None:
        """`infer` is the class that is chosen."""
        if self._model is None or not Inference:
            return
        config = replace(self._config, batch_size=batch_size(self._config, self._model, on_gpu=True))
        pool = ThreadPoolExecutor(1, "loading")
        self._loaded = pool.submit(infer.preload, self._model, config)
        pool.shutdown(wait=False)

    def options(self) -> dict[str, Any]:
        """For the constructor of what infers. Raises what loading has raised."""
        return {} if self._loaded is None else {"preloaded": self._loaded.result()}


def moves(gpu: Any, info: VideoInfo, pix_fmt: str, config: Config) -> Any:
    """What brings batches and arrays to where a stage wants them: `transfer.Transfer`, or nothing without a GPU."""
    if gpu is None:
        return HostTransfer()
    from segmentation.gpu.transfer import GpuTransfer

    assert config.batch_size is not None
    return GpuTransfer(gpu, info, FORMATS[pix_fmt], config.batch_size)


def make_smoother(memory: str, model: Model, config: Config, gpu: Any) -> SmoothingBackend[Any] | None:
    """What steadies masks that inference leaves in that memory; `None` where none is wanted."""
    if not config.smoothing_strength:
        return None
    if memory == "host":
        return HostSmoothing(model, config.smoothing_strength)
    from segmentation.stages.masks.cuda import CudaSmoothing

    return CudaSmoothing(model, config, gpu)


class Compositor:
    """The postprocessors of all outputs, which are given refined masks: for the clock one stage. Returns what each of
    them makes of a batch, and those masks."""

    def __init__(self, postprocesses: Sequence[Any], info: VideoInfo, pix_fmt: str, config: Config, gpu: Any) -> None:
        self.memory: str = postprocesses[0].memory
        self._postprocesses = postprocesses
        self._refine: Any = None  # where the masks are to stay as they are
        if config.refine and self.memory == "host":
            self._refine = Refiner(info, pix_fmt)
        elif config.refine:
            from segmentation.stages.masks.cuda import CudaRefiner

            self._refine = CudaRefiner(info, pix_fmt, config, gpu)

    def __call__(self, masked: MaskedBatch) -> tuple[list[FrameBatch], Any]:
        if self._refine is not None:
            masked = replace(masked, masks=self._refine(masked.frames, masked.masks))
        return [postprocess(masked) for postprocess in self._postprocesses], masked.masks
