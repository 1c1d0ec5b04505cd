"""Options that come from outside, with a request or in a project file: values alone, never names of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.options.keywords import Options

NETWORKS = ("person", "person-hq", "person-best")  # the built-in ones; others are files
EFFECTS = ("blur", "pixelate", "color", "overlay", "cutout", "mask")  # those without a file
NAMES = (
    *("effect", "invert", "threshold", "feather", "smooth", "interval", "refine", "model", "track", "keep", "pick"),
    *("start", "duration", "max_frames", "strict", "codec", "quality", "preset", "keep_start"),
    *("anonymize", "region", "except_", "only", "mute", "pitch_shift"),
)


def checked(given: object) -> Options:
    """Returns the options of a JSON object, by the names of `segment()`. Raises `ConfigError`."""
    if not isinstance(given, Mapping):
        raise ConfigError('options: must be a JSON object, such as {"effect": "blur:40"}')
    for name in given:
        if name not in NAMES:
            raise ConfigError(f"options: {name!r} is none of these: {', '.join(NAMES)}{did_you_mean(name, NAMES)}")
    config = Config(**given)
    if Effect.parse(config.effect).kind not in EFFECTS:
        raise ConfigError(f"effect {config.effect!r}: names a file, which is refused here; choose {', '.join(EFFECTS)}")
    if "=" in (config.anonymize or ""):
        raise ConfigError(
            f"anonymize {config.anonymize!r}: names a file, which is refused here; choose faces, heads or people"
        )
    if config.anonymize is None and config.model not in NETWORKS:
        raise ConfigError(f"model {config.model!r}: choose {', '.join(NETWORKS)}")
    return cast(Options, dict(given))
