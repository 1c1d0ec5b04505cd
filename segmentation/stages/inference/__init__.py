"""Stage 3, inference: the network's input becomes masks."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from segmentation.stages import Stage

if TYPE_CHECKING:
    from segmentation.config import Config
    from segmentation.frames import Array
    from segmentation.gpu.context import Gpu
    from segmentation.models.model import Model


class InferenceResult(NamedTuple):
    """What a network found in a batch, upright, at the size that the network puts out."""

    masks: Array  # (N, h, w) float32 in 0..1: the probability of the classes that are kept
    class_map: (
        Array | None
    )  # (N, h, w) uint8: index into `model.keep` of the likeliest class; only where it is asked for


class Inference(Stage):
    """Calling it with what preprocess made, (N, 3, H, W) in `model.dtype`, returns an `InferenceResult`.

    N may be smaller than the batch size: the last batch is. NumPy arrays are the caller's; of CUDA tensors the rows
    behind the batch's mean nothing, and the next call overwrites the masks. The class map is always the caller's.
    """

    workers: int  # threads that may call it at once; a recurrent network has one, and takes frames in order

    @abstractmethod
    def __init__(self, model: Model, config: Config, gpu: Gpu | None, preloaded: Any = None) -> None:
        """`preloaded` is what `preload` has returned."""

    @abstractmethod
    def __call__(self, tensor: Array) -> InferenceResult: ...

    @classmethod
    def preload(cls, model: Model, config: Config) -> Any:
        """Loads the network before there is a `Gpu`, on a thread of its own; `None` where nothing is gained."""
        return None

    def for_run(self) -> Inference:
        """The network for one more run. A recurrent one starts with fresh states and shares the rest."""
        return self


def wants_class_map(model: Model, config: Config) -> bool:
    """Whether a run shows which class is where: in an overlay of several colors, or in the results."""
    effects = (config.effect, *(effect for effect, _ in config.also))
    return len(model.keep) > 1 and ("overlay" in effects or config.results is not None)
