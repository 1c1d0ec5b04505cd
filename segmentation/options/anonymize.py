"""Reads the option `--anonymize`: what is covered, so that nobody is recognized."""

from __future__ import annotations

from dataclasses import dataclass

from segmentation.errors import ConfigError, did_you_mean

KINDS = ("faces", "people", "plates")
COVERS = ("color", "image", "video")  # effects of which nothing of the picture can be computed back
_BUILT_IN = {"faces": "face", "people": "person"}


@dataclass(frozen=True, slots=True)
class Anonymize:
    """Things that are covered, and the network that finds them."""

    kind: str  # one of `KINDS`
    model: str  # the name of a built-in network, or a file

    @staticmethod
    def parse(text: str) -> Anonymize:
        """Reads `faces`, `people` or `plates=FILE.onnx`. Raises `ConfigError`."""
        kind, equals, file = text.partition("=")
        if kind not in KINDS:
            raise ConfigError(
                f"anonymize {text!r} is unknown: choose faces, people or plates=FILE.onnx{did_you_mean(kind, KINDS)}"
            )
        if equals:
            if not file:
                raise ConfigError(f"anonymize {text!r}: name the network's file, such as plates=plates.onnx")
            return Anonymize(kind, file)
        if kind not in _BUILT_IN:
            raise ConfigError(f"anonymize {text}: no network of {kind} is built in; name one, such as {kind}=FILE.onnx")
        return Anonymize(kind, _BUILT_IN[kind])
