"""Bugs in the real program: a method of one of its stages that fails for inputs of a certain name."""

import os
from importlib import import_module
from pathlib import Path

import pytest

NAME = "faulty"  # of the inputs for which it fails
TEXT = "internal error (ZeroDivisionError: on purpose); -v shows where"

_SITE = """
import importlib
import sys

def failing(call):
    def method(self, *arguments, **options):
        if {name!r} in repr(self) + repr(getattr(self, "__dict__", "")):
            {fault}
        return call(self, *arguments, **options)
    return method

kind = getattr(importlib.import_module({module!r}), {kind!r})
setattr(kind, {method!r}, failing(getattr(kind, {method!r})))
"""


RAISE = 'raise ZeroDivisionError("on purpose")'
ABORT = "__import__('os').abort()"
ABORT_ENCODERS = "'encode.segment_worker' in sys.orig_argv[-2] and __import__('os').abort()"


def plant(place: str, folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str = RAISE) -> None:
    """Lets `MODULE:CLASS.METHOD` of the package fail in all processes that the program is started in from now on."""
    module, _, attribute = place.partition(":")
    kind, _, method = attribute.partition(".")
    assert hasattr(getattr(import_module(f"segmentation.{module}"), kind), method)
    code = _SITE.format(name=NAME, module=f"segmentation.{module}", kind=kind, method=method, fault=fault)
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    before = os.environ.get("PYTHONPATH")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))
