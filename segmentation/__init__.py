"""Video segmentation: finds people or other classes in a video and blurs, replaces or masks the rest.

The public names:

- `segment`: processes one video.
- `Segmenter`: processes many videos and pictures with one network, as a context manager.
- `Workers`: runs videos on several processes, cut into pieces, as a context manager.
- `WorkersStatus`: the figures of these processes, from `Workers.status`.
- `Processes`: a `Segmenter` whose runs go to several processes.
- `Streams`: runs cameras and streams that come and go, on one `Segmenter`, as a context manager.
- `StreamStatus`: the figures of one of them, from `Streams.status`.
- `StreamEvent`: a change of one of them, from `Streams.events`.
- `MaskedFrame`: a frame of a video with its mask, from `Segmenter.frames`.
- `Config`: the options, which `segment`, `Segmenter` and `Streams` also take as keywords.
- `Effect`: the option `effect`, parsed.
- `Report`: the result of a run.
- `SegmentationError`: base of the errors that users can act on. Each message is one line.
  - `ConfigError`: an option has an invalid value.
  - `InputError`: the input can't be read, is no video, or is damaged and `strict` is set.
  - `ModelError`: the model can't be read, or is no network that segments pictures.
  - `EngineError`: a TensorRT engine can't be built or loaded.
  - `BackendError`: a package, a device or an implementation is missing on this machine.
  - `DeviceError`: the GPU failed during a run.
  - `OutputError`: an output can't be written.
"""

import os
from importlib import import_module

from segmentation._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it as true. To import `typing` takes 4 ms, in which Ctrl-C has a traceback
if TYPE_CHECKING:
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
    from segmentation.options.config import Config
    from segmentation.options.effect import Effect
    from segmentation.pipeline.report import Report
    from segmentation.pipeline.stream_status import StreamStatus
    from segmentation.scale.coordinator import Workers
    from segmentation.sessions.frame_iterator import MaskedFrame
    from segmentation.sessions.processes import Processes
    from segmentation.sessions.segment import segment
    from segmentation.sessions.session import Segmenter
    from segmentation.sessions.streams import StreamEvent, Streams
    from segmentation.sessions.workers_status import WorkersStatus

# ONNX Runtime from 1.29 on writes an identifier to the home folder and looks up a host, unless this is set before its
# import. All modules that import it lie in this package, and the variable reaches child processes too.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "BackendError",
    "Config",
    "ConfigError",
    "DeviceError",
    "Effect",
    "EngineError",
    "InputError",
    "MaskedFrame",
    "ModelError",
    "OutputError",
    "Processes",
    "Report",
    "SegmentationError",
    "Segmenter",
    "StreamEvent",
    "StreamStatus",
    "Streams",
    "Workers",
    "WorkersStatus",
    "segment",
]

_MODULES = {
    "Config": "options.config",
    "Effect": "options.effect",
    "MaskedFrame": "sessions.frame_iterator",
    "Processes": "sessions.processes",
    "Report": "pipeline.report",
    "Segmenter": "sessions.session",
    "StreamEvent": "sessions.streams",
    "StreamStatus": "pipeline.stream_status",
    "Streams": "sessions.streams",
    "Workers": "scale.coordinator",
    "WorkersStatus": "sessions.workers_status",
    "segment": "sessions.segment",
}  # the others are errors


def __getattr__(name: str) -> object:
    """Imports a public name when it is used: the encoders' process needs none of them, and has to start fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
