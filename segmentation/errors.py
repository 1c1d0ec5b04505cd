"""Errors that users can do something about; anything else that surfaces is a bug.

Each message is one line: what is wrong, with which value, and what to do. `exit_code` is the command line's.
"""


class SegmentationError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class ConfigError(SegmentationError, ValueError):
    """An option has a value that it cannot have."""

    exit_code = 2


class InputError(SegmentationError):
    """The input cannot be read, or is no video, or (with `strict`) is damaged."""


class ModelError(SegmentationError):
    """The model cannot be read, or is not one that segments pictures."""


class UnknownOperator(ModelError):
    """The network has an operator that what was to run it does not know; something else may."""


class EngineError(SegmentationError):
    """An engine cannot be built from the model, or is not one to be loaded here."""


class BackendError(SegmentationError):
    """What was asked for is not on this machine: a package, a device, an implementation."""

    exit_code = 3


class LacksEngine(BackendError):
    """The GPU has no engine for this: what the design has in its place serves instead."""


class DeviceError(SegmentationError):
    """The GPU failed while it worked."""


class DeviceMemoryError(DeviceError):
    """The GPU's memory does not suffice."""


class OutputError(SegmentationError):
    """The output cannot be written."""


def one_line(error: BaseException | str) -> str:
    """Quotes a foreign error in one line of at most 200 characters: the system's or FFmpeg's words, else its text."""
    text = error if isinstance(error, str) else getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = " ".join(str(text).split())
    return line if len(line) <= 200 else line[:200] + "..."
