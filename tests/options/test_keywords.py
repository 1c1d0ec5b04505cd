"""The keywords of `segment()` are Config's fields, and a type checker refuses others."""

import re
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import get_type_hints

import pytest
from paths import ROOT

from segmentation import Config
from segmentation.options.config import OPTIONS
from segmentation.options.keywords import FrameOptions, Options, PictureOptions, RunOptions

CALLS = """
from segmentation.sessions.segment import segment
from segmentation.sessions.session import Segmenter
segment("a.mp4", {0}=0.5)
Segmenter({0}=0.5).run("a.mp4", {0}=0.5)
"""


def test_the_keywords_are_the_fields_of_config() -> None:
    assert get_type_hints(Options) == {name: row.type for name, row in OPTIONS.items()}
    assert list(OPTIONS) == [field.name for field in fields(Config) if field.init]
    assert not Options.__required_keys__


def test_what_may_differ_by_file_is_a_part_of_all_options() -> None:
    assert RunOptions.__optional_keys__ < Options.__optional_keys__
    assert not {"model", "device", "mode", "batch_size", *"decode preprocess infer postprocess encode".split()} & set(
        RunOptions.__optional_keys__
    )


def test_pictures_and_iterators_take_a_part_of_a_runs_options() -> None:
    for kind in (PictureOptions, FrameOptions):
        assert get_type_hints(kind).items() < get_type_hints(RunOptions).items()


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_misspelt_option_is_a_type_error(tmp_path: Path) -> None:
    # Of the package, only the signatures are read: the test takes seconds instead of half a minute.
    read = [f"segmentation/{name}.py" for name in ("options/keywords", "sessions/segment", "sessions/session")]
    calls = {name: tmp_path / f"{name}.py" for name in ("threshold", "treshold")}
    for name, path in calls.items():
        path.write_text(CALLS.format(name))
    command = [sys.executable, "-m", "mypy", "--follow-imports=skip", f"--cache-dir={tmp_path}", *read]
    done = subprocess.run([*command, *map(str, calls.values())], cwd=ROOT, capture_output=True, text=True)
    errors = {
        name: [line for line in done.stdout.splitlines() if re.match(rf"{path}:\d+: error:", line)]
        for name, path in calls.items()
    }
    assert not errors["threshold"]
    assert [line.partition("error: ")[2].partition(" for ")[0] for line in errors["treshold"]] == [
        'Unexpected keyword argument "treshold"'
    ] * 3
