"""The option `--licenses`: under what terms the program, its networks, and the libraries that are installed come."""

import re
from collections.abc import Iterator
from importlib import metadata

import av

import segmentation
from segmentation.models.model import PEOPLE

_OWN = "video-segmentation"  # the distribution
_GPL = ("libx264", "libx265")  # encoders in PyAV's wheels whose license is the GPL, version 2 or later


def licenses() -> list[str]:
    """Returns a line for the program, each file in it that came from elsewhere, and each library."""
    people = ", ".join(f"{name}.onnx" for name in PEOPLE)
    lines = [
        f"segmentation {segmentation.__version__}: Apache-2.0",
        f"  {people}: Apache-2.0, trained on pictures under free licenses (models/README.md)",
        "  face.onnx: Apache-2.0, YuNet by Shiqi Yu and others (models/README.md)",
        "  astronaut.jpg: NASA, public domain",
    ]
    lines += [f"{name} {metadata.version(name)}: {_license(name)}" for name in sorted(_libraries(), key=str.lower)]
    if there := [name for name in _GPL if name in av.codecs_available]:
        lines += [
            f"  FFmpeg in av: LGPL; {' and '.join(there)} in it: GPL-2.0-or-later",
            "  So whoever passes on an image or a bundle with av does that under the GPL; see docs/licenses.md.",
        ]
    return lines


def _libraries() -> set[str]:
    """Returns the installed distributions that this one requires, with its extras, and those that these require."""
    found: set[str] = set()
    new = set(_required(_OWN, extras=True))
    while new:
        found |= new
        new = {name for one in new for name in _required(one, extras=False)} - found
    return found


def _required(name: str, *, extras: bool) -> Iterator[str]:
    """Yields the installed distributions that one requires, by the names in their own metadata."""
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return
    for requirement in requirements:
        if "extra ==" in requirement and not extras:
            continue
        named = re.match(r"[\w.-]+", requirement)
        try:
            yield metadata.metadata(named.group() if named else "")["Name"]
        except metadata.PackageNotFoundError:
            continue


def _license(name: str) -> str:
    """Returns what a distribution's metadata state, by the newest field that they have."""
    stated = metadata.metadata(name)
    short = (stated["License"] or "").strip() if "License" in stated else ""
    kinds = [text.rpartition(" :: ")[2] for text in stated.get_all("Classifier") or [] if text.startswith("License")]
    if "License-Expression" in stated:
        return stated["License-Expression"]
    if short and "\n" not in short:
        return short
    return ", ".join(kinds) or "not stated"
