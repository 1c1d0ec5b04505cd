"""Where a run's stages find what they work on: the GPU if there is one, and what moves between it and the host.

Nothing here needs the GPU's libraries until there is a GPU.
"""

from typing import Any

from segmentation.capabilities import device_index
from segmentation.config import Config
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.model import Model
from segmentation.refine import Refiner
from segmentation.temporal import Averaging, HostAveraging

GPU_BATCH = 16  # frames at a time: fewer leave the GPU waiting for the host, more only take memory


def open_gpu(config: Config) -> Any:
    """The `Gpu` that `config` means."""
    from segmentation.gpu import Gpu  # only where there is one: its libraries are not on other machines

    return Gpu(device_index(config))


def batch_size(config: Config, model: Model, gpu: Any) -> int:
    """Frames that are processed at a time. On a GPU, a network with a fixed batch decides."""
    if gpu is not None and model.batch is not None:
        return model.batch
    return config.batch_size or (1 if gpu is None else GPU_BATCH)


class _Stay:
    """Where there is no GPU, nothing moves; see `transfer.Transfer`."""

    def enter(self) -> None: ...

    def frames(self, batch: FrameBatch, memory: str, *, wait: bool = True) -> FrameBatch:
        return batch

    def rows(self, array: Any, memory: str, count: int) -> Any:
        return array


def moves(gpu: Any, info: VideoInfo, pix_fmt: str, config: Config) -> Any:
    """What brings batches and arrays to where a stage wants them: `transfer.Transfer`, or nothing without a GPU."""
    if gpu is None:
        return _Stay()
    from segmentation.transfer import Transfer

    assert config.batch_size is not None
    return Transfer(gpu, info, FORMATS[pix_fmt], config.batch_size)


def steadying(memory: str, model: Model, config: Config, gpu: Any) -> Averaging | None:
    """What steadies masks that inference leaves in that memory; `None` where none is wanted."""
    if not config.smooth:
        return None
    if memory == "host":
        return HostAveraging(model, config.smooth)
    from segmentation.masks_cuda import CudaAveraging

    return CudaAveraging(model, config.smooth, gpu)


class Refined:
    """A postprocessor that is given refined masks: for the clock one stage. Also returns those masks."""

    def __init__(self, postprocess: Any, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any) -> None:
        self.memory: str = postprocess.memory
        self._postprocess = postprocess
        self._refine: Any = None  # where the masks are to stay as they are
        if config.refine and self.memory == "host":
            self._refine = Refiner(info, pix_fmt)
        elif config.refine:
            from segmentation.masks_cuda import CudaRefiner

            self._refine = CudaRefiner(info, pix_fmt, gpu)

    def __call__(self, batch: FrameBatch, masks: Any) -> tuple[FrameBatch, Any]:
        if self._refine is not None:
            masks = self._refine(batch, masks)
        return self._postprocess(batch, masks), masks
