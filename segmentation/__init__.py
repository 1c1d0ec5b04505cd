"""Video segmentation: finds people or other classes in a video and blurs, replaces or masks the rest.

`segment()` processes one file, a `Segmenter` many. The names in `__all__` are the public ones.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from segmentation._version import __version__ as __version__

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
    from segmentation.pipeline.report import Report
    from segmentation.pipeline.segment import segment
    from segmentation.pipeline.session import Segmenter

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
    "Segmenter",
    "segment",
]

_MODULES = {
    "Config": "config",
    "Effect": "effect",
    "Report": "pipeline.report",
    "Segmenter": "pipeline.session",
    "segment": "pipeline.segment",
}  # the others are errors


def __getattr__(name: str) -> object:
    """Imports a public name when it is used: the encoders' process needs none of them, and has to start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
