"""The Dockerfile's steps have the files that they need."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from segmentation._version import __version__

LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
# Packs what setuptools takes of a folder, without the network. Each runs in a process of its own.
WHEEL = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def copy(line: str, context: Path, image: Path) -> None:
    """Does what a COPY does, but for what .dockerignore leaves out."""
    *sources, target = line.split()[1:]
    place = image / target
    for source in sources:
        given = context / source
        if given.is_dir():
            shutil.copytree(given, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            folder = place if target.endswith("/") else place.parent
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(given, folder)


def context_of(folder: Path) -> Path:
    """Returns a folder with what .dockerignore lets into the build."""
    folder.mkdir()
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            copy(f"COPY {line[1:]} {line[1:]}", ROOT, folder)
    return folder


def test_each_install_has_its_files(tmp_path: Path) -> None:
    """The lock is there when it is installed, and the last step installs all of the package."""
    context, image, made = context_of(tmp_path / "context"), tmp_path / "image", tmp_path / "made"
    image.mkdir()
    made.mkdir()
    steps = []
    for line in LINES:
        if line.startswith("COPY ") and "--from=" not in line:
            copy(line, context, image)
        if line.startswith("RUN ") and "uv sync --frozen" in line:
            steps.append("lock")
            assert sorted(os.listdir(image)) == ["pyproject.toml", "uv.lock"]
        elif line.startswith("RUN ") and "uv build --wheel" in line:
            steps.append("package")
            tools = re.findall(r"python (tools/\w+\.py)", line)
            assert tools == ["tools/build_kernels.py"]
            assert all((image / tool).is_file() for tool in tools)
            done = subprocess.run(
                [sys.executable, "-c", WHEEL, str(made)], cwd=image, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[-2000:]
    assert steps == ["lock", "package"]
    (wheel,) = made.glob("*.whl")
    assert wheel.name.split("-")[1] == __version__
    shutil.unpack_archive(wheel, tmp_path / "unpacked", "zip")
    files = {
        path.relative_to(ROOT)
        for path in (ROOT / "segmentation").rglob("*")
        if path.suffix in (".py", ".cu", ".cpp", ".h", ".html", ".css", ".js")
    }
    files.add(Path("segmentation/models/person.onnx"))
    assert not [str(path) for path in sorted(files) if not (tmp_path / "unpacked" / path).is_file()]


@pytest.fixture(scope="module", autouse=True)
def _setuptools() -> None:
    """The version that pyproject.toml asks for; a build would fetch it."""
    pytest.importorskip("setuptools", minversion="77")
