"""A session's network, which several runs call at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from segmentation.frames import Array, Memory
from segmentation.stages.inference import Inference, InferenceResult

# Calls the network with its input (N, 3, H, W), on the account of a run.
Call: TypeAlias = Callable[[Inference, Array], InferenceResult]


class SharedNetwork:
    """Calls an `Inference` for several runs. The result of a frame does not depend on what runs beside it."""

    def __init__(self, infer: Inference) -> None:
        self._infer = infer
        self.memory: Memory = infer.memory
        self.workers = infer.workers  # threads of one run that may call at once

    def __call__(self, tensor: Array, count: int, call: Call) -> InferenceResult:
        """Returns the masks of the first `count` rows of `tensor` (N, 3, H, W). They belong to the caller.

        `tensor` may be overwritten after that. `call` raises what the network raises.
        """
        return call(self._infer, tensor)

    def for_run(self) -> SharedNetwork:
        """Returns the network for one more run, see `Inference.for_run`."""
        return SharedNetwork(self._infer.for_run())

    def close(self) -> None:
        """Frees the network."""
        self._infer.close()
