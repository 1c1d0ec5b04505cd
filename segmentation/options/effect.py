"""Reads the option `--effect`: how the picture is changed outside the mask."""

import mimetypes
import re
from dataclasses import dataclass, field, replace

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.colors import COLORS

KINDS = ("blur", "pixelate", "color", "image", "video", "cutout", "mask", "overlay")
DEFAULT_STRENGTH = 25.0
DEFAULT_BLOCK = 40.0
CHOICES = (
    "blur[:STRENGTH], pixelate[:SIZE], color[:#RRGGBB|NAME], image:FILE[,contain], video:FILE[,contain], cutout, mask "
    "or overlay[:#RRGGBB|NAME]; @LABEL for the instances of a label alone"
)
CUTTING = ("color", "image", "video", "cutout", "mask")  # kinds that leave nothing of the old background
_CONTAIN = ",contain"
_OTHER_NAMES = {"transparent": "cutout", "alpha": "cutout", "greenscreen": "color:#00b140", "mosaic": "pixelate"}
_WITH_FILE = ("image:", "video:")


class Unasked(str):
    """The text of an effect that nobody has asked for: `--anonymize` covers in black then."""


DEFAULT_EFFECT: str = Unasked("blur")


@dataclass(frozen=True, slots=True)
class Effect:
    """A kind of effect with its argument. Sizes are in pixels of a picture whose shorter side has 1080."""

    kind: str  # the first word of the option
    strength: float = DEFAULT_STRENGTH  # blur: the standard deviation
    block: float = DEFAULT_BLOCK  # pixelate: the side of a block
    rgb: tuple[int, int, int] = (0, 177, 64)  # color: the new background; overlay: the tint
    file: str = ""  # image, video: the file of the new background
    classes: tuple[str, ...] = ()  # overlay: the names of the kept classes, if each has its own color
    label: str = ""  # of the instances that alone are changed, or shown by cutout, mask and overlay; "" for none
    contain: bool = False  # image, video: the whole file is shown, between black bars, instead of covering the picture
    text: str = field(default="", compare=False)  # as the option has it

    @staticmethod
    def parse(text: str) -> "Effect":
        """Reads an option such as `blur:25`, `color:#00b140`, `image:beach.jpg,contain` or `blur@face`.

        The name of an image or a video may contain `@`, so these take no label. Raises `ConfigError`.
        """
        whole, at, label = text.rpartition("@")
        if at and not text.startswith(_WITH_FILE):
            if not label.strip() or not whole:
                raise ConfigError(f"effect {text!r}: write EFFECT@LABEL, such as blur@face")
            return replace(_parsed(whole), label=label, text=text)
        return replace(_parsed(text), text=text)

    def on(self, classes: tuple[str, ...]) -> "Effect":
        """Returns the effect for these kept classes. `overlay` without a color gives each of several its own."""
        return replace(self, classes=classes) if self.text == "overlay" and len(classes) > 1 else self


def _parsed(text: str) -> Effect:
    """Returns an effect without a label. Raises `ConfigError`."""
    kind, colon, argument = text.partition(":")
    match kind:
        case "blur" | "pixelate" if colon:
            return _sized(kind, number(argument, f"effect {text!r}"), text)
        case "color" | "overlay" if colon:
            return Effect(kind, rgb=_color(argument, kind, text))
        case "image" | "video":
            file = argument.removesuffix(_CONTAIN)
            if not file:
                raise ConfigError(f"effect {text!r}: name the file that is to be behind, such as {kind}:FILE")
            return Effect(kind, file=file, contain=file != argument)
        case "blur" | "pixelate" | "color" | "overlay" | "mask" | "cutout" if not colon:
            return Effect(kind)
    raise ConfigError(f"effect {text!r} is unknown: choose {CHOICES}{_proposal(text)}")


def _proposal(text: str) -> str:
    """Returns `; did you mean EFFECT?` for an effect without its first word, or by another of its names."""
    kind, colon, _ = text.partition(":")
    misspelt = colon and len(kind) > 1 and did_you_mean(kind, KINDS)  # one letter is a drive of Windows
    medium = str(mimetypes.guess_type(text)[0]).partition("/")[0]
    if medium in ("image", "video") and not misspelt:
        return f"; did you mean {medium}:{text}?"
    if text.lower() in COLORS or re.fullmatch("#[0-9a-fA-F]{6}", text):
        return f"; did you mean color:{text}?"
    other = _OTHER_NAMES.get(text.lower())
    return f"; did you mean {other}?" if other else did_you_mean(kind, KINDS)


def _color(argument: str, kind: str, text: str) -> tuple[int, int, int]:
    """Returns the color of `#00b140` or of one of CSS's names. Raises `ConfigError`, which quotes the option `text`."""
    if named := COLORS.get(argument.lower()):
        return named
    if not re.fullmatch(r"#?[0-9a-fA-F]{6}", argument):
        form = f"write the color as #RRGGBB, such as {kind}:#00b140, or as one of CSS's names, such as {kind}:green"
        raise ConfigError(f"effect {text!r}: {form}{did_you_mean(argument, COLORS)}")
    value = int(argument.lstrip("#"), 16)
    return value >> 16, value >> 8 & 255, value & 255


def _sized(kind: str, value: float, text: str) -> Effect:
    """Returns `blur` or `pixelate` with its size. Raises `ConfigError`, which quotes the option `text`."""
    if kind == "blur":
        if not 0 < value <= 500:
            raise ConfigError(f"effect {text!r}: the strength of blur must lie above 0 and up to 500, such as blur:25")
        return Effect(kind, strength=value)
    if not 2 <= value <= 1080:
        raise ConfigError(f"effect {text!r}: the blocks' size must lie in 2 to 1080 pixels, such as pixelate:40")
    return Effect(kind, block=value)


def number(text: str, what: str) -> float:
    """Returns `text` as a number. Raises `ConfigError`, whose message begins with `what`, if `text` is none."""
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what}: {text!r} is not a number") from None
