"""Runs with a network that costs little, for tests that don't look at what the built-in one finds."""

from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import program
from paths import DATA

import segmentation

NETWORK = DATA / "bright-dynamic.onnx"  # finds what is bright, in a fifth of the built-in network's time
segment = partial(segmentation.segment, model=NETWORK)


def cli(*arguments: str | Path, **options: Any) -> CompletedProcess[str]:
    """See `program.cli`."""
    return program.cli("--model", NETWORK, *arguments, **options)
