"""What happens to the picture: the option `--effect`, read."""

import re
from dataclasses import dataclass, replace

from segmentation.errors import ConfigError

DEFAULT_STRENGTH = 25.0
DEFAULT_BLOCK = 40.0
CHOICES = (
    "blur[:STRENGTH], pixelate[:SIZE], color[:#RRGGBB], image:FILE[,contain], video:FILE[,contain], cutout, mask "
    "or overlay[:#RRGGBB]"
)
_CONTAIN = ",contain"


@dataclass(frozen=True, slots=True)
class Effect:
    """A kind, the first word of the option, with its argument. Sizes are in pixels of a picture whose shorter side has
    1080."""

    kind: str
    strength: float = DEFAULT_STRENGTH  # blur: its standard deviation
    block: float = DEFAULT_BLOCK  # pixelate: the side of a block
    rgb: tuple[int, int, int] = (0, 177, 64)  # color: what replaces the background; overlay: the tint
    file: str = ""  # image, video: what replaces the background
    classes: tuple[str, ...] = ()  # overlay: the names of what is kept, if each is to have its own color
    contain: bool = False  # image, video: show all of it, with black beside it, instead of covering the picture with it

    @staticmethod
    def parse(text: str) -> "Effect":
        """Reads `blur:25`, `color:#00b140`, `image:beach.jpg,contain`, `cutout` and so on. Raises `ConfigError`."""
        kind, colon, argument = text.partition(":")
        match kind:
            case "blur" | "pixelate" if colon:
                return _sized(kind, number(argument, f"effect {text!r}"), text)
            case "color" | "overlay" if colon:
                if not re.fullmatch(r"#?[0-9a-fA-F]{6}", argument):
                    raise ConfigError(f"effect {text!r}: write the color as #RRGGBB, such as {kind}:#00b140")
                value = int(argument.lstrip("#"), 16)
                return Effect(kind, rgb=(value >> 16, value >> 8 & 255, value & 255))
            case "image" | "video":
                file = argument.removesuffix(_CONTAIN)
                if not file:
                    raise ConfigError(f"effect {text!r}: name the file that is to be behind, such as {kind}:FILE")
                return Effect(kind, file=file, contain=file != argument)
            case "blur" | "pixelate" | "color" | "overlay" | "mask" | "cutout" if not colon:
                return Effect(kind)
        raise ConfigError(f"effect {text!r} is unknown: choose {CHOICES}")


def effect_on(text: str, classes: tuple[str, ...]) -> Effect:
    """The effect, where these classes are kept: with several, `overlay` without a color gives each its own."""
    effect = Effect.parse(text)
    return replace(effect, classes=classes) if text == "overlay" and len(classes) > 1 else effect


def _sized(kind: str, value: float, text: str) -> Effect:
    if kind == "blur":
        if not 0 < value <= 500:
            raise ConfigError(f"effect {text!r}: the strength of blur must lie above 0 and up to 500, such as blur:25")
        return Effect(kind, strength=value)
    if not 2 <= value <= 1080:
        raise ConfigError(f"effect {text!r}: the blocks' size must lie in 2 to 1080 pixels, such as pixelate:40")
    return Effect(kind, block=value)


def number(text: str, what: str) -> float:
    """`text` as a number. Raises `ConfigError`, which begins with `what`, if it is none."""
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what}: {text!r} is not a number") from None
