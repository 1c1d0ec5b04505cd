"""The videos that `tools/samples/make_variants.py` makes, one at a time."""

from functools import cache
from pathlib import Path

import pytest
from make_variants import VARIANTS, make
from sides import Side

BY_NAME = {variant.name: variant for variant in VARIANTS}
DAMAGED = ("cut-", "lost-", "flipped-")  # how names of damaged ones begin


@cache
def side(name: str) -> Side:
    return Side(name)


def made(name: str, folder: Path) -> Path:
    """Makes a file, which must be what it is called; skips where the encoder is missing."""
    fault = make(BY_NAME[name], folder)
    if fault.startswith("left out"):
        pytest.skip(f"{name} is {fault}")
    assert not fault, fault
    return folder / name
