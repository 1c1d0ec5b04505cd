"""The keywords of `segment()` are Config's fields, and a type checker refuses others."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import get_type_hints

import pytest
from paths import ROOT

from segmentation import Config
from segmentation.options import Options, RunOptions

CALL = """
from typing import Unpack
from segmentation.options import Options
def call(**options: Unpack[Options]) -> None: ...
call({}=0.5)
"""


def test_the_keywords_are_the_fields_of_config() -> None:
    assert get_type_hints(Options) == get_type_hints(Config)
    assert not Options.__required_keys__


def test_what_may_differ_by_file_is_a_part_of_all_options() -> None:
    assert RunOptions.__optional_keys__ < Options.__optional_keys__
    assert not {"model", "device", "mode", "batch_size", *"decode preprocess infer postprocess encode".split()} & set(
        RunOptions.__optional_keys__
    )


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_misspelt_option_is_a_type_error(tmp_path: Path) -> None:
    found = {}
    for name in ("threshold", "treshold"):
        path = tmp_path / f"{name}.py"
        path.write_text(CALL.format(name))
        # Of the package, only the options are read: the test takes a second instead of half a minute.
        command = [sys.executable, "-m", "mypy", "--follow-imports=skip", f"--cache-dir={tmp_path}", str(path)]
        done = subprocess.run([*command, "segmentation/options.py"], cwd=ROOT, capture_output=True, text=True)
        found[name] = (done.returncode, done.stdout)
    assert found["threshold"][0] == 0, found
    assert found["treshold"][0] == 1 and 'Unexpected keyword argument "treshold"' in found["treshold"][1], found
