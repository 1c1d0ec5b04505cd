"""Stage 3, inference: the network's input becomes masks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from segmentation.stages import Stage

if TYPE_CHECKING:
    from segmentation.frames import Array
    from segmentation.frames.instances import FrameInstances
    from segmentation.gpu.context import Gpu
    from segmentation.models.model import Model
    from segmentation.options.config import Config


GPU_BATCH = 16  # frames at a time: fewer leave the GPU waiting for the host, more only take memory
LIVE_BATCH = 4  # a camera's frames come one by one, and the network takes its whole batch for each
_KEYS_IF_AUTO = 4  # one of so many frames, roughly, becomes a key


class InferenceResult(NamedTuple):
    """A network's result for a batch, upright, at the size of the network's output."""

    masks: Array  # (N, h, w) float32 in 0..1: the probability of the classes that are kept
    # (N, h, w) uint8: index into `model.keep` of the likeliest class, where `wants_class_map` says so
    class_map: Array | None
    instances: Sequence[FrameInstances] = ()  # N, of a network that finds single things


class Inference(Stage):
    """A network that is called with the preprocessor's output, (N, 3, H, W) in `model.dtype`.

    N may be smaller than the batch size, as in the last batch. Returned NumPy arrays belong to the caller. Of returned
    CUDA masks, only the first N rows count, and the next call overwrites them. The rest belongs to the caller.
    """

    workers: int  # threads that may call at once; a recurrent network has one, and takes frames in order

    @abstractmethod
    def __init__(self, model: Model, config: Config, gpu: Gpu | None, preloaded: object = None) -> None:
        """Loads the network. `preloaded` is the result of `preload`.

        Raises `RefusesNetwork` where another implementation is to serve.
        """

    @abstractmethod
    def __call__(self, tensor: Array) -> InferenceResult:
        """Returns the masks of a batch (N, 3, H, W)."""

    @classmethod
    def preload(cls, model: Model, config: Config) -> object:
        """Loads the network before there is a `Gpu`, on a thread of its own; `None` where that gains nothing."""
        return None

    @classmethod
    def known(cls, model: Model, config: Config) -> str:
        """Says what earlier starts have found out about the network in batches of `config.batch_size`; "" for nothing.

        Raises `BackendError` where another implementation is to serve.
        """
        return ""

    def for_run(self) -> Inference:
        """Returns the network for one more run. A recurrent one starts with fresh states and shares the rest."""
        return self


def wants_class_map(model: Model, config: Config) -> bool:
    """Returns whether a run shows where which class is: in an overlay of several colors, in the results, by ids."""
    overlay = any(effect.text == "overlay" for effect in config.effects)
    asked = overlay or config.results is not None or config.tracker is not None
    return len(model.keep) > 1 and asked


def asked_for(config: Config) -> bool:
    """Returns whether the user asks for the implementation that infers, so that no other one may take its place."""
    return config.infer is not None or config.mode == "optimized"


def keys_at_once(config: Config, model: Model) -> int:
    """Returns how many frames of a batch go through the network at a time: those between its keys don't."""
    batch = config.batch_size or 1
    if model.batch is not None:
        return batch
    return -(-batch // (_KEYS_IF_AUTO if config.interval == "auto" else config.interval + 1))
