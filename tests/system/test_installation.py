"""Advice on how to install the extras, and machines without Linux's calls."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, SAMPLE

from segmentation.system import installation


def test_a_checkout_names_itself() -> None:
    assert installation.install("gpu") == f"pip install '{ROOT}[gpu]'"


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ({"url": "file:///src/x"}, "file:///src/x"),
        ({"url": "https://e.org/x.git", "vcs_info": {"vcs": "git"}}, "git+https://e.org/x.git"),
        (None, "git+URL"),
    ],
)
def test_an_installed_package_names_its_origin(origin: object, source: str, tmp_path: Path) -> None:
    """The package and its metadata as pip leaves them, in a folder that is no checkout."""
    (tmp_path / "segmentation").symlink_to(ROOT / "segmentation")
    about = tmp_path / "video_segmentation-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: video-segmentation\nVersion: 0.1.0\n")
    if origin is not None:
        (about / "direct_url.json").write_text(json.dumps(origin))
    line = "from segmentation.system.installation import install; print(install('gpu'))"
    said = subprocess.check_output([sys.executable, "-P", "-c", line], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert said.decode().strip() == f"pip install 'video-segmentation[gpu] @ {source}'"


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("torch", [SAMPLE, "-o", "a.mp4", "--infer", "torch"], f"torch is not installed; pip install '{ROOT}[gpu]'"),
        ("uvicorn", ["serve"], f"uvicorn is missing; pip install '{ROOT}[web]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command(
    module: str, arguments: list[str], words: str, tmp_path: Path
) -> None:
    without = f"import runpy, sys; sys.modules['{module}'] = None; sys.argv = ['x', *sys.argv[1:]]"
    run = "runpy.run_module('segmentation', run_name='__main__')"
    command = [sys.executable, "-c", f"{without}; {run}", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 3 and done.stderr.strip().endswith(words), done.stderr


def test_a_machine_without_affinity(tmp_path: Path) -> None:
    """As macOS."""
    without = "import os, runpy, sys; del os.sched_getaffinity; sys.argv = ['x', *sys.argv[1:]]"
    run = "runpy.run_module('segmentation', run_name='__main__')"
    command = [sys.executable, "-c", f"{without}; {run}", SAMPLE, "-o", tmp_path / "a.mp4", "--max-frames", "3"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "a.mp4").is_file(), done.stderr
