"""`--licenses`."""

from importlib.metadata import version

import av
from paths import ROOT
from program import cli

from segmentation.cli.licenses import licenses


def test_every_required_library_has_a_line() -> None:
    lines = licenses()
    assert lines[0].endswith(": Apache-2.0")
    for name in ("av", "lap", "numpy", "onnxruntime", "opencv-python-headless", "platformdirs", "rich"):
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert line.startswith(f"{name} {version(name)}: ") and "not stated" not in line
    assert any(line.startswith("flatbuffers ") for line in lines)  # ONNX Runtime requires it


def test_the_gpl_is_named_where_it_is() -> None:
    assert ("GPL-2.0" in "".join(licenses())) == ("libx264" in av.codecs_available or "libx265" in av.codecs_available)


def test_each_file_of_others_in_the_package_is_named() -> None:
    files = [path.name for path in (ROOT / "segmentation/models").iterdir() if path.suffix in (".onnx", ".jpg")]
    page = (ROOT / "docs/licenses.md").read_text(encoding="utf-8")
    assert files and all(name in "".join(licenses()) and f"`{name}`" in page for name in files)


def test_the_command_prints_them() -> None:
    done = cli("--licenses")
    assert done.returncode == 0 and done.stdout.splitlines() == licenses()
