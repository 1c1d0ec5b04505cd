"""A frame's way, in this order: decode, preprocess, inference, masks, postprocess, encode.

Each folder's `__init__` holds the contract of its stage, a base class; each file beside it is one implementation,
entered in `pipeline/planning/implementations.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:  # the encoders' own process imports this package, and needs neither
    from segmentation.frames import Memory, VideoInfo
    from segmentation.options.config import Config


class Stage(ABC):
    """The base of all stages. Every constructor takes the run's `Gpu` as `gpu`, `None` on a run without a GPU."""

    memory: ClassVar[Memory]  # where it takes its input from: NumPy arrays on the "host", or tensors on "cuda"

    @staticmethod
    @abstractmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        """Says in one line what the stage runs on. Raises `BackendError` where it can't run."""

    def close(self) -> None:  # noqa: B027  # most stages hold nothing
        """Frees what the stage holds and ends its threads. Called in every way out, any number of times."""
