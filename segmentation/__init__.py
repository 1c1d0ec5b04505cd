"""Video segmentation: finds what is in a video and blurs, replaces or masks the rest."""

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
from segmentation.pipeline import Report, segment

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
