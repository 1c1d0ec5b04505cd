"""Stage 3, inference: the network's input becomes masks.

Contract: `Inference(model, config)(tensor)` takes what preprocess made, (N, 3, H, W) in `model.dtype`, and returns
(N, h, w) float32 in 0..1: at each place the probability of the classes that are kept, upright, at the resolution that
the network puts out; where `tells_classes`, a `Found` with that. N may be smaller than the batch size (the last batch).
`memory` says where both are: NumPy arrays on the "host", of which the caller owns the result, or tensors on "cuda", of
which rows behind the tensor's mean nothing and which, but for `Found.class_map`, the next call writes again. On a GPU a
`Gpu` is the last argument. Up to `workers` threads may call it at once; a recurrent network has one, and is given the
frames in presentation order.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.models.model import Model

LEAST_SPAN = np.float32(1e-6)  # of what "minmax" stretches: where a picture's scores are all the same, nothing is kept


class Found(NamedTuple):
    """Masks, and which of the classes that are kept is the likeliest at each place, whether or not the mask is high."""

    masks: Any  # (N, h, w) float32
    class_map: Any  # (N, h, w) uint8: index into `model.keep`


class Inference(Protocol):
    memory: str
    workers: int

    def __init__(self, model: Model, config: Config) -> None: ...

    def __call__(self, tensor: Any) -> Any: ...


def tells_classes(model: Model, config: Config) -> bool:
    """Whether anybody wants to know which class is where: an overlay of several colors, or the results."""
    effects = (config.effect, *(effect for effect, _ in config.also))
    return len(model.keep) > 1 and ("overlay" in effects or config.results is not None)


def likeliest(scores: NDArray[np.float32], model: Model) -> NDArray[np.uint8]:
    """(N, C, h, w) scores to `Found.class_map`: all activations keep their order."""
    class_map: NDArray[np.uint8] = scores[:, list(model.keep)].argmax(axis=1).astype(np.uint8)
    return class_map


def probabilities(scores: NDArray[np.float32], model: Model) -> NDArray[np.float32]:
    """(N, C, h, w) scores to (N, h, w) probability that a place belongs to one of `model.keep`."""
    keep = list(model.keep)
    if model.activation == "softmax":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        chosen = scores[:, keep].sum(axis=1) / scores.sum(axis=1)
    elif model.activation == "sigmoid":
        chosen = (1 / (1 + np.exp(-scores[:, keep]))).max(axis=1)
    elif model.activation == "minmax":
        chosen = scores[:, keep].max(axis=1)
        least, most = (end(axis=(1, 2), keepdims=True) for end in (chosen.min, chosen.max))
        chosen = (chosen - least) / np.maximum(most - least, LEAST_SPAN)
    else:
        chosen = scores[:, keep].sum(axis=1)
    clipped: NDArray[np.float32] = np.clip(chosen, 0, 1)
    return clipped
