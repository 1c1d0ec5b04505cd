"""Video segmentation: finds what is in a video and blurs, replaces or masks the rest."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from segmentation.config import Config
    from segmentation.effect import Effect
    from segmentation.errors import (
        BackendError,
        ConfigError,
        DeviceError,
        EngineError,
        InputError,
        ModelError,
        OutputError,
        SegmentationError,
    )
    from segmentation.pipeline.run import Report, segment

__version__ = "0.1.0"
__all__ = [
    "BackendError",
    "Config",
    "ConfigError",
    "DeviceError",
    "Effect",
    "EngineError",
    "InputError",
    "ModelError",
    "OutputError",
    "Report",
    "SegmentationError",
    "segment",
]

_MODULES = {
    "Config": "config",
    "Effect": "effect",
    "Report": "pipeline.run",
    "segment": "pipeline.run",
}  # others: errors


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is: the encoders' own process needs none of it, and is to start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
