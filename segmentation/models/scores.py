"""Turns a network's scores into masks, on the host; `stages/inference/compiler/onnx_to_torch.py` does so on a GPU."""

import numpy as np
from numpy.typing import NDArray

from segmentation.models.model import Model

LEAST_SPAN = np.float32(1e-6)  # that "minmax" stretches: a picture whose scores are all equal has an empty mask


def likeliest(scores: NDArray[np.float32], model: Model) -> NDArray[np.uint8]:
    """Returns the likeliest class at each place, as an index into `model.keep`: (N, C, h, w) to (N, h, w) uint8.

    No activation is needed, because activations keep the order.
    """
    class_map: NDArray[np.uint8] = scores[:, list(model.keep)].argmax(axis=1).astype(np.uint8)
    return class_map


def probabilities(scores: NDArray[np.float32], model: Model) -> NDArray[np.float32]:
    """Returns the probability of all of `model.keep` together: (N, C, h, w) to (N, h, w) float32 in 0..1.

    It is NaN where a score is no number, or infinite: such a score comes of an overflow, and states no probability.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _probabilities(scores, model)


def _probabilities(scores: NDArray[np.float32], model: Model) -> NDArray[np.float32]:
    keep = list(model.keep)
    infinite = model.activation != "softmax" and np.isinf(scores[:, keep]).any(axis=1)
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
    clipped: NDArray[np.float32] = np.clip(np.where(infinite, np.float32(np.nan), chosen), 0, 1)
    return clipped
