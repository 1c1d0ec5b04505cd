"""A network's scores as masks, on the host; `stages/inference/onnx_to_torch.py` has the same on a GPU."""

import numpy as np
from numpy.typing import NDArray

from segmentation.models.model import Model

LEAST_SPAN = np.float32(1e-6)  # of what "minmax" stretches: a picture whose scores are all equal keeps nothing


def likeliest(scores: NDArray[np.float32], model: Model) -> NDArray[np.uint8]:
    """(N, C, h, w) scores to (N, h, w): index into `model.keep` of the likeliest class. Activations keep the order."""
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
