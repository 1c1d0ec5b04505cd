"""A GPU's stream, as pools of memory use it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # both import libraries that machines without a GPU lack
    import torch

    from segmentation.gpu.cuda_calls import Event


class GpuStream(Protocol):
    """Allocates memory and orders its uses. `context.Gpu` is one; see there."""

    def enter(self) -> None: ...

    def entered(self) -> AbstractContextManager[None]: ...

    def record_event(self) -> Event: ...

    def wait_event(self, event: Event) -> None: ...

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor: ...

    def empty_planes(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> tuple[torch.Tensor, ...]: ...
