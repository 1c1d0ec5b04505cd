"""The names that the package promises."""

import re
import subprocess
import sys
from types import ModuleType

import pytest
from paths import ROOT

import segmentation
from segmentation import clips


def test_the_promised_names_are_those_of_the_docstring() -> None:
    documented = re.findall(r"^ *- `(\w+)`:", str(segmentation.__doc__), re.MULTILINE)
    assert sorted(documented) == segmentation.__all__


def test_each_can_be_imported() -> None:
    namespace: dict[str, object] = {}
    exec("from segmentation import *", namespace)
    assert namespace.keys() - {"__builtins__"} == set(segmentation.__all__)
    assert all(getattr(value, "__name__", "") == name for name, value in namespace.items() if name != "__builtins__")


def test_nothing_else_is_promised() -> None:
    assert dir(segmentation) == sorted(segmentation.__all__)
    tools = {"TYPE_CHECKING", "import_module"}  # of the lazy import
    others = {name for name, value in vars(segmentation).items() if not isinstance(value, ModuleType)} - tools
    assert {name for name in others if not name.startswith("_")} <= set(segmentation.__all__)


def test_errors_are_one_family() -> None:
    errors = [name for name in segmentation.__all__ if name.endswith("Error")]
    assert all(issubclass(getattr(segmentation, name), segmentation.SegmentationError) for name in errors)


def test_importing_the_package_imports_no_library() -> None:
    """The encoders' process imports the package, and has to start fast."""
    program = "import sys, segmentation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert {name for name in loaded if name.startswith("segmentation")} == {"segmentation", "segmentation._version"}
    assert not {"numpy", "av", "cv2", "torch"} & set(loaded)


def test_clips_promises_what_its_page_shows() -> None:
    assert clips.__all__ == ["Batch", "Clip", "ClipDataset", "ClipLoader", "Output", "Window"]
    assert all(getattr(clips, name).__module__.startswith("segmentation.clips.") for name in clips.__all__)
    page = (ROOT / "docs" / "clips.md").read_text(encoding="utf-8")
    assert {"ClipDataset", "ClipLoader", "Output"} <= set(re.findall(r"\w+", page))
    others = {name for name, value in vars(clips).items() if not isinstance(value, ModuleType)}
    assert {name for name in others if not name.startswith("_")} == set(clips.__all__)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_is_printed_alone_needs_no_library_of_the_stages(option: str) -> None:
    program = f"""
import sys
from segmentation.__main__ import start
sys.argv[1:] = [{option!r}]
try:
    start()
except SystemExit as end:
    print(end.code, *{{"cv2", "onnxruntime"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["0"]
