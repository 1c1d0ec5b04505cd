"""Times as people write them, and as exact numbers."""

import math
from fractions import Fraction

from segmentation.errors import ConfigError
from segmentation.options.effect import number


def exact(value: float) -> Fraction:
    """Returns the decimal number as which a float is written: 0.08 is 2/25, not a little more, as in binary digits."""
    return value if isinstance(value, Fraction) else Fraction(repr(value))


def seconds(text: str) -> float:
    """Returns the seconds that `90`, `90.5`, `1:30` or `0:01:30.5` stands for. Raises `ConfigError`."""
    parts = text.split(":")
    if len(parts) > 3:
        raise ConfigError(f"time {text!r}: write seconds or [HH:]MM:SS")
    total = Fraction(0)
    for part in parts:
        value = number(part, f"time {text!r}")
        if not math.isfinite(value):
            raise ConfigError(f"time {text!r}: {part!r} is not a number of seconds")
        total = total * 60 + exact(value)
    return float(total)
